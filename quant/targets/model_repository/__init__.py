"""What a model repository of Triton Inference Server holds: its backends, its configuration as text, and the check against its schema."""
