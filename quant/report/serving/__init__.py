"""A local page over many runs: what was found in a folder, and the server that shows it."""
