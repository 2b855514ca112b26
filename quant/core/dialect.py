"""A dialect: the form of quantized graph that one target wants."""

from __future__ import annotations

from dataclasses import dataclass

from quant.core.formats import Grid


@dataclass(frozen=True)
class Dialect:
    """How an INT8 plan is written for one target.

    Args:
        integer: Operators that the target has integer kernels for, with ranges known in advance.
        dynamic: Operators that it has integer kernels for, with ranges found while running.
        activations: Grid of activations.
        operands: Grid of the right operand of a product of two activations.
        weights: Grid of weights, per output channel.
        chained: Operators that get Q/DQ behind them, so that neighbours compute in integers; a weighted operator always,
            any other when all its float inputs are quantized.
        transparent: Operators among `chained` that only move values: they keep the scale of their input.
        melting: Activation functions that melt into the operator before them; Q/DQ stands behind them instead.
        integer_bias: Operators whose bias is written as INT32 codes.
        gemm: Whether a matrix product of two axes and the bias added to it become one Gemm (an engine that merges them by
            itself, but only in float, would else compute that layer in float).
        opset: Least ONNX opset of such a graph.
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
