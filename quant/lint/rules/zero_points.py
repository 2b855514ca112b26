"""Q01, Q02, Q06, Q10: zero points and scales that a symmetric, ahead-of-time compiler cannot take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from quant.graph.model import add_initializer
from quant.lint import RULES, Place, Rule, Severity
from quant.lint.facts import Facts
from quant.lint.quantizers import Quantizer, output_type
from quant.lint.values import floats

UINT8 = ir.DataType.UINT8
_MIDDLE = 128


@RULES.add
class ZeroPointNotZero(Rule):
    """Asymmetric quantization."""

    kind: ClassVar[str] = "Q01"
    severity: ClassVar[Severity] = "error"
    title: ClassVar[str] = "the zero point is not zero"
    text: ClassVar[str] = (
        "Assertion failed: shiftIsAllZeros(zeroPoint): Non-zero zero point is not supported. Please set "
        "kENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLA to enable asymmetric quantization if it is on DLA."
    )
    why: ClassVar[str] = "TensorRT's GPU kernels multiply codes without an offset, so every zero point must be 0."
    fix: ClassVar[str] = (
        "Quantize symmetrically (signed codes, range -m..m) and calibrate again. UINT8 codes around 128 are signed codes in disguise: --fix rewrites those."
    )

    def check(self, facts: Facts) -> Iterator[Place]:
        """Stored zero points that are not all zero."""
        for q in facts.quantizers.values():
            if q.zeros is not None and q.zeros.size and np.any(floats(q.zeros) != 0) and not _second_of_pair(facts, q):
                first = floats(q.zeros).ravel()[np.flatnonzero(floats(q.zeros))[0]]
                yield Place(q.node, f"zero point is {first:g}{'' if q.zeros.size == 1 else ', among others'}", str(q.data.name))

    def mend(self, facts: Facts) -> int:
        """UINT8 codes around 128 become INT8 codes around 0, which mean the same numbers."""
        mended: set[ir.Node] = set()
        for q in facts.quantizers.values():
            if q.node in mended or not _around_the_middle(q):
                continue
            group = _readers_that_agree(facts, q) if q.quantizes else [q] if q.constant and facts.array(q.data) is not None else None
            if group is None:
                continue
            for member in group:
                _make_signed(facts, member)
                mended.add(member.node)
        return len(mended)


def _second_of_pair(facts: Facts, q: Quantizer) -> bool:
    """Whether it is a DequantizeLinear whose QuantizeLinear reads the same zero point, and is told of already."""
    first = None if q.quantizes or q.zero is None else facts.maker(q.data)
    return first is not None and first.quantizes and first.zero is q.zero


def _around_the_middle(q: Quantizer) -> bool:
    return q.codes == UINT8 and q.zeros is not None and bool(q.zeros.size) and bool(np.all(q.zeros == _MIDDLE))


def _readers_that_agree(facts: Facts, q: Quantizer) -> list[Quantizer] | None:
    """A quantizer with all that read its codes, if those are dequantizers with the same zero point."""
    readers = [facts.quantizers.get(node) for node in q.output.consumers()]
    agreeing = [r for r in readers if r is not None and not r.quantizes and r.data is q.output and _around_the_middle(r)]
    return None if q.output.is_graph_output() or not readers or len(agreeing) != len(readers) else [q, *agreeing]


def _make_signed(facts: Facts, q: Quantizer) -> None:
    graph = facts.model.graph  # the outermost, which nested ones can read
    assert q.zero is not None, "a zero point around the middle is given"
    assert q.zeros is not None, "a zero point around the middle is stored"
    if not q.quantizes and q.constant:
        codes = facts.array(q.data)
        assert codes is not None, "mend has looked"
        signed = (codes.astype(np.int16) - _MIDDLE).astype(np.int8)
        q.node.replace_input_with(0, add_initializer(graph, f"{q.data.name}_signed", signed))
    q.node.replace_input_with(2, add_initializer(graph, f"{q.zero.name}_signed", np.zeros(q.zeros.shape, np.int8)))
    if q.quantizes:
        q.output.dtype = ir.DataType.INT8


@RULES.add
class UnsignedCodes(Rule):
    """UINT8 codes without an offset, which TensorRT reads as INT8."""

    kind: ClassVar[str] = "Q02"
    severity: ClassVar[Severity] = "silent"
    title: ClassVar[str] = "codes are UINT8, and are read as INT8"
    text: ClassVar[str] = "TensorRT supports QuantizeLinear/DequantizeLinear with UINT8 zero_point only on DLA (version >= 3.16). Defaulting to INT8 instead."
    why: ClassVar[str] = "The codes 0..255 become -128..127: values above 127 steps are cut off, so the engine's numbers differ from the graph's."
    fix: ClassVar[str] = "Quantize to INT8, and write the INT8 zero point (or `output_dtype`): without both, ONNX means UINT8."
    observed: ClassVar[str] = (
        "Stored UINT8 codes are refused outright (Found unsupported input type of UINT8). A QuantizeLinear without zero point and output_dtype is "
        "taken as INT8 without a warning."
    )

    def check(self, facts: Facts) -> Iterator[Place]:
        """UINT8 zero points that are zero, stored UINT8 codes, and quantizers that leave the type open."""
        for q in facts.quantizers.values():
            if q.codes != UINT8 or (q.zeros is not None and np.any(q.zeros != 0)) or _second_of_pair(facts, q):
                continue
            name = str(q.data.name)
            if not q.quantizes and q.constant:
                yield Place(q.node, "stored codes are UINT8; TensorRT refuses them: Found unsupported input type of UINT8", name, "error")
            elif q.quantizes and q.zero is None and output_type(q.node, facts.opset) is None:
                yield Place(q.node, "no zero point and no output_dtype: ONNX makes UINT8 (0..255), TensorRT INT8 (-128..127)", name)
            elif q.zero is not None or q.quantizes:
                yield Place(q.node, "the zero point is UINT8 0: ONNX makes 0..255, TensorRT -128..127", name)


@RULES.add
class ZeroPointVolume(Rule):
    """A zero point of another size than its scale."""

    kind: ClassVar[str] = "Q06"
    severity: ClassVar[Severity] = "error"
    title: ClassVar[str] = "zero point and scale differ in size"
    text: ClassVar[str] = "Assertion failed: zeroPointSize == scaleSize: The scale and zero point must have the same volume."
    why: ClassVar[str] = "Every scale needs its own zero point, also where all are zero."
    fix: ClassVar[str] = "Give the zero point the shape of the scale; --fix does so where all are zero."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Pairs of stored shapes that differ in volume."""
        for q in facts.quantizers.values():
            zero, scale = facts.shape(q.zero), facts.shape(q.scale)
            if zero is None or scale is None or None in zero or None in scale:
                continue
            sizes = int(np.prod([d or 0 for d in zero])), int(np.prod([d or 0 for d in scale]))
            if sizes[0] != sizes[1]:
                yield Place(q.node, f"{sizes[0]} zero points for {sizes[1]} scales", str(q.data.name))

    def mend(self, facts: Facts) -> int:
        """Zero points that are all zero take the scale's shape."""
        count = 0
        for place in list(self.check(facts)):
            q = facts.quantizers[place.node] if place.node is not None else None
            if q is None or q.zeros is None or q.scales is None or np.any(floats(q.zeros) != 0) or q.zero is None:
                continue
            q.node.replace_input_with(2, add_initializer(facts.model.graph, f"{q.zero.name}_zeros", np.zeros(q.scales.shape, q.zeros.dtype)))
            count += 1
        return count


