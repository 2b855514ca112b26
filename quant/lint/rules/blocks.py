"""Q11, Q11b, Q12, Q13, Q17, Q22: blocks of values that share a scale, and codes of four bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from quant.graph.model import add_initializer
from quant.lint import RULES, Place, Rule, Severity
from quant.lint.facts import Facts
from quant.lint.quantizers import Quantizer
from quant.lint.values import MATRIX, integer

FOUR_BITS = frozenset({ir.DataType.INT4, ir.DataType.UINT4, ir.DataType.FLOAT4E2M1})
_BLOCKED = frozenset({ir.DataType.INT4, ir.DataType.FLOAT4E2M1})
_TESTED_BLOCKS = (64, 128)
_BLOCK_OF_OP = {
    "TRT_FP4DynamicQuantize": (16, "Assertion failed: blockSizeOnnx == 16: Only block_size == 16 is supported for now."),
    "TRT_MXFP8DynamicQuantize": (32, "Assertion failed: blockSize == 32: Only block_size 32 is supported."),
    "TRT_MXFP8QuantizeLinear": (32, "Assertion failed: blockSize == 32: Only block_size 32 is supported."),
    "TRT_MXFP8DequantizeLinear": (32, "Assertion failed: blockSize == 32: Only block_size 32 is supported."),
}


def block_scales(q: Quantizer) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Shapes of data and scale of a quantizer by blocks, if both are fixed."""
    shape, scale = q.shape, None if q.granularity != "block" else q.scale.shape if q.scale.const_value is None else q.scale.const_value.shape
    if shape is None or scale is None or any(d is None for d in shape) or not all(isinstance(d, int) for d in scale):
        return None
    return tuple(int(d) for d in shape if d is not None), tuple(int(d) for d in scale if isinstance(d, int))


@RULES.add
class BlockShape(Rule):
    """Scales that do not tile the data."""

    kind: ClassVar[str] = "Q11"
    severity: ClassVar[Severity] = "error"
    title: ClassVar[str] = "the blocks do not tile the tensor"
    text: ClassVar[str] = (
        "only the quantization axis may be blocked. | The quantization axis must divide into whole blocks. | "
        "The blocking dimension must be the last or second to last dimension"
    )
    why: ClassVar[str] = "Blocks lie along one of the last two axes, which they must divide; along all others there is a scale for every index."
    fix: ClassVar[str] = "Pad the weight to a multiple of the block, choose a block that divides it, or leave the layer in floating point."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Block scales of a wrong rank, of a wrong length, or along a wrong axis."""
        for q in facts.quantizers.values():
            known = block_scales(q)
            if known is None:
                continue
            shape, scale = known
            detail = _misfit(shape, scale, q.axis)
            if detail:
                yield Place(q.node, f"{detail} (data {_x(shape)}, scale {_x(scale)}, axis {q.axis})", str(q.data.name))


def _x(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _misfit(shape: tuple[int, ...], scale: tuple[int, ...], axis: int) -> str:
    """What is wrong with block scales of that shape; empty when nothing is."""
    if len(scale) != len(shape):
        return f"the scale has {len(scale)} axes, the data {len(shape)}"
    if not -len(shape) <= axis < len(shape):
        return "there is no such axis"
    axis %= len(shape)
    for i, (d, s) in enumerate(zip(shape, scale, strict=True)):
        if i != axis and d != s:
            return f"axis {i} is blocked too"
    if scale[axis] == 0 or shape[axis] % scale[axis]:
        return f"{shape[axis]} values do not divide into {scale[axis]} blocks"
    return "the blocked axis is not one of the last two" if axis < len(shape) - 2 and shape != scale else ""


@RULES.add
class BlockSizeIgnored(Rule):
    """A `block_size` that is not what the shapes say."""

    kind: ClassVar[str] = "Q11b"
    severity: ClassVar[Severity] = "silent"
    title: ClassVar[str] = "block_size and the number of scales do not agree"
    why: ClassVar[str] = (
        "TensorRT does not read block_size: it divides the axis evenly by the number of scales. ONNX's last block may be short, so the numbers differ."
    )
    fix: ClassVar[str] = "Pad the axis to a multiple of block_size, so that both readings are the same."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Axes that divide evenly into another block size than is written."""
        for q in facts.quantizers.values():
            known = block_scales(q)
            if known is None or not q.block or _misfit(*known, q.axis):
                continue
            (shape, scale), axis = known, q.axis % len(known[0])
            used = shape[axis] // scale[axis]
            if used != q.block and scale[axis] > 1:  # one block is the same in both readings
                yield Place(q.node, f"block_size is {q.block}; {shape[axis]} values with {scale[axis]} scales are read as blocks of {used}", str(q.data.name))


