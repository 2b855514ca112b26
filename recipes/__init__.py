"""Recipes that ship with the toolkit, and the code that some of them name."""
