"""Weights that are no numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quant.errors import ModelError
from quant.graph.model import FLOATS, all_graphs


def refuse_nan(model: ir.Model) -> None:
    """Refuse a model with a weight that holds NaN: nothing computed from it can be measured or rounded. Infinities may be masks.

    Raises:
        ModelError: There is one; it is named.
    """
    for graph in all_graphs(model.graph):
        for name, value in graph.initializers.items():
            stored = value.const_value
            if stored is None or stored.dtype not in FLOATS:
                continue
            array = stored.numpy()
            if nans := int(np.isnan(array).sum()):
                what = f"weight {name!r} is NaN in {nans} of {array.size} values"
                raise ModelError(what, hint="training went astray, or the file is damaged: export the model again from a good checkpoint")