@RULES.add
class BlockOfWideCodes(Rule):
    """Blocks of codes for which there is no block kernel."""

    kind: ClassVar[str] = "Q12"
    severity: ClassVar[Severity] = "silent"
    title: ClassVar[str] = "blocks of 8-bit codes are not computed in 8 bits"
    text: ClassVar[str] = "Block quantization is not supported for DataType"
    why: ClassVar[str] = "Block kernels exist for INT4 and FP4 (and MXFP8). Other weights with block scales are expanded to floats first, every time."
    fix: ClassVar[str] = "Use a scale per output channel for INT8 and FP8, or INT4 for blocks."
    observed: ClassVar[str] = "INT8 and FP8 blocks are accepted; a kernel of its own expands the weight to FP16."

    def check(self, facts: Facts) -> Iterator[Place]:
        """Block quantizers of INT8 or FP8 codes of a tensor that is itself no scale."""
        for q in facts.quantizers.values():
            if q.granularity == "block" and q.codes in {ir.DataType.INT8, ir.DataType.FLOAT8E4M3FN}:
                yield Place(q.node, f"blocks of {q.codes.name}", str(q.data.name))


@RULES.add
class OddFourBits(Rule):
    """An odd number of half bytes."""

    kind: ClassVar[str] = "Q13"
    severity: ClassVar[Severity] = "error"
    title: ClassVar[str] = "the number of 4-bit codes is odd"
    text: ClassVar[str] = "Sub-byte quantization with odd tensor volume is not supported."
    why: ClassVar[str] = "Two 4-bit codes share a byte."
    fix: ClassVar[str] = "Pad the tensor to an even number of elements, or leave it in floating point."

    def check(self, facts: Facts) -> Iterator[Place]:
        """4-bit tensors whose fixed shape has an odd number of elements."""
        for q in facts.quantizers.values():
            if q.codes in FOUR_BITS and q.shape is not None and None not in q.shape and int(np.prod([d or 0 for d in q.shape])) % 2:
                yield Place(q.node, f"{int(np.prod([d or 0 for d in q.shape]))} codes of {q.codes.name}", str(q.data.name))


@RULES.add
class FixedBlockSize(Rule):
    """A format that has one block size only."""

    kind: ClassVar[str] = "Q17"
    severity: ClassVar[Severity] = "error"
    title: ClassVar[str] = "the format has another block size"
    text: ClassVar[str] = "Assertion failed: blockSizeOnnx == 16: Only block_size == 16 is supported for now."
    why: ClassVar[str] = "NVFP4 is blocks of 16 values, MXFP8 blocks of 32; the hardware has no others."
    fix: ClassVar[str] = "Quantize again with the format's own block size."
    observed: ClassVar[str] = (
        "The dynamic quantizers refuse other sizes. A stored FP4 weight with blocks of 32 is accepted, and expanded to FP16 by a kernel of its own."
    )

    def check(self, facts: Facts) -> Iterator[Place]:
        """TensorRT's own block quantizers, and FP4 weights, of other block sizes."""
        for node in facts.nodes:
            wanted = _BLOCK_OF_OP.get(node.op_type) if node.domain == "trt" else None
            if wanted is not None and integer(node, "block_size", wanted[0]) != wanted[0]:
                yield Place(node, f"block_size is {integer(node, 'block_size', 0)}, must be {wanted[0]}: {wanted[1]}")
        for q in facts.quantizers.values():
            known = block_scales(q) if q.codes == ir.DataType.FLOAT4E2M1 else None
            if known is None or _misfit(*known, q.axis):
                continue
            (shape, scale), axis = known, q.axis % len(known[0])
            if shape[axis] // scale[axis] != _BLOCK_OF_OP["TRT_FP4DynamicQuantize"][0]:
                yield Place(q.node, f"an FP4 weight in blocks of {shape[axis] // scale[axis]} is expanded to floats", str(q.data.name), "silent")


