"""What everything else is made of: formats and their arithmetic, statistics, documents, protocols, registry, digests, files."""
