"""The plain meaning of a graph: what runs it as ONNX defines it, without the liberties that an operator leaves to engines."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx_ir as ir

from quant.graph.bias_apart import take_biases_apart
from quant.graph.blocks.microsoft import multiply_in_float, rounding_products
from quant.graph.halves import round_halves, speaks_of_halves
from quant.graph.importing.types import infer_types
from quant.graph.model import read_model, write_model
from quant.graph.runtime import Runtime


def plain(path: Path) -> Runtime:
    """What runs the graph in `path` as it is written: every result rounded to the type that it has there.

    Products with weights of few bits are multiplied in FP32, whatever they may be multiplied in.

    Raises:
        ModelError: ONNX Runtime cannot load it.
    """
    model = read_model(path)
    products = rounding_products(model)
    multiply_in_float(products)
    return _loaded(model) if round_halves(model) or products else Runtime(path, optimize=False)


def coarse(path: Path) -> Runtime | None:
    """What rounds as often as an engine may that computes the graph in `path`; None where that is as often as the plain meaning does.

    An engine that adds a bias to a product in FP16 rounds the product first.

    Raises:
        ModelError: ONNX Runtime cannot load it.
    """
    model = read_model(path)
    if not speaks_of_halves(model):
        return None
    infer_types(model)
    if not take_biases_apart(model):
        return None
    multiply_in_float(rounding_products(model))
    round_halves(model)
    return _loaded(model)


def _loaded(model: ir.Model) -> Runtime:
    with tempfile.TemporaryDirectory() as scratch:
        return Runtime(write_model(model, Path(scratch)), optimize=False)
