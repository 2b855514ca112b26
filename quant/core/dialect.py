"""A dialect: the form of quantized graph that one target wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from quant.core.formats import FP8, Grid, Range

Body = Literal["fp32", "fp16", "bf16"]

KNOWN_RANGES: Mapping[str, Range] = {"Softmax": Range(0.0, 1.0)}
"""Operators whose outputs lie in a range that no data can leave."""


@dataclass(frozen=True)
class Float8:
    """What a target computes in FP8 (E4M3FN).

    Args:
        operators: Operators that have kernels for it.
        largest_kernel: Most taps (height times width) of a convolution's kernel; None: any number.
        least_channels: Fewest input or output channels of a convolution.
    """

    operators: frozenset[str]
    largest_kernel: int | None = None
    least_channels: int = 1


@dataclass(frozen=True)
class Int4Form:
    """How a target reads weights of 4 bits, which share a scale in blocks along the sum of a product or along a row of a table.

    Args:
        products: Form of a matrix product: ONNX Runtime's `MatMulNBits`, or a float product behind `DequantizeLinear`.
        tables: Form of a table that rows are looked up in: ONNX Runtime's `GatherBlockQuantized`, `DequantizeLinear`, or the same
            spelled out as Cast, Mul and Reshape; None when the target has none.
        sizes: Block sizes that it has kernels for, the one to take first in front.
        pads: Whether the last block of a row may be short.
        asymmetric: Whether it knows zero points.
        accuracy_level: What ONNX Runtime multiplies in: 1 for FP32, 4 for INT8 with a scale to each block of the activations; 0 leaves it to it;
            None: 4, or 1 for a layer whose outputs INT8 harms more than the 4 bits of its weights do (`quant.stages.levels`).
        least_blocks: Fewest blocks to a row that its kernels take.
        least_outputs: Fewest outputs of a product that they take.
    """

    products: Literal["matmulnbits", "dequantize"]
    tables: Literal["gatherblockquantized", "dequantize", "multiply"] | None
    sizes: tuple[int, ...]
    pads: bool
    asymmetric: bool
    accuracy_level: int | None = 0
    least_blocks: int = 1
    least_outputs: int = 1


@dataclass(frozen=True)
class Dialect:
    """How a plan is written for one target, in INT8 unless it says otherwise.

    Args:
        integer: Operators that the target has integer kernels for, with ranges known in advance.
        dynamic: Operators that it has integer kernels for, with ranges found while running.
        dynamic_group: Values along a sum that share such a range, where the engine itself quantizes what it multiplies INT8 weights with;
            0: the graph says how it is done, and all values of a tensor share one.
        dynamic_outputs: Fewest outputs of a product for which it has such kernels.
        activations: Grid of activations.
        operands: Grid of the right operand of a product of two activations.
        left_operands: Grid of its left operand, unless that is never negative; None where that is an activation like any other.
        weights: Grid of weights, per output channel.
        chained: Operators that get Q/DQ behind them, so that neighbours compute in integers; a weighted operator always,
            any other when all its float inputs are quantized.
        transparent: Operators among `chained` that only move values: they keep the scale of their input.
        melting: Activation functions that melt into the operator before them; Q/DQ stands behind them instead.
        integer_bias: Operators whose bias is written as INT32 codes.
        gemm: Whether a matrix product of two axes becomes a Gemm when something is added to it, with a constant row as its bias
            (an engine that merges them by itself, but only in float, would else compute that layer in float).
        opset: Least ONNX opset of such a graph.
        body: What the graph computes the rest in, where the engine takes types only from the graph; elsewhere the engine sees to it.
        residual: Whether an Add that joins a convolution's output with a tensor that is quantized anyhow reads that one quantized.
        known: Operators whose outputs have a range that is known beforehand (`KNOWN_RANGES`) and is written instead of what calibration saw.
        fp8: What the target computes in FP8; None: nothing, not even by emulation.
        int4: How the target reads weights of 4 bits; None: not at all.
    """

    integer: frozenset[str]
    dynamic: frozenset[str]
    activations: Grid
    operands: Grid
    weights: Grid
    chained: frozenset[str]
    transparent: frozenset[str]
    melting: frozenset[str]
    integer_bias: frozenset[str]
    dynamic_group: int = 0
    dynamic_outputs: int = 1
    gemm: bool = False
    opset: int = 13
    body: Body = "fp32"
    residual: bool = False
    left_operands: Grid | None = None
    int4: Int4Form | None = None
    known: frozenset[str] = frozenset()
    fp8: Float8 | None = None

    @property
    def in_fp8(self) -> Dialect:
        """The dialect of an FP8 plan: Q/DQ in front of what is computed in FP8 and nowhere else, every bias in float."""
        nothing: frozenset[str] = frozenset()
        return replace(
            self,
            integer=self.fp8.operators if self.fp8 is not None else nothing,
            dynamic=nothing,
            activations=FP8,
            operands=FP8,
            left_operands=None,
            weights=FP8,
            chained=nothing,
            transparent=nothing,
            melting=nothing,
            integer_bias=nothing,
            gemm=False,
            opset=max(self.opset, FP8.encoding.opset),
            known=frozenset(KNOWN_RANGES),
        )
