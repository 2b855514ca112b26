"""T01 to T06: a strongly typed engine adds no casts of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from quant.graph.model import add_initializer
from quant.lint import RULES, Place, Rule, Severity
from quant.lint.facts import Facts

T = ir.DataType
_FLOATS = frozenset({T.FLOAT, T.FLOAT16, T.BFLOAT16, T.DOUBLE})
_ELEMENTWISE = (
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Min",
    "Max",
    "Sum",
    "Mean",
    "Mod",
    "PRelu",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Concat",
    "Where",
)
_CODES_OPS = ("Add", "Sub", "Mul", "Div", "Min", "Max", "Sum", "Mean", "Pow", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
_ENGINE_TYPE = {T.DOUBLE: T.FLOAT, T.UINT8: T.INT8}  # TensorRT reads doubles as floats, and the codes of Q as INT8


def _shown(dtype: ir.DataType) -> str:
    return {T.FLOAT: "Float", T.FLOAT16: "Half", T.BFLOAT16: "BFloat16"}.get(dtype, dtype.name.title())


def _types(facts: Facts, values: list[ir.Value | None]) -> list[tuple[ir.Value, ir.DataType]]:
    """Values whose type is known, each with its type as the engine has it."""
    return [(v, _ENGINE_TYPE.get(facts.types[v], facts.types[v])) for v in values if v is not None and v in facts.types]


def _differing(facts: Facts, values: list[ir.Value | None]) -> tuple[tuple[ir.Value, ir.DataType], tuple[ir.Value, ir.DataType]] | None:
    """The first value and the first one whose type differs from it."""
    known = _types(facts, values)
    return next(((known[0], other) for other in known[1:] if other[1] != known[0][1]), None)


def _retype(facts: Facts, node: ir.Node, values: list[ir.Value | None]) -> int:
    """Store float constants among `values` in the type of the one that is computed, if they stay finite in it."""
    known = [(v, t) for v, t in _types(facts, values) if t in _FLOATS]
    wanted = {t for v, t in known if v not in facts.constants}
    if len(wanted) != 1:
        return 0
    [goal] = wanted
    count = 0
    for value, own in known:
        array = facts.array(value) if own != goal else None
        if array is None:
            continue
        with np.errstate(over="ignore"):
            stored = array.astype(goal.numpy())
        if not np.all(np.isfinite(stored.astype(np.float32)) | ~np.isfinite(array.astype(np.float32))):
            continue
        fresh = add_initializer(facts.model.graph, f"{value.name}_{goal.name.lower()}", stored)
        for position, read in enumerate(node.inputs):
            if read is value:
                node.replace_input_with(position, fresh)
        count += 1
    return count


class _SameTypes(Rule):
    """What T01 to T04 share: operands that must be of one type; constants among them can be stored in another."""

    severity: ClassVar[Severity] = "error"
    why: ClassVar[str] = "Since TensorRT 11 every network is strongly typed: types are taken from the graph, and nothing is cast in between."
    fix: ClassVar[str] = "Put a Cast in front of the operand of the other type; --fix stores constants in the type of what they are used with."

    @abstractmethod
    def groups(self, facts: Facts) -> Iterator[tuple[ir.Node, list[ir.Value | None]]]:
        """Nodes with those of their inputs that must agree."""

    def check(self, facts: Facts) -> Iterator[Place]:
        """Groups whose known types differ."""
        for node, values in self.groups(facts):
            found = _differing(facts, values)
            if found is not None:
                (first, one), (second, other) = found
                yield Place(node, f"{first.name!r} is {_shown(one)}, {second.name!r} is {_shown(other)}", str(second.name))

    def mend(self, facts: Facts) -> int:
        """Store constants in the type of what they are used with."""
        return sum(_retype(facts, node, values) for node, values in list(self.groups(facts)) if _differing(facts, values))


@RULES.add
class ElementwiseTypes(_SameTypes):
    """Elementwise operators of two types."""

    kind: ClassVar[str] = "T01"
    title: ClassVar[str] = "operands are of different types"
    text: ClassVar[str] = "ElementWiseOperation ... must have same input types. But they are of types Half and Float."
    observed: ClassVar[str] = "Pow and Clip, whose constants are cast, are accepted. Where, Concat and PRelu are refused with texts of their own."

    def groups(self, facts: Facts) -> Iterator[tuple[ir.Node, list[ir.Value | None]]]:
        """Elementwise operators, Concat, and the two branches of Where."""
        for node in facts.standard(*_ELEMENTWISE):
            yield node, list(node.inputs[1:] if node.op_type == "Where" else node.inputs)


@RULES.add
class ConvolutionTypes(_SameTypes):
    """Convolutions of two types."""

    kind: ClassVar[str] = "T02"
    title: ClassVar[str] = "kernel or bias is of another type than the input"
    text: ClassVar[str] = "IConvolutionLayer `input` and `kernel` must be of same type. | `input` and `bias` must be of same type."

    def groups(self, facts: Facts) -> Iterator[tuple[ir.Node, list[ir.Value | None]]]:
        """All inputs of Conv and ConvTranspose."""
        for node in facts.standard("Conv", "ConvTranspose"):
            yield node, list(node.inputs)


@RULES.add
class ProductTypes(_SameTypes):
    """Matrix products of two types."""

    kind: ClassVar[str] = "T03"
    title: ClassVar[str] = "the operands of the product are of different types"
    text: ClassVar[str] = "IMatrixMultiplyLayer must have same input types."
    observed: ClassVar[str] = "A bias of another type is refused as an addition (T01's text)."

    def groups(self, facts: Facts) -> Iterator[tuple[ir.Node, list[ir.Value | None]]]:
        """All inputs of MatMul and Gemm."""
        for node in facts.standard("MatMul", "Gemm"):
            yield node, list(node.inputs)


@RULES.add
class NormalizationTypes(_SameTypes):
    """Normalizations whose parameters are of another type."""

    kind: ClassVar[str] = "T04"
    title: ClassVar[str] = "scale or bias of the normalization is of another type than its input"
    text: ClassVar[str] = "INormalizationLayer `input` and `scale` must have identical types."
    observed: ClassVar[str] = (
        "InstanceNormalization is refused with: Inputs must be either all FLOAT or all FLOAT16. BatchNormalization and RMSNormalization take FP32 parameters."
    )

    def groups(self, facts: Facts) -> Iterator[tuple[ir.Node, list[ir.Value | None]]]:
        """All inputs of layer, group and instance normalization."""
        for node in facts.standard("LayerNormalization", "GroupNormalization", "InstanceNormalization"):
            yield node, list(node.inputs)


@RULES.add
class OutputType(Rule):
    """An output that is not what it is declared as."""

    kind: ClassVar[str] = "T05"
    severity: ClassVar[Severity] = "silent"
    title: ClassVar[str] = "an output is declared as another type than is made"
    why: ClassVar[str] = "The engine's output has the type that is made; a client that was told FP32 reads FP16 bytes."
    fix: ClassVar[str] = "Put a Cast to the declared type in front of the output; --fix does so."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Outputs of the graph whose declared type differs from what their node makes."""
        for value in facts.model.graph.outputs:
            made = facts.types.get(value)
            if made is not None and value.dtype not in {None, T.UNDEFINED, made} and {made, value.dtype} <= _FLOATS and value.producer() is not None:
                assert value.dtype is not None, "asked just before"
                yield Place(value.producer(), f"declared {_shown(value.dtype)}, made {_shown(made)}", str(value.name))

    def mend(self, facts: Facts) -> int:
        """Put a Cast in front of such outputs; the output keeps its name."""
        count = 0
        for place in {p.tensor: p for p in self.check(facts)}.values():  # a value may be declared as two outputs
            node = place.node
            assert node is not None, "an output that is made has a node"
            old = next(v for v in node.outputs if v.name == place.tensor)
            declared, name = old.dtype, old.name
            assert declared is not None, "check has looked"
            cast = ir.node("Cast", [old], attributes={"to": int(declared)}, name=f"{name}_Cast")
            fresh = cast.outputs[0]
            fresh.dtype, fresh.shape = declared, old.shape
            old.dtype = facts.types[old]
            facts.model.graph.insert_after(node, cast)
            outputs = facts.model.graph.outputs
            outputs[list(outputs).index(old)] = fresh
            old.name, fresh.name = f"{name}_{facts.types[old].name.lower()}", name
            count += 1
        return count


@RULES.add
class ByteArithmetic(Rule):
    """Arithmetic on bytes."""

    kind: ClassVar[str] = "T06"
    severity: ClassVar[Severity] = "error"
    title: ClassVar[str] = "arithmetic on UINT8"
    text: ClassVar[str] = "requires inputs with type kFLOAT, kHALF, kBF16, kFP8, or kINT8, kINT32, or kINT64. But type is UInt8."
    why: ClassVar[str] = "UINT8 is a type of inputs and outputs only, for images."
    fix: ClassVar[str] = "Cast to a float first."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Elementwise operators that read UINT8 which no quantizer made."""
        for node in facts.standard(*_CODES_OPS):
            for value in node.inputs:
                made = facts.maker(value)
                if value is not None and facts.types.get(value) == T.UINT8 and (made is None or not made.quantizes):
                    yield Place(node, f"{value.name!r} is UInt8", str(value.name))
                    break