@RULES.add
class Int4Granularity(Rule):
    """INT4 weights whose scales no fused kernel takes."""

    kind: ClassVar[str] = "Q22"
    severity: ClassVar[Severity] = "silent"
    title: ClassVar[str] = "INT4 weights are not in blocks of 64 or 128, two at least"
    why: ClassVar[str] = (
        "The fused kernel reads INT4 in blocks of 64 or 128, more than one of them. Otherwise a kernel of its own expands the weight each time."
    )
    fix: ClassVar[str] = "Use blocks of 128 (or 64) along the axis that is summed over; --fix repeats coarser scales for each block, which changes no value."
    observed: ClassVar[str] = (
        "Blocks of 16, 32 and 256 are fused too. One block along the whole axis, one scale per channel or per tensor are expanded; the latter two with a "
        "scale that is not FP16 in an FP16 graph do not build at all."
    )

    def check(self, facts: Facts) -> Iterator[Place]:
        """INT4 weights of layers with one scale, one per channel, a single block, or blocks of other sizes."""
        for layer in facts.layers:
            q = layer.right.dequantizer
            if q is None or q.codes != ir.DataType.INT4 or not layer.right.constant:
                continue
            name = str(q.data.name)
            if q.granularity in {"tensor", "channel"}:
                mixed = facts.types.get(q.scale) != facts.types.get(q.output)
                detail = f"one scale per {q.granularity}" + (
                    ", of another type than what is made of it; TensorRT refuses this: Could not infer output types for operation" if mixed else ""
                )
                yield Place(layer.node, detail, name, "error" if mixed else None)
                continue
            known = block_scales(q)
            if known is None or _misfit(*known, q.axis):
                continue
            length, blocks = known[0][q.axis % len(known[0])], known[1][q.axis % len(known[0])]
            if blocks == 1:
                yield Place(layer.node, f"one block of {length} along the whole axis", name)
            elif length // blocks not in _TESTED_BLOCKS:
                yield Place(layer.node, f"blocks of {length // blocks}", name, "warning")

    def mend(self, facts: Facts) -> int:
        """Repeat scales per tensor or per output channel of a MatMul's weight, or of one block, for each block of 128 or 64."""
        count = 0
        for layer in facts.layers:
            q = layer.right.dequantizer
            plain = q is not None and q.codes == ir.DataType.INT4 and q.zero is None and layer.node.op_type == "MatMul" and not layer.right.between
            if q is None or not plain or q.scales is None or q.shape is None or len(q.shape) != MATRIX or not _is_coarse(q):
                continue
            rows, columns = q.shape
            size = next((b for b in reversed(_TESTED_BLOCKS) if rows and rows % b == 0 and rows > b), None)
            if size is None or rows is None or columns is None:
                continue
            repeated = np.broadcast_to(q.scales.reshape(1, -1), (rows // size, columns)).copy()
            q.node.replace_input_with(1, add_initializer(facts.model.graph, f"{q.scale.name}_blocks", repeated))
            q.node.attributes.add(ir.AttrInt64("axis", 0))
            q.node.attributes.add(ir.AttrInt64("block_size", size))
            count += 1
        return count


def _is_coarse(q: Quantizer) -> bool:
    """Whether a scale of a matrix's weight holds for all that is summed over: one for all, one for each output, or one block of each output."""
    if q.granularity == "block":
        known = block_scales(q)
        return known is not None and not _misfit(*known, q.axis) and q.positive_axis == 0 and known[1][0] == 1
    return not q.block and (q.granularity == "tensor" or (q.granularity == "channel" and q.positive_axis == 1))
