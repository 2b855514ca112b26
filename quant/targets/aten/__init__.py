"""PyTorch's exported programs: written, turned into TorchScript, and read again."""
