"""The model as an ONNX graph: reading and writing it, its layers, and the rewriting of it."""
