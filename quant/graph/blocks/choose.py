"""Choosing the codes of a model's weights in blocks: by one method for all, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import ml_dtypes
import numpy as np
import onnx_ir as ir

from quant.core.dialect import Body, Int4Form
from quant.core.formats import INT4, UINT4
from quant.core.moments import unpacked
from quant.core.parallel import one_thread
from quant.core.progress import progress
from quant.core.rounding.awq import channel_scales
from quant.core.rounding.blocks import BlockGrid, Doubles, Rounded
from quant.core.rounding.gptq import round_gptq
from quant.core.rounding.nearest import round_nearest
from quant.graph.blocks.matrices import block_size_of, matrix_of
from quant.graph.blocks.ties import weight_value, written_twice
from quant.graph.blocks.write import BlockWeight
from quant.graph.layers import TABLE_OP, Layer
from quant.graph.model import attribute
from quant.graph.scaling import divide, scalable

_SCALE_TYPES = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}
_WORTH = 0.95
"""Factors that leave more than this share of the error are not worth a change of the graph."""


@dataclass(frozen=True)
class BlockOptions:
    """How codes are chosen (see the options of the scheme `int4`)."""

    method: Literal["rtn", "gptq", "awq"]
    block_size: int | None
    symmetric: bool
    search: bool
    damping: float
    by_activity: bool


def layers_by_source(layers: Collection[Layer]) -> dict[str, list[Layer]]:
    """Name of a tensor -> the products among `layers` that read it, in graph order."""
    found: dict[str, list[Layer]] = {}
    for layer in layers:
        source = layer.node.inputs[layer.activations[0]]
        assert source is not None, "a product reads something"
        found.setdefault(str(source.name), []).append(layer)
    return found


def choose_blocks(
    model: ir.Model, layers: Collection[Layer], moments: Mapping[str, Doubles], form: Int4Form, how: BlockOptions, *, body: Body
) -> tuple[dict[str, BlockWeight], dict[str, str]]:
    """Codes for the weights of `layers`.

    Args:
        model: The graph; with `awq`, factors are moved between its weights.
        layers: Layers that no obstacle keeps in higher precision.
        moments: Tensor -> its packed second moments, for all that products read; empty for `rtn`.
        form: What the target reads.
        how: The method and its options.
        body: What the graph computes the rest in; scales are stored in it.

    Returns:
        Name of a layer -> its weight, and name -> what is to be said of it, for layers that something is to be said of.
    """
    products = layers_by_source([layer for layer in layers if layer.op != TABLE_OP])
    tables = [layer for layer in layers if layer.op == TABLE_OP]
    chosen: dict[str, BlockWeight] = {}
    said = written_twice(tuple(layers))
    shared: dict[tuple[str, ...], Rounded] = {}

    def grid_of(layer: Layer) -> BlockGrid:
        size = block_size_of(layer, form, how.block_size)
        assert isinstance(size, int), "a layer without a block size is not planned"
        return BlockGrid(INT4 if how.symmetric else UINT4, size, _SCALE_TYPES[body])

    with one_thread():
        factors, told = _scale(model.graph, products, moments, grid_of) if how.method == "awq" else ({}, {})
    said |= told
    with one_thread(), progress("choosing codes", len(layers)) as advance:
        for source, readers in products.items():
            found = unpacked(np.asarray(moments[source])) if how.method != "rtn" else None
            if found is not None and source in factors:
                found = found / np.outer(factors[source], factors[source])
            for layer in readers:
                grid = grid_of(layer)
                key = (*_weight_key(layer), source if found is not None else "")
                shared[key] = shared.get(key) or _round(matrix_of(layer), found, grid, how)
                chosen[layer.name] = BlockWeight(layer, shared[key], grid.size)
                advance(1)
        for layer in tables:
            grid = grid_of(layer)
            key = _weight_key(layer)
            shared[key] = shared.get(key) or round_nearest(matrix_of(layer), grid, search=how.search)
            chosen[layer.name] = BlockWeight(layer, shared[key], grid.size)
            advance(1)
    return chosen, said


def _weight_key(layer: Layer) -> tuple[str, ...]:
    """Layers with the same key have the same matrix, read in the same way."""
    return str(weight_value(layer).name), layer.op, *(str(attribute(layer.node, name, 0)) for name in ("transB", "alpha"))


def _round(weights: Doubles, moments: Doubles | None, grid: BlockGrid, how: BlockOptions) -> Rounded:
    if how.method == "gptq":
        assert moments is not None, "GPTQ looks at data"
        return round_gptq(weights, moments, grid, damping=how.damping, by_activity=how.by_activity, search=how.search)
    return round_nearest(weights, grid, search=how.search, moments=moments)


def _scale(
    graph: ir.Graph, products: dict[str, list[Layer]], moments: Mapping[str, Doubles], grid_of: Callable[[Layer], BlockGrid]
) -> tuple[dict[str, Doubles], dict[str, str]]:
    """Move AWQ's factors into weights, where they help: tensor -> its factors, and name of a layer -> what that did.

    All of them before any code is chosen, the last tensor first: what divides a tensor may go into the layer that makes it.
    """
    found: dict[str, Doubles] = {}
    said: dict[str, str] = {}
    with progress("scaling channels", len(products)) as advance:
        for source, readers in reversed(products.items()):
            advance(1)
            tensor = readers[0].node.inputs[readers[0].activations[0]]
            assert tensor is not None, "a product reads something"
            factors, left = channel_scales([matrix_of(layer) for layer in readers], unpacked(np.asarray(moments[source])), grid_of(readers[0]))
            if left > _WORTH or not all(scalable(layer) for layer in readers):
                continue
            where = divide(graph, tensor, factors, readers)
            found[source] = factors
            said |= dict.fromkeys((layer.name for layer in readers), f"awq: {1 - left:.0%} less error, {where}")
    return found, said
