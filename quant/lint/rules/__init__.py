"""Rules, one or a few closely related ones a file."""
