"""Weights in blocks of 4 bits: which layers can have them, what is rounded, and the forms that engines read them in."""
