"""The checks, one or a few of a kind in a file; each registers itself."""
