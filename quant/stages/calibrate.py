"""calibrate: model + calibration data -> calibration table, in one streaming pass of bounded memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from threading import Lock

import numpy as np
import onnx_ir as ir

from quant.core.progress import progress
from quant.core.statistics import DENSE_BYTES, Collector, TensorStatistics
from quant.core.sums import ExactSum
from quant.core.table import CalibrationTable
from quant.data.samples import Samples
from quant.errors import CalibrationError
from quant.graph.fp16 import STAND_IN_FOR_INFINITY
from quant.graph.model import read_model
from quant.graph.probes import add_probes
from quant.graph.runtime import Runtime
from quant.stages.running import Array, Feeding, Outputs, run_samples

_BUFFER_BYTES = 256 << 20


def calibrate(
    path: Path, samples: Samples, tensors: Collection[str], feeding: Feeding, *, magnitudes: bool, digest: str, means: Collection[str] = ()
) -> CalibrationTable:
    """Run the FP32 model over `samples` once and keep statistics of `tensors`.

    Args:
        path: The FP32 model.
        samples: Calibration samples.
        tensors: Names of the tensors whose histograms are wanted.
        feeding: How samples go in.
        magnitudes: Whether the largest magnitude of every float tensor is wanted too.
        digest: Digest of the model, kept in the table.
        means: Names, among `tensors`, whose mean in each slice along axis 1 is wanted.

    Raises:
        CalibrationError: A tensor held a NaN or an infinity, or none of its values was ever seen.
    """
    model = read_model(path)
    inputs = {str(v.name) for v in model.graph.inputs}
    probes = add_probes(model, besides=tensors) if magnitudes else {}
    _add_outputs(model, [name for name in tensors if name not in inputs])
    runtime = Runtime(model, folder=path.parent)
    collectors = _collectors(tensors)
    largest = dict.fromkeys(probes.values(), 0.0)
    averages = {name: _ChannelMean() for name in sorted(means)}

    keep = {spec.name for spec in feeding.signature.outputs}
    lock = Lock()

    def collect(feed: Mapping[str, Array]) -> Outputs:
        found = runtime.run(feed)
        for name, collector in collectors.items():
            collector.add(feed[name] if name in inputs else found[name])
        sums = {name: _channel_sum(feed[name] if name in inputs else found[name]) for name in averages}
        with lock:
            for name, (total, count) in sums.items():
                averages[name].add(total, count)
            for probe, tensor in probes.items():
                largest[tensor] = max(largest[tensor], float(found[probe]))
        return {name: array for name, array in found.items() if name in keep}

    with progress("calibrating", len(samples)) as advance:
        for _position, _outputs in run_samples(collect, samples, feeding):
            advance(1)
    statistics = {name: collector.result() for name, collector in collectors.items()}
    for name, found in statistics.items():
        if found.not_finite:
            hint = "look for the sample with `calibration.batch_size: 1`, and for an overflow in the model"
            raise CalibrationError(f"{found.not_finite} values of tensor {name!r} are NaN or infinite on finite inputs", hint=hint)
        if not found.count:
            raise CalibrationError(f"tensor {name!r} was never computed: no value was seen", hint="give calibration data that reaches this part of the model")
    if magnitudes:
        largest |= {name: _largest(found) for name, found in statistics.items()}
    return CalibrationTable(digest, samples.digest, len(samples), statistics, largest, {name: average.value() for name, average in averages.items()})


class _ChannelMean:
    """The mean of each slice along axis 1, the same in whatever order batches arrive."""

    def __init__(self) -> None:
        self._sum: ExactSum | None = None
        self._count = 0

    def add(self, total: Array, count: int) -> None:
        if np.isfinite(total).all():  # what is not finite is told, with its tensor, when the pass is over
            self._sum = self._sum or ExactSum(total.size)
            self._sum.add(total)
            self._count += count

    def value(self) -> Array:
        return self._sum.value() / self._count if self._sum is not None else np.zeros(0)


def _channel_sum(array: Array) -> tuple[Array, int]:
    """Sum of each slice along axis 1, float64 `[channels]`, and the number of values in a slice."""
    others = tuple(axis for axis in range(array.ndim) if axis != 1)
    return array.sum(axis=others, dtype=np.float64), array.size // array.shape[1]


def _collectors(tensors: Collection[str]) -> dict[str, Collector]:
    """One for each tensor; what they hold beside their results stays within `_BUFFER_BYTES`, whatever their number."""
    share = _BUFFER_BYTES // max(1, len(tensors))
    dense = share // 2 >= DENSE_BYTES
    pending = max(1 << 12, min(1 << 19, (share - DENSE_BYTES * dense) // 4))
    return {name: Collector(pending=pending, dense=dense) for name in tensors}


def _add_outputs(model: ir.Model, names: Collection[str]) -> None:
    values = {str(v.name): v for node in model.graph for v in node.outputs}
    present = {v.name for v in model.graph.outputs}
    model.graph.outputs.extend(values[name] for name in names if name not in present)


def _largest(found: TensorStatistics) -> float:
    """The largest magnitude below stand-ins for infinity: exact where there are none, else within a bin of the histogram."""
    if found.magnitude < STAND_IN_FOR_INFINITY:
        return found.magnitude
    edges = np.abs(np.concatenate([found.bins.low, found.bins.high]))
    return float(edges[edges < STAND_IN_FOR_INFINITY].max(initial=0.0))
