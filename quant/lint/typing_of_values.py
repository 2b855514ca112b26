"""The type that every value is made in, as a strongly typed engine sees it.

ONNX's own inference does not go on behind a node whose inputs disagree, and what a file declares for an output may be
another type than what is made; the rules about types need both to be seen.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from quant.graph.model import all_graphs
from quant.lint.quantizers import code_type, is_quantizer, output_type
from quant.lint.values import integer

_SAME_AS_FIRST = frozenset(
    """
    Abs Acos Acosh Add Asin Asinh Atan Atanh AveragePool BatchNormalization Ceil Celu Clip Concat Conv ConvTranspose Cos Cosh CumSum DepthToSpace Div
    Dropout Einsum Elu Erf Exp Expand Flatten Floor Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool
    GroupNormalization HardSigmoid HardSwish Hardmax Identity InstanceNormalization LRN LayerNormalization LeakyRelu Log LogSoftmax LpNormalization
    LpPool MatMul Max MaxPool Mean MeanVarianceNormalization Min Mish Mod Mul Neg PRelu Pad Pow RMSNormalization Reciprocal ReduceL1 ReduceL2
    ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize ReverseSequence Round
    ScatterElements ScatterND Selu Shrink Sigmoid Sign Sin Sinh Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Swish Tan Tanh
    ThresholdedRelu Tile Transpose Trilu Unsqueeze Upsample
    """.split()  # noqa: SIM905
)
_SAME_AS_SECOND = frozenset({"CastLike", "Where"})
_BOOLS = ("And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor")
_FIXED = dict.fromkeys(_BOOLS, ir.DataType.BOOL) | dict.fromkeys(("ArgMax", "ArgMin", "NonZero", "Shape", "Size"), ir.DataType.INT64)


def made_types(model: ir.Model, nodes: Iterable[ir.Node], version: int) -> dict[ir.Value, ir.DataType]:
    """Type of every value that is known: of graph inputs and weights as stored, of all others as their nodes make them."""
    types: dict[ir.Value, ir.DataType] = {}
    for graph in all_graphs(model.graph):
        for value in graph.inputs:
            _note(types, value, value.dtype)
        for value in graph.initializers.values():
            _note(types, value, value.const_value.dtype if value.const_value is not None else value.dtype)
    for node in nodes:
        own = _own_type(node, types, version)
        for position, value in enumerate(node.outputs):
            first = position == 0 or node.op_type == "Split"
            _note(types, value, own if own is not None and first else value.dtype)
    return types


def _note(types: dict[ir.Value, ir.DataType], value: ir.Value, dtype: ir.DataType | None) -> None:
    if dtype is not None and dtype != ir.DataType.UNDEFINED:
        types[value] = dtype


def _own_type(node: ir.Node, types: dict[ir.Value, ir.DataType], version: int) -> ir.DataType | None:
    """Type of a node's first output, told from its inputs; None when only the file can tell."""
    inputs = [None if v is None else types.get(v) for v in node.inputs]
    if is_quantizer(node):
        return code_type(node, types, version) if node.op_type == "QuantizeLinear" else output_type(node, version) or inputs[1]
    if node.op_type == "Cast":
        asked = integer(node, "to", 0)
        return ir.DataType(asked) if asked in {int(d) for d in ir.DataType} else None
    if node.op_type in _FIXED:
        return _FIXED[node.op_type]
    like = 1 if node.op_type in _SAME_AS_SECOND else 0
    known = node.op_type in _SAME_AS_FIRST | _SAME_AS_SECOND and like < len(inputs)
    return inputs[like] if known else None
