"""The plain meaning of a graph: what runs it as ONNX defines it, without the liberties that an operator leaves to engines."""

from __future__ import annotations

import tempfile
from pathlib import Path

from quant.graph.blocks.microsoft import multiply_in_float, rounding_products
from quant.graph.model import read_model, write_model
from quant.graph.runtime import Runtime


def plain(path: Path) -> Runtime:
    """What runs the graph in `path` as it is written; products with weights of few bits in FP32, whatever they may be multiplied in.

    Raises:
        ModelError: ONNX Runtime cannot load it.
    """
    model = read_model(path)
    found = rounding_products(model)
    if not found:
        return Runtime(path, optimize=False)
    multiply_in_float(found)
    with tempfile.TemporaryDirectory() as scratch:
        return Runtime(write_model(model, Path(scratch)), optimize=False)
