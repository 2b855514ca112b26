"""OpenVINO: how models are compiled, and what cannot be read from its runtime model."""
