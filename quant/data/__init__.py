"""Data: from sources (paths, packages, hubs) over rows and files to samples and batches that a model can take."""
