"""Making a twin, held to ONNX Runtime on data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from quant.twin.conversion import convert
from quant.twin.parity import compare
from quant.twin.twin import Twin


def make_twin(model: ir.Model, *, check: Sequence[Mapping[str, npt.NDArray[Any]]] | None) -> Twin:
    """The twin of `model`.

    Args:
        model: The graph; it is not changed. Weights in external data are read from where they lie.
        check: Feeds on which the twin must agree with ONNX Runtime (optimizations off); None only where there are no data.
            `Twin.parity` says how well it does.

    Returns:
        The twin; no weight wants a gradient yet.

    Raises:
        ModelError: An operator that the twin does not compute, with its node; or the first layer that parts from ONNX Runtime.
    """
    converted = convert(model)
    if not check:
        return Twin(converted)
    return Twin(converted, compare(converted, model, check))
