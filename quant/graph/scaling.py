"""Moving scale between what layers read and their weights: `x W = (x / s) (s W)`, channel by channel.

Where only these layers read the tensor and what makes it has a factor for each channel, the division costs nothing: it goes
into that factor. Elsewhere a multiplication is put in front of the layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.graph.layers import FLOAT32, Layer, layer_of
from quant.graph.model import add_initializer, attribute, constant
from quant.graph.names import Names

Scale = npt.NDArray[np.float64]
_MATRIX = 2
_NORMS = frozenset({"LayerNormalization", "RMSNormalization"})


def scalable(layer: Layer) -> bool:
    """Whether `layer` multiplies rows (channels on the last axis) by a constant matrix, so that scale can be moved into it."""
    shape = layer.weight_shape
    if layer.weight != 1 or layer.op not in {"MatMul", "Gemm"} or shape is None or len(shape) != _MATRIX:
        return False
    return layer.op == "MatMul" or not attribute(layer.node, "transA", 0)


def rows_in(layer: Layer) -> npt.NDArray[np.float32]:
    """The weight of a `scalable` layer as `[in, out]`."""
    weights = constant(layer.node.inputs[1])
    assert weights is not None, "a weight is constant"
    turned = layer.op == "Gemm" and attribute(layer.node, "transB", 0)
    return np.asarray(weights.T if turned else weights, np.float32)


def write_rows(graph: ir.Graph, layer: Layer, rows: npt.NDArray[np.floating], names: Names) -> None:
    """Give a `scalable` layer the weight `rows`, `[in, out]`; other readers of the old one keep it."""
    turned = layer.op == "Gemm" and attribute(layer.node, "transB", 0)
    write_weight(graph, layer, rows.T if turned else rows, names)


def write_weight(graph: ir.Graph, layer: Layer, weight: npt.NDArray[np.floating], names: Names) -> None:
    """Give a layer whose weight stands second the weight `weight`, in its place where nobody else reads that; other readers of the old one keep it."""
    array = np.ascontiguousarray(weight, np.float32)
    old = layer.node.inputs[1]
    assert old is not None
    if len(old.uses()) == 1 and str(old.name) in graph.initializers and not old.is_graph_output():
        old.const_value = ir.tensor(array, name=old.name)
        return
    layer.node.replace_input_with(1, add_initializer(graph, names.new(f"{layer.name}_weight"), array))


def by_tensor(layers: Sequence[Layer]) -> dict[str, list[Layer]]:
    """Tensor -> the `scalable` layers that read it, sorted by name of the tensor."""
    groups: dict[str, list[Layer]] = {}
    for layer in layers:
        source = layer.node.inputs[0]
        if scalable(layer) and source is not None:
            groups.setdefault(str(source.name), []).append(layer)
    return dict(sorted(groups.items()))


def divide(graph: ir.Graph, tensor: ir.Value, scale: Scale, layers: Sequence[Layer]) -> str:
    """Let `layers`, all `scalable`, read `tensor` divided by `scale` (`[channels]`), and multiply their weights by it.

    Returns:
        Where the division went, in a few words.
    """
    names = Names(graph)
    where = _absorb(graph, tensor, scale, layers, names) or _insert(graph, tensor, scale, layers, names)
    for layer in layers:
        write_rows(graph, layer, rows_in(layer).astype(np.float64) * scale[:, None], names)
    return where


def _absorb(graph: ir.Graph, tensor: ir.Value, scale: Scale, layers: Sequence[Layer], names: Names) -> str | None:
    """Divide the factors, one for each channel, of what makes `tensor`; None when it has none, or others read it too."""
    maker = tensor.producer()
    own = {id(layer.node) for layer in layers}
    if maker is None or tensor.is_graph_output() or any(id(node) not in own for node, _ in tensor.uses()):
        return None
    if maker.op_type in _NORMS and len(maker.outputs) == 1 and attribute(maker, "axis", -1) in {-1, _rank(tensor) - 1}:
        positions = [i for i in (1, 2) if i < len(maker.inputs) and maker.inputs[i] is not None]
    elif maker.op_type == "Mul":
        positions = [i for i in (0, 1) if _is_row(maker.inputs[i], scale.size)][:1]
        if not positions:
            return _absorb_before(graph, maker, scale, names)
    else:
        return None
    factors = [constant(maker.inputs[i]) for i in positions]
    if not positions or any(f is None or f.size != scale.size for f in factors):
        return None
    for position, factor in zip(positions, factors, strict=True):
        assert factor is not None
        divided = (factor.astype(np.float64).reshape(-1) / scale).reshape(factor.shape).astype(np.float32)
        maker.replace_input_with(position, add_initializer(graph, names.new(f"{tensor.name}_smoothing"), divided))
    return f"folded into {maker.name or maker.op_type}"


def _absorb_before(graph: ir.Graph, product: ir.Node, scale: Scale, names: Names) -> str | None:
    """Divide the output channels of a layer that makes one side of `product` and nothing else; None when no side is made so.

    In a gated unit, `gate(x) * (x U + b)`, U and b take the division.
    """
    for side in product.inputs:
        found = _layer_and_row(side, scale.size)
        if found is None:
            continue
        layer, rows = found
        write_rows(graph, layer, rows_in(layer).astype(np.float64) / scale, names)
        for node, position in rows:
            row = constant(node.inputs[position])
            assert row is not None, "it was found to be a row"
            divided = (row.astype(np.float64).reshape(-1) / scale).reshape(row.shape).astype(np.float32)
            node.replace_input_with(position, add_initializer(graph, names.new(f"{layer.name}_smoothing"), divided))
        return f"folded into the weight of {layer.name}"
    return None


def _layer_and_row(value: ir.Value | None, channels: int) -> tuple[Layer, list[tuple[ir.Node, int]]] | None:
    """The `scalable` layer that makes `value`, which nobody else reads, and (node, position) of a constant row that is added to it."""
    if value is None or len(value.uses()) != 1 or value.is_graph_output():
        return None
    node = value.producer()
    if node is None:
        return None
    if node.op_type == "Add":
        at = next((i for i in (0, 1) if _is_row(node.inputs[i], channels)), None)
        before = _layer_and_row(node.inputs[1 - at], channels) if at is not None else None
        return None if before is None or at is None or before[1] else (before[0], [(node, at)])
    layer = layer_of(node)
    if layer is None or not scalable(layer) or rows_in(layer).shape[1] != channels:
        return None
    bias = [i for i in (_MATRIX,) if len(node.inputs) > i and node.inputs[i] is not None]
    return (layer, [(node, i) for i in bias]) if all(_is_row(node.inputs[i], channels) for i in bias) else None


def _is_row(value: ir.Value | None, channels: int) -> bool:
    array = constant(value)
    return array is not None and array.size == channels and array.shape[-1:] == (channels,)


def _rank(value: ir.Value) -> int:
    return len(value.shape) if value.shape is not None else 0


def _insert(graph: ir.Graph, tensor: ir.Value, scale: Scale, layers: Sequence[Layer], names: Names) -> str:
    factor = add_initializer(graph, names.new(f"{tensor.name}_smoothing"), (1 / scale).astype(np.float32))
    node = ir.node("Mul", [tensor, factor], name=names.new(f"{tensor.name}_smooth"))
    smooth = node.outputs[0]
    smooth.name, smooth.dtype, smooth.shape = names.new(f"{tensor.name}_smoothed"), FLOAT32, tensor.shape
    maker = tensor.producer()
    if maker is None:
        graph.insert_before(graph[0], node)
    else:
        graph.insert_after(maker, node)
    for layer in layers:
        layer.node.replace_input_with(0, smooth)
    return "a multiplication in front of it"
