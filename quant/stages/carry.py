"""carry: a model that another tool has quantized, written in a target's dialect with that tool's weights and scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import ml_dtypes
import numpy as np
import onnx_ir as ir

from quant.core.dialect import Dialect
from quant.core.documents import PrecisionPlan
from quant.core.formats import INT4, Grid, Range
from quant.core.rounding.blocks import BlockGrid
from quant.errors import ModelError
from quant.graph.blocks.matrices import int4_obstacle, matrix_of
from quant.graph.blocks.write import BlockWeight, write_blocks
from quant.graph.importing.modelopt import Floats, Quantized
from quant.graph.layers import Layer
from quant.graph.model import constant
from quant.graph.planning import choose_layers, planned
from quant.graph.qdq import freeze_qdq, place_qdq
from quant.graph.static import static_needs, static_obstacle
from quant.graph.weights import hold
from quant.schemes import Evidence, Needs, SchemeOptions

_SCALE_TYPES = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}
_STEPS = 127
_CLOSE = 1e-4
"""Share of a channel's largest weight by which its weights may differ from what the tool saw, once a factor of the whole channel is taken out."""


class Carried:
    """A scheme whose layers, weights and scales are those that another tool chose (see `carried`).

    Args:
        modules: Name of a torch module -> how it is quantized; all in the format `base`.
    """

    kind: ClassVar[str] = "modelopt"
    base: ClassVar[str]
    Options: ClassVar[type[SchemeOptions]] = SchemeOptions
    data: ClassVar[Literal["none", "calibration", "training"]] = "calibration"

    def __init__(self, modules: Mapping[str, Quantized]) -> None:
        self.modules = dict(modules)

    def plan(self, model: ir.Model, layers: Sequence[Layer], dialect: Dialect) -> PrecisionPlan:
        """The format for every layer that the tool quantizes and the target has a kernel for."""
        del model
        return choose_layers(self.kind, self.base, layers, include=(), exclude=(), obstacle=lambda layer: self._obstacle(layer, dialect))

    def _obstacle(self, layer: Layer, dialect: Dialect) -> str | None:
        found = self.module_of(layer)
        if found is None:
            return "ModelOpt leaves it in higher precision"
        if found.format == "int4":
            return int4_obstacle(layer, dialect.int4, block_size=found.block_size, embeddings=False)
        if found.format == "fp8" and dialect.fp8 is None:
            return "the target does not know FP8"
        return static_obstacle(layer, self._dialect(dialect), products=False, kernel="FP8" if found.format == "fp8" else "integer")

    def _dialect(self, dialect: Dialect) -> Dialect:
        return dialect.in_fp8 if self.base == "fp8" else dialect

    def module_of(self, layer: Layer) -> Quantized | None:
        """How the module that `layer` comes from is quantized; None when it is not."""
        value = layer.node.inputs[layer.weight] if layer.weight is not None else None
        names = [str(value.name).removesuffix(".weight")] if value is not None else []
        return next((self.modules[name] for name in (*names, layer.name.rpartition(".")[0]) if value is not None and name in self.modules), None)

    def needs(self, model: ir.Model, plan: PrecisionPlan, dialect: Dialect) -> Needs:
        """Ranges of all tensors that get Q/DQ; those that the tool chose are among them."""
        if self.base == "int4":
            return Needs()
        found = static_needs(model, planned(model, plan), self._dialect(dialect), correct_bias=False)
        return Needs(ranges={**found.ranges, **dict.fromkeys(found.known, self._dialect(dialect).activations)})

    def ranges(self, model: ir.Model, plan: PrecisionPlan, dialect: Dialect) -> dict[str, Range]:
        """Tensor -> the range whose scale on the target's grid is the tool's; of tensors that it has quantized."""
        grids = self.needs(model, plan, dialect).ranges
        found: dict[str, Range] = {}
        for layer in planned(model, plan):
            value: ir.Value | None = layer.node.inputs[layer.activations[0]]
            module = self.module_of(layer)
            assert module is not None, "a planned layer is quantized"
            while value is not None:
                name = str(value.name)
                if name in grids and module.input is not None:
                    chosen = _range(module, grids[name])
                    found[name] = max(chosen, found.get(name, chosen), key=lambda ends: ends.high)
                node = value.producer()  # what only moves values has the scale of what it reads
                value = node.inputs[0] if node is not None and node.op_type in self._dialect(dialect).transparent else None
        return found

    def apply(self, model: ir.Model, plan: PrecisionPlan, evidence: Evidence, dialect: Dialect) -> PrecisionPlan:
        """Write every planned layer with the tool's weights and scales."""
        layers = planned(model, plan)
        if self.base == "int4":
            self._write_blocks(model, layers, dialect)
            return plan
        form = self._dialect(dialect)
        scales = {layer.name: self._scale(layer, form.weights) for layer in layers}
        placed = place_qdq(model, layers, evidence.ranges, form, per_channel=True)
        for weight in placed.weights:
            name = weight.quantizer.scale
            shape = model.graph.initializers[name].shape
            assert shape is not None, "an initializer has a shape"
            hold(model.graph, name, np.broadcast_to(scales[weight.layer], shape.numpy()).astype(np.float32))
        freeze_qdq(model, placed)
        return plan

    def _scale(self, layer: Layer, grid: Grid) -> Floats:
        """Scale of the weight, for the whole or for each output channel: the tool's, times what the import moved into the channel."""
        module = self.module_of(layer)
        assert module is not None, "a planned layer is quantized"
        factors = _factors(layer, module)
        largest = module.largest * (factors if module.largest.ndim or (factors != factors[0]).any() else factors[0])
        return grid.params(-largest, largest).scale

    def _write_blocks(self, model: ir.Model, layers: Sequence[Layer], dialect: Dialect) -> None:
        assert dialect.int4 is not None, "a plan with layers in INT4 was made for a target that reads them"
        weights = {}
        for layer in layers:
            module = self.module_of(layer)
            assert module is not None, "a planned layer is quantized"
            largest = module.largest * _factors(layer, module)[:, None]
            grid = BlockGrid(INT4, module.block_size, _SCALE_TYPES[dialect.body])
            rounded = grid.round(matrix_of(layer), grid.params(-largest.astype(np.float64), largest.astype(np.float64)))
            weights[layer.name] = BlockWeight(layer, rounded, module.block_size)
        write_blocks(model, weights, dialect.int4)


