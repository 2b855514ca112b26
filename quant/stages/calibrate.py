"""calibrate: model + calibration data -> calibration table, in one streaming pass of bounded memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from threading import Lock

import numpy as np
import onnx_ir as ir

from quant.core.moments import BYTES, MomentSum
from quant.core.parallel import one_thread
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
_MOMENT_BYTES = 1 << 30
"""Most that sums of second moments hold; tensors beyond it have theirs from another pass."""
_NONE: Mapping[str, int] = {}


def calibrate(
    path: Path,
    samples: Samples,
    tensors: Collection[str],
    feeding: Feeding,
    *,
    magnitudes: bool,
    digest: str,
    means: Collection[str] = (),
    moments: Mapping[str, int] = _NONE,
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
        moments: Name -> length of the last axis, of tensors whose second moments along that are wanted.

    Raises:
        CalibrationError: A tensor held a NaN or an infinity, or none of its values was ever seen.
    """
    model = read_model(path)
    inputs = {str(v.name) for v in model.graph.inputs}
    probes = add_probes(model, besides=tensors) if magnitudes else {}
    groups = _groups(moments)
    sums = {name: MomentSum(moments[name]) for name in groups[0]}
    _add_outputs(model, [name for name in {**dict.fromkeys(tensors), **sums} if name not in inputs])
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
        for name, moment in sums.items():
            moment.add(feed[name] if name in inputs else found[name])
        channels = {name: _channel_sum(feed[name] if name in inputs else found[name]) for name in averages}
        with lock:
            for name, (total, count) in channels.items():
                averages[name].add(total, count)
            for probe, tensor in probes.items():
                largest[tensor] = max(largest[tensor], float(found[probe]))
        return {name: array for name, array in found.items() if name in keep}

    with progress("calibrating", len(samples)) as advance, one_thread():
        for _position, _outputs in run_samples(collect, samples, feeding):
            advance(1)
    statistics = {name: collector.result() for name, collector in collectors.items()}
    _check(statistics)
    if magnitudes:
        largest |= {name: _largest(found) for name, found in statistics.items()}
    for group in groups[1:]:
        sums |= _moments(path, samples, {name: moments[name] for name in group}, feeding)
    return CalibrationTable(
        digest,
        samples.digest,
        len(samples),
        statistics,
        largest,
        {name: average.value() for name, average in averages.items()},
        {name: _checked(name, moment).mean() for name, moment in sums.items()},
    )


def _check(statistics: Mapping[str, TensorStatistics]) -> None:
    """Refuse tensors that were never seen, or seen to be not finite."""
    for name, found in statistics.items():
        if found.not_finite:
            hint = "look for the sample with `calibration.batch_size: 1`, and for an overflow in the model"
            raise CalibrationError(f"{found.not_finite} values of tensor {name!r} are NaN or infinite on finite inputs", hint=hint)
        if not found.count:
            raise CalibrationError(f"tensor {name!r} was never computed: no value was seen", hint="give calibration data that reaches this part of the model")


def _groups(moments: Mapping[str, int]) -> list[list[str]]:
    """Tensors whose sums of moments fit into `_MOMENT_BYTES` together, in the order of their names; at least one group."""
    groups: list[list[str]] = [[]]
    held = 0
    for name, length in sorted(moments.items()):
        size = BYTES * length * (length + 1) // 2
        if groups[-1] and held + size > _MOMENT_BYTES:
            groups.append([])
            held = 0
        groups[-1].append(name)
        held += size
    return groups


def _moments(path: Path, samples: Samples, lengths: Mapping[str, int], feeding: Feeding) -> dict[str, MomentSum]:
    """The second moments of more tensors, by a pass of their own."""
    model = read_model(path)
    inputs = {str(v.name) for v in model.graph.inputs}
    _add_outputs(model, [name for name in lengths if name not in inputs])
    runtime = Runtime(model, folder=path.parent)
    sums = {name: MomentSum(length) for name, length in lengths.items()}
    keep = {spec.name for spec in feeding.signature.outputs}

    def collect(feed: Mapping[str, Array]) -> Outputs:
        found = runtime.run(feed)
        for name, moment in sums.items():
            moment.add(feed[name] if name in inputs else found[name])
        return {name: array for name, array in found.items() if name in keep}

    with progress("calibrating", len(samples)) as advance, one_thread():
        for _position, _outputs in run_samples(collect, samples, feeding):
            advance(1)
    return sums


def _checked(name: str, moment: MomentSum) -> MomentSum:
    if moment.not_finite:
        hint = "look for the sample with `calibration.batch_size: 1`, and for an overflow in the model"
        raise CalibrationError(f"tensor {name!r} holds values that are NaN or infinite, or too large to be squared, on finite inputs", hint=hint)
    if not moment.count:
        raise CalibrationError(f"tensor {name!r} was never computed: no value was seen", hint="give calibration data that reaches this part of the model")
    return moment


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
