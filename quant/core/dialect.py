"""A dialect: the form of quantized graph that one target wants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from quant.core.formats import Grid

Body = Literal["fp32", "fp16", "bf16"]


@dataclass(frozen=True)
class Dialect:
    """How an INT8 plan is written for one target.

    Args:
        integer: Operators that the target has integer kernels for, with ranges known in advance.
        dynamic: Operators that it has integer kernels for, with ranges found while running.
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
    gemm: bool = False
    opset: int = 13
    body: Body = "fp32"
    residual: bool = False
    left_operands: Grid | None = None