class _Int8(Carried):
    """Of INT8."""

    base: ClassVar[str] = "int8"


class _Fp8(Carried):
    """Of FP8."""

    base: ClassVar[str] = "fp8"


class _Int4(Carried):
    """Of weights in INT4."""

    base: ClassVar[str] = "int4"


_KINDS: Mapping[str, type[Carried]] = {kind.base: kind for kind in (_Int8, _Fp8, _Int4)}


def carried(modules: Mapping[str, Quantized]) -> Carried:
    """The scheme that writes what another tool has quantized.

    Args:
        modules: Name of a torch module -> how it is quantized.

    Raises:
        ModelError: They are not all in one format.
    """
    formats = sorted({found.format for found in modules.values()})
    if len(formats) != 1:
        raise ModelError(f"the model is quantized to {' and '.join(formats)}", hint="use one format for all layers")
    return _KINDS[formats[0]](modules)


def _factors(layer: Layer, module: Quantized) -> Floats:
    """What the weight in the graph is multiplied by beside the module's, for each output channel: a batch norm's factors, say.

    Raises:
        ModelError: It differs by more than that.
    """
    assert layer.weight is not None, "a planned layer has a weight"
    array = constant(layer.node.inputs[layer.weight])
    assert array is not None, "a weight is constant"
    ours = np.abs(np.moveaxis(array, layer.channel_axis or 0, 0).astype(np.float64)).reshape(len(module.weight), -1)
    theirs = np.abs(module.weight.astype(np.float64)).reshape(len(module.weight), -1)
    most = theirs.max(axis=1)
    factors = np.where(most > 0, ours.max(axis=1) / np.where(most > 0, most, 1.0), 1.0)
    off = np.abs(ours - theirs * factors[:, None]).max(axis=1)
    if ours.shape != theirs.shape or (off > _CLOSE * np.maximum(most * factors, np.finfo(np.float32).tiny)).any():
        raise ModelError(f"the weight of {layer.name!r} is not that of its module", hint="its scales cannot be kept")
    found: Floats = factors.astype(np.float32)
    return found


def _range(module: Quantized, grid: Grid) -> Range:
    """The range for which `grid` has the tool's scale.

    ModelOpt counts 127 steps of INT8 to each side (and lets codes go to -128): on a grid with a zero point, that is not in its middle.
    """
    assert module.input is not None, "the input is quantized"
    most = module.input
    if module.never_negative:
        return Range(0.0, most)
    if grid.symmetric:
        return Range(-most, most)
    return Range(-most * (grid.high - grid.low - _STEPS) / _STEPS, most)
