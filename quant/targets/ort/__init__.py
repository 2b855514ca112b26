"""ONNX Runtime's execution providers: what runs its graphs, and what each is told."""
