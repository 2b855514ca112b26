"""Recipes: YAML files that say what to quantize, with what data, and how much accuracy may be lost."""
