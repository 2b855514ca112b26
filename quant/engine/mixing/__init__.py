"""Plans that mix formats: sensitivity and cost of each layer, a predicted plan, and the closed loop that measures it."""
