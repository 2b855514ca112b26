"""Reports: the documents of a run as pages for people and files for machines."""
