"""The twin: an ONNX graph as a trainable `torch.fx` module with the graph's names.

Modules of this room import torch; import them where they are used, not at the top of a light module.
"""
