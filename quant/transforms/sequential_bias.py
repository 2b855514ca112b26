"""`sequential-bias-correction`: the biases take back what quantization does to the mean of each layer's output, layer by layer.

What a scheme does by itself (`correct_bias`) foresees the mean error of one rounded weight, from the mean of what FP32 multiplies.
Here the quantized model runs: a layer's mean is compared with FP32's while all layers before it are quantized and corrected already,
so that rounded and clipped activations, padding, and what functions between layers make of errors, are part of what is taken back
(Nagel et al. 2019, "Data-Free Quantization Through Weight Equalization and Bias Correction", empirical bias correction). It
takes a pass over the samples for each layer.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.core.progress import tracked
from quant.core.registry import Options as PluginOptions
from quant.graph.layers import FLOAT32, Layer
from quant.graph.model import add_initializer, attribute, constant
from quant.graph.names import Names
from quant.graph.planning import planned
from quant.transforms import TRANSFORMS, Change, Doubles, Seen, Setting
from quant.transforms.products.rows import added_row

_BIAS = 2


class _Bias(NamedTuple):
    """Where a layer takes a bias.

    Args:
        node: The node that adds it.
        position: Its input that has it.
        value: The bias; None: there is none yet.
        axis: Axis of the channels of what `node` gives.
        factor: What the bias is multiplied with.
    """

    node: ir.Node
    position: int
    value: npt.NDArray[np.float32] | None
    axis: int
    factor: float = 1.0


@TRANSFORMS.add
class SequentialBiasCorrection:
    """Takes back, layer by layer, what quantization does to the means of layers' outputs."""

    kind: ClassVar[str] = "sequential-bias-correction"
    bases: ClassVar[frozenset[str]] = frozenset({"int8", "fp8", "int4"})
    keeps_function: ClassVar[bool] = False
    keeps_tensors: ClassVar[bool] = True

    class Options(PluginOptions):
        """Options of `sequential-bias-correction`: none."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def tensors(self, model: ir.Model, setting: Setting) -> frozenset[str]:
        """None: it runs the model."""
        del model, setting
        return frozenset()

    def apply(self, model: ir.Model, setting: Setting, seen: Seen) -> Change:
        """Correct the bias of every layer of the plan that has one, or can have one."""
        biases = {layer.name: bias for layer in planned(model, setting.plan) if (bias := _bias(layer)) is not None}
        if not biases:
            return Change()
        quantized = seen.quantized()
        made = {str(v.name): v for node in quantized.graph for v in node.outputs}
        biases = {name: bias for name, bias in biases.items() if str(bias.node.outputs[0].name) in made}  # an engine's form may have none of its own
        wanted = seen.means(model, {str(bias.node.outputs[0].name): bias.axis for bias in biases.values()})
        names, done = Names(model.graph), {}
        for name, bias in tracked(biases.items(), "correcting biases", len(biases)):
            output = str(bias.node.outputs[0].name)
            shift = seen.means(quantized, {output: bias.axis})[output] - wanted[output]
            if not np.isfinite(shift).all():
                continue
            shift = _write(model.graph, bias, shift, names.new(f"{name}_bias_corrected"))
            if shift.any():
                _add(quantized, made[output], -shift, bias.axis, f"{output}_corrected")
                done[name] = f"{np.abs(shift).max():.1e} taken back, at most"
        return Change(done)


def _bias(layer: Layer) -> _Bias | None:
    """Where `layer` takes a bias in each channel; None when it does not."""
    node, shape = layer.node, layer.weight_shape
    if layer.weight != 1 or shape is None or node.outputs[0].shape is None:
        return None
    value = node.inputs[_BIAS] if len(node.inputs) > _BIAS else None
    held = constant(value)
    match layer.op:
        case "Conv" if value is None:
            return _Bias(node, _BIAS, None, 1)
        case "Conv":
            return _Bias(node, _BIAS, held, 1) if held is not None and held.dtype == np.float32 else None
        case "Gemm":
            channels = shape[0] if attribute(node, "transB", 0) else shape[1]
            factor = float(attribute(node, "beta", 1.0))
            fits = held is not None and held.dtype == np.float32 and held.size == channels == held.shape[-1] and factor
            return _Bias(node, _BIAS, held, 1, factor) if fits else None
        case "MatMul":
            found = added_row(layer)
            return _Bias(found[0], found[1], found[2], -1) if found is not None and found[0].outputs[0].shape is not None else None
        case _:
            return None


def _write(graph: ir.Graph, bias: _Bias, shift: Doubles, name: str) -> Doubles:
    """Take `shift` off the bias; gives what the rounded bias really takes off."""
    before = np.zeros(len(shift), np.float32) if bias.value is None else bias.value
    after = (before.astype(np.float64) - (shift / bias.factor).reshape(before.shape)).astype(np.float32)
    taken: Doubles = (before.astype(np.float64) - after).reshape(-1) * bias.factor
    if taken.any():
        bias.node.resize_inputs(max(len(bias.node.inputs), bias.position + 1))
        bias.node.replace_input_with(bias.position, add_initializer(graph, name, after))
    return taken


def _add(model: ir.Model, value: ir.Value, row: Doubles, axis: int, name: str) -> None:
    """Let all readers of `value` read it with `row` added to its channels; who reads the graph's outputs does not."""
    producer, shape = value.producer(), value.shape
    assert producer is not None and producer.graph is not None and shape is not None, "a layer's output is made, and has a shape"  # noqa: PT018 - for mypy
    names = Names(model.graph)
    wide = row.astype(np.float32).reshape([-1, *[1] * (len(shape) - 1 - axis % len(shape))])
    added = ir.Value(name=names.new(name), shape=shape, type=ir.TensorType(FLOAT32))
    uses = list(value.uses())
    node = ir.node("Add", [value, add_initializer(model.graph, names.new(f"{name}_row"), wide)], outputs=[added])
    producer.graph.insert_after(producer, [node])
    for reader, position in uses:
        reader.replace_input_with(position, added)