@RULES.add
class NotFixedAtBuild(Rule):
    """A zero point or a scale that is computed while the engine runs."""

    kind: ClassVar[str] = "Q10"
    severity: ClassVar[Severity] = "error"
    title: ClassVar[str] = "the zero point or the scale is not a constant"
    text: ClassVar[str] = "IQuantizeLayer/IDequantizeLayer ... has `zero_point` which is not an initializer."
    why: ClassVar[str] = "Scales become constants of a kernel. A computed zero point is refused; with a computed scale the arithmetic runs in float."
    fix: ClassVar[str] = "Calibrate, and store the scale; leave the zero point out, or store zeros."
    observed: ClassVar[str] = "A computed scale in front of a matrix product builds and runs in float; in front of a convolution the builder crashes."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Zero points and scales that depend on an input of the graph."""
        for q in facts.quantizers.values():
            if q.zero is not None and q.zero not in facts.constants and q.codes != ir.DataType.FLOAT8E4M3FN:  # FP8's is not read
                yield Place(q.node, f"zero point {q.zero.name!r} is computed", str(q.data.name))
            made_by = q.scale.producer()
            if q.scale not in facts.constants and not (made_by is not None and made_by.domain == "trt") and not _block_scale(facts, q):
                yield Place(q.node, f"scale {q.scale.name!r} is computed; this runs in float", str(q.data.name), "silent")


def _block_scale(facts: Facts, q: Quantizer) -> bool:
    """Whether the scale is itself dequantized from what a dynamic quantizer made: NVFP4's two levels."""
    inner = facts.dequantizer(q.scale)
    made_by = None if inner is None else inner.data.producer()
    return made_by is not None and made_by.domain == "trt"
