"""Whether OpenVINO quantizes what a product multiplies its INT8 weights with.

Its runtime model does not tell: such a kernel is called `brgemm_avx512_f32` either way. So the product is taken out of the
graph, with its weights, and is given random rows. Three results decide: the float product of the rows, the float product of
the rows rounded in groups to 255 steps, and what OpenVINO gives under the settings of the artifact. Measured, the last is
within 2e-7 of one of the first two, which are 5e-3 apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from quant.targets.vino.compiling import GROUP, compile_model

_ROWS = 16
_STEPS = 127
_NEAR = 0.05
"""How near to the product of rounded rows, as a share of what rounding changes."""


def rounds_in_groups(product: Any, group: int) -> bool:
    """Whether the rows that `product`, a MatMul with constant weights, reads are rounded in groups of `group` values."""
    weights = product.input(1).get_source_output()
    axis = 1 if product.get_attributes()["transpose_b"] else 0
    summed = weights.get_partial_shape()[axis].get_length()
    if group == 0 or summed % group:
        return False
    rows = np.random.default_rng(0).normal(size=(_ROWS, summed)).astype(np.float32)
    exact, rounded = _run(product, 0, rows, _rounded(rows, group))
    (found,) = _run(product, group, rows)
    return bool(np.linalg.norm(found - rounded) <= _NEAR * np.linalg.norm(rounded - exact))


def _rounded(rows: npt.NDArray[np.float32], group: int) -> npt.NDArray[np.float32]:
    groups = rows.reshape(len(rows), -1, group).astype(np.float64)
    step = np.abs(groups).max(axis=-1, keepdims=True) / _STEPS
    return np.asarray((np.rint(groups / step) * step).reshape(rows.shape), np.float32)


def _run(product: Any, group: int, *inputs: npt.NDArray[np.float32]) -> list[npt.NDArray[np.float32]]:
    """What `product` gives for each of `inputs`, by itself, compiled for groups of `group` values."""
    import openvino  # noqa: PLC0415 - optional, heavy
    from openvino import opset13 as ops  # noqa: PLC0415 - likewise

    x = ops.parameter([-1, inputs[0].shape[1]], np.float32)
    alone = ops.matmul(x, product.input(1).get_source_output(), False, bool(product.get_attributes()["transpose_b"]))  # noqa: FBT003 - OpenVINO's order
    compiled = compile_model(openvino.Model([alone], [x]), threads=1, where=product.get_friendly_name(), **{GROUP: str(group)})
    return [np.array(compiled([rows])[0]) for rows in inputs]
