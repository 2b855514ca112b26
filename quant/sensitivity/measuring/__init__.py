"""What estimators have in common: what is measured of outputs, and means with their standard errors."""
