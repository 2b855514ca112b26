"""Constant folding that never makes a model larger: what is computed from weights alone is computed once.

Only operators whose output size is known beforehand are folded, so that a graph cannot ask for more memory than its
weights take. Layers (products, convolutions) are never folded, nor is anything of a quantized graph's Q/DQ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.graph.importing.surgery import is_op, weight_of
from quant.graph.model import attribute, opset

Array = npt.NDArray[Any]
FREE_ELEMENTS = 1 << 14
"""An output of at most so many elements may be larger than what it is made from."""
WEIGHT_ELEMENTS = 1 << 28
"""A weight that the graph itself makes of one number (ConstantOfShape) may have so many; an engine would hold it, too."""
_WEIGHTED = ("BatchNormalization", "Conv", "ConvTranspose", "Gemm", "MatMul")
_GROWTH = 2  # a cast from FP16 to FP32 doubles the bytes

# fmt: off
_NOT_LARGER = frozenset(
    {
        "Abs", "Acos", "Acosh", "ArgMax", "ArgMin", "Asin", "Asinh", "Atan", "Atanh", "Cast",
        "Ceil", "Clip", "Cos", "Cosh", "CumSum", "Elu", "Erf", "Exp", "Flatten", "Floor",
        "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Log", "Neg", "Not", "Reciprocal",
        "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
        "Relu", "Reshape", "Round", "Shape", "Sigmoid", "Sign", "Sin", "Sinh", "Size", "Slice",
        "Softplus", "Softsign", "Split", "Sqrt", "Squeeze", "Tan", "Tanh", "Transpose", "Trilu", "Unsqueeze",
    }
)
_BROADCASTS = frozenset(
    {
        "Add", "And", "BitShift", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max",
        "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Where", "Xor",
    }
)
# fmt: on
_KEEPS_NAME = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
_FOLDED_TYPES = frozenset(
    {
        ir.DataType.FLOAT,
        ir.DataType.DOUBLE,
        ir.DataType.FLOAT16,
        ir.DataType.BOOL,
        *(getattr(ir.DataType, f"{sign}INT{bits}") for sign in ("", "U") for bits in (8, 16, 32, 64)),
    }
)


def _elements_of_range(arrays: Sequence[Array]) -> int:
    start, limit, delta = (float(a) for a in arrays)
    return max(0, int(np.ceil((limit - start) / delta))) if delta else FREE_ELEMENTS + 1


_SIZES: dict[str, Callable[[Sequence[Array], ir.Node], int]] = {
    "Concat": lambda arrays, _: sum(a.size for a in arrays),
    "ConstantOfShape": lambda arrays, _: int(np.prod(arrays[0], dtype=np.float64)),
    "Expand": lambda arrays, _: int(np.prod(np.broadcast_shapes(arrays[0].shape, tuple(int(d) for d in arrays[1])), dtype=np.float64)),
    "Gather": lambda arrays, node: arrays[1].size * (arrays[0].size // max(1, arrays[0].shape[attribute(node, "axis", 0)])),
    "Range": lambda arrays, _: _elements_of_range(arrays),
    "Tile": lambda arrays, _: int(arrays[0].size * np.prod(arrays[1], dtype=np.float64)),
}


def fold_constants(model: ir.Model) -> int:
    """Compute once what depends on weights alone; gives the number of nodes that went.

    A weight that only moves (Transpose, Cast, Reshape, ...) keeps its name when nothing else uses it.
    """
    count = 0
    for node in list(model.graph):
        tensors = _constant_inputs(node)
        if tensors is None or any(o.is_graph_output() for o in node.outputs):
            continue
        arrays = _results(node, tensors, opset(model))
        if arrays is None:
            continue
        _replace(model.graph, node, arrays)
        count += 1
    return count


def _constant_inputs(node: ir.Node) -> list[ir.TensorProtocol | None] | None:
    """The tensors of a node all of whose inputs are weights, when it is an operator that is folded."""
    if not is_op(node, *_NOT_LARGER, *_BROADCASTS, *_SIZES) or not node.inputs:
        return None
    tensors = [weight_of(v) for v in node.inputs]
    if any(v is not None and (t is None or t.dtype not in _FOLDED_TYPES) for v, t in zip(node.inputs, tensors, strict=True)):
        return None
    return tensors if any(t is not None for t in tensors) else None


def _results(node: ir.Node, tensors: list[ir.TensorProtocol | None], version: int) -> list[Array] | None:
    if is_op(node, "Cast"):
        wanted = ir.DataType(attribute(node, "to", 1))
        source = tensors[0]
        assert source is not None, "a Cast has an input"
        if wanted not in _FOLDED_TYPES or (wanted.itemsize > _GROWTH * source.dtype.itemsize and source.size > FREE_ELEMENTS):
            return None  # integers that stand for floats are a quantized weight
    arrays = [None if t is None else t.numpy() for t in tensors]
    if not _is_small_enough(node, [a for a in arrays if a is not None]):
        return None
    return _evaluate(node, arrays, version)


def _is_small_enough(node: ir.Node, arrays: list[Array]) -> bool:
    if node.op_type in _NOT_LARGER:
        return True
    try:
        size = _SIZES[node.op_type](arrays, node) if node.op_type in _SIZES else int(np.prod(np.broadcast_shapes(*(a.shape for a in arrays)), dtype=np.float64))
    except (ValueError, IndexError):
        return False  # shapes that do not fit: whoever runs the graph will say so
    if is_op(node, "ConstantOfShape") and all(is_op(use.node, *_WEIGHTED) for use in node.outputs[0].uses()):
        return size <= WEIGHT_ELEMENTS
    return size <= max(FREE_ELEMENTS, max(a.size for a in arrays) if node.op_type != "Concat" else sum(a.size for a in arrays))


def _evaluate(node: ir.Node, arrays: list[Array | None], version: int) -> list[Array] | None:
    """What ONNX's reference evaluator computes for the node; None when it cannot."""
    from onnx import TensorProto, helper  # noqa: PLC0415 - heavy
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415

    proto = ir.to_proto(node)
    feed = {name: a for name, a in zip(proto.input, arrays, strict=True) if a is not None}
    inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feed.items()]
    outputs = [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in proto.output if n]
    graph = helper.make_graph([proto], "folded", inputs, outputs)
    with np.errstate(all="ignore"):  # an infinity in a constant is the graph's own affair
        found = ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])).run(None, feed)
    results = [np.asarray(a) for a in found]
    return results if all(a.dtype.kind in "fiub" for a in results) else None


def _replace(graph: ir.Graph, node: ir.Node, arrays: list[Array]) -> None:
    outputs = [o for o in node.outputs if o.name]
    source = node.inputs[0]
    keep = source.name if node.op_type in _KEEPS_NAME and source is not None and len(source.uses()) == 1 and not source.is_graph_output() else None
    values = []
    for output, array in zip(outputs, arrays, strict=True):
        tensor = ir.tensor(np.ascontiguousarray(array).reshape(array.shape), name=keep or output.name)
        value = ir.Value(name=keep or output.name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor)
        ir.convenience.replace_all_uses_with(output, value)
        values.append(value)
    graph.remove(node, safe=True)
    if keep is not None:
        graph.initializers.pop(str(keep))
    for value in values:
        graph.initializers[str(value.name)] = value
