"""What it takes to bring a tensor into the codes of INT8 and back, measured: a quantizer by itself, in the engine, at a few sizes.

In a model such a kernel may be seen, or it may not: where all layers are quantized nothing leaves codes, and what enters them is often part of another kernel.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from quant.core.costs import ConversionTimes, EngineProfile
from quant.core.dialect import Dialect
from quant.targets import Profiles, Target

SIZES = (1_000, 30_000, 1_000_000)
_SCALE = 1 / 32
_TITLE = "changes"


def change_times(engine: Target, *, threads: int, runs: int) -> ConversionTimes:
    """Milliseconds into INT8 and out of it, by the engine's own profiler, at `SIZES` elements.

    Args:
        engine: An engine that tells what its kernels take.
        threads: Threads of one run.
        runs: How often each is run.

    Raises:
        TargetError: The engine refuses such a graph, or does not tell.
    """
    return ConversionTimes(enter=_times(engine, into=True, threads=threads, runs=runs), leave=_times(engine, into=False, threads=threads, runs=runs))


def _times(engine: Target, *, into: bool, threads: int, runs: int) -> tuple[tuple[int, float], ...]:
    found = []
    for size in SIZES:
        with tempfile.TemporaryDirectory(prefix="quant-change-") as scratch:
            artifact = engine.export(change(engine.dialect, size, into=into), Path(scratch), scheme=_TITLE)
            values = np.linspace(-2.0, 2.0, size, dtype=np.float32)
            feed = values if into else _codes(values, engine.dialect)
            assert isinstance(engine, Profiles)
            told: EngineProfile = engine.profile(artifact, Path(scratch), [{"x": feed[None]}], {}, threads=threads, runs=runs)
            found.append((size, min(told.kernel_ms, told.total_ms)))
    return tuple(found)


def change(dialect: Dialect, size: int, *, into: bool) -> ir.Model:
    """A graph that quantizes `x`, or dequantizes it, and does nothing else."""
    codes = ir.DataType.INT8 if dialect.activations.low < 0 else ir.DataType.UINT8
    zero = 0 if codes == ir.DataType.INT8 else 1 << 7
    shape = ir.Shape([1, size])
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT if into else codes), shape=shape)
    scale = _constant("scale", np.float32(_SCALE))
    point = _constant("zero", np.array(zero, np.int8 if codes == ir.DataType.INT8 else np.uint8))
    node = ir.node("QuantizeLinear" if into else "DequantizeLinear", [x, scale, point], name="change")
    y = node.outputs[0]
    y.name, y.type, y.shape = "y", ir.TensorType(codes if into else ir.DataType.FLOAT), shape
    graph = ir.Graph([x], [y], nodes=[node], initializers=[scale, point], opset_imports={"": max(dialect.opset, 13)}, name=_TITLE)
    return ir.Model(graph, ir_version=10)


def _codes(values: np.ndarray[Any, np.dtype[np.float32]], dialect: Dialect) -> np.ndarray[Any, np.dtype[Any]]:
    signed = dialect.activations.low < 0
    rounded = np.rint(values / np.float32(_SCALE)) + (0 if signed else 1 << 7)
    codes: np.ndarray[Any, np.dtype[Any]] = rounded.astype(np.int8 if signed else np.uint8)
    return codes


def _constant(name: str, value: Any) -> ir.Value:
    tensor = ir.tensor(np.asarray(value), name=name)
    return ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape([]), const_value=tensor)
