"""One layer under the glass: what its weights and inputs hold, what each calibrator would make of that, and which channels and samples stand out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrators import CALIBRATORS
from quant.core.formats import GRIDS, INT8, Grid, slice_extremes
from quant.core.protocols import Calibrator
from quant.core.statistics import TensorStatistics
from quant.data.span import Span
from quant.engine.mixing.ground import FLOAT
from quant.engine.mixing.study import Study
from quant.errors import CalibrationError
from quant.graph.layers import FLOAT32, Layer, find_layers
from quant.graph.model import constant, read_model
from quant.graph.probes import add_outputs
from quant.graph.runtime import Runtime
from quant.stages.agree import feeds_of

_BINS = 80
_MOST = 5
_SAMPLES = 32
Floats = npt.NDArray[Any]


@dataclass(frozen=True)
class Histogram:
    """Values counted in cells of one width.

    Args:
        edges: The ends of the cells, one more than there are counts.
        counts: Values in each.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Choice:
    """What a calibrator makes of a tensor.

    Args:
        calibrator: Its kind.
        low: Lower end of the range.
        high: Upper end.
        clipped: Share of the values seen that lie outside.
        used: Whether it is the recipe's.
    """

    calibrator: str
    low: float
    high: float
    clipped: float
    used: bool


@dataclass(frozen=True)
class Channel:
    """A channel that stands out.

    Args:
        number: Its place along the channel axis.
        magnitude: Its largest magnitude.
        over: That over the median of all channels; infinite where more than half are zero.
        error: Squared rounding error of its weights as a share of their square, with a scale of its own; None of activations.
    """

    number: int
    magnitude: float
    over: float
    error: float | None = None


@dataclass(frozen=True)
class Outlier:
    """A sample that reaches far.

    Args:
        position: Its position among the search samples.
        magnitude: The largest magnitude that it puts into the layer.
    """

    position: int
    magnitude: float


@dataclass(frozen=True)
class Weights:
    """What a layer multiplies by."""

    shape: tuple[int, ...]
    histogram: Histogram
    channels: tuple[Channel, ...]


@dataclass(frozen=True)
class Input:
    """A tensor that a layer reads.

    Args:
        tensor: Its name.
        samples: On how many samples it was seen.
        histogram: What it held.
        choices: What each calibrator makes of it.
        channels: The farthest channels.
        outliers: The farthest samples.
    """

    tensor: str
    samples: int
    histogram: Histogram
    choices: tuple[Choice, ...]
    channels: tuple[Channel, ...]
    outliers: tuple[Outlier, ...]


@dataclass(frozen=True)
class LayerView:
    """A layer under the glass."""

    layer: str
    op: str
    weights: Weights | None
    inputs: tuple[Input, ...]


def look(study: Study, name: str, *, number_format: str = FLOAT, samples: int = _SAMPLES) -> LayerView:
    """Look at a layer, in the model as it is quantized (after its transforms).

    Args:
        study: The plans.
        name: The layer.
        number_format: The format that weights are judged in; int8 for a float one.
        samples: How many search samples are run, at most, for channels and outliers.

    Raises:
        ModelError: The model cannot be run.
    """
    base = study.ground.base.path
    layer = next(one for one in find_layers(read_model(base)) if one.name == name)
    tensors = [v for at in layer.activations if (v := layer.node.inputs[at]) is not None and v.dtype == FLOAT32]
    seen = _watched(study, [str(v.name) for v in tensors], samples)
    inputs = tuple(_input(study, str(v.name), seen[str(v.name)], _has_channels(layer)) for v in tensors)
    return LayerView(name, layer.op, _weights(layer, GRIDS.get(number_format, INT8)), inputs)


def _weights(layer: Layer, grid: Grid) -> Weights | None:
    values = None if layer.weight is None else constant(layer.node.inputs[layer.weight])
    if values is None or values.size == 0:
        return None
    values = values.astype(np.float32)
    return Weights(tuple(values.shape), histogram_of(TensorStatistics.of(values)), _weight_channels(values, layer.channel_axis, grid))


def _weight_channels(values: Floats, axis: int | None, grid: Grid) -> tuple[Channel, ...]:
    """The channels whose rounding loses most."""
    if axis is None:
        return ()
    low, high = slice_extremes(values, axis)
    params = grid.params(low, high)
    wrong = np.square(grid.dequantize(grid.quantize(values, params, axis), params, axis) - values, dtype=np.float64)
    others = tuple(a for a in range(values.ndim) if a != axis % values.ndim)
    power = np.square(values, dtype=np.float64).sum(axis=others)
    error = np.divide(wrong.sum(axis=others), power, out=np.zeros_like(power), where=power > 0)
    return _farthest(np.maximum(np.abs(low), np.abs(high)), error)


def _farthest(magnitudes: Floats, error: Floats | None = None) -> tuple[Channel, ...]:
    """The channels with the largest error, or of the largest magnitude."""
    middle = float(np.median(magnitudes))
    order = np.argsort(-(magnitudes if error is None else error), kind="stable")[:_MOST]
    return tuple(
        Channel(int(n), float(magnitudes[n]), float(magnitudes[n]) / middle if middle > 0 else float("inf"), None if error is None else float(error[n]))
        for n in order
    )


@dataclass
class _Seen:
    """What some samples put into a tensor."""

    statistics: TensorStatistics
    peaks: list[float]
    channels: Floats | None


def _watched(study: Study, tensors: Sequence[str], most: int) -> dict[str, _Seen]:
    """Run the model on the first search samples, and watch `tensors`."""
    path, workshop = study.ground.base.path, study.workshop
    model = read_model(path)
    given = {str(v.name) for v in model.graph.inputs}
    add_outputs(model, [name for name in dict.fromkeys(tensors) if name not in given])
    runtime = Runtime(model, folder=path.parent)
    samples = study.closing.search.samples
    feeding = replace(workshop.prepared.feeding(workshop.bound, 1), batch_size=1)
    seen = {name: _Seen(TensorStatistics(), [], None) for name in tensors}
    for position in range(min(most, len(samples))):
        peaks = dict.fromkeys(tensors, 0.0)
        for feed in feeds_of(Span(samples, position, position + 1), feeding, runtime.run, most=1):
            outputs = runtime.run(feed)
            for name in tensors:
                peaks[name] = max(peaks[name], _add(seen[name], np.asarray(feed[name] if name in given else outputs[name])))
        for name, peak in peaks.items():
            seen[name].peaks.append(peak)
    return seen


def _add(seen: _Seen, array: Floats) -> float:
    """Add what a feed put there; its largest magnitude."""
    seen.statistics = seen.statistics.merge(TensorStatistics.of(array))
    axis = 1 if array.ndim == 4 else array.ndim - 1  # noqa: PLR2004 - images have their channels behind the batch
    if array.ndim > 0 and array.size:
        peaks = np.abs(array).max(axis=tuple(a for a in range(array.ndim) if a != axis))
        alike = seen.channels is None or seen.channels.shape == peaks.shape
        seen.channels = (peaks if seen.channels is None else np.maximum(seen.channels, peaks)) if alike else None
    return float(np.abs(array).max()) if array.size else 0.0


def _has_channels(layer: Layer) -> bool:
    """Whether what it reads has channels that stay in their place from sample to sample: of a product of two activations, none is known to."""
    return layer.weight is not None


def _input(study: Study, tensor: str, seen: _Seen, has_channels: bool) -> Input:  # noqa: FBT001 - of one place alone
    known = study.ground.table.statistics.get(tensor)
    from_table = known is not None and known.codes.size > 0
    statistics = known if known is not None and from_table else seen.statistics
    order = sorted(range(len(seen.peaks)), key=lambda n: -seen.peaks[n])[:_MOST]
    return Input(
        tensor,
        study.ground.table.samples if from_table else len(seen.peaks),
        histogram_of(statistics),
        choices_of(statistics, _grid(study, tensor), study.workshop.bound.calibrator),
        _farthest(seen.channels) if has_channels and seen.channels is not None and seen.channels.size > 1 else (),
        tuple(Outlier(n, seen.peaks[n]) for n in order),
    )


def _grid(study: Study, tensor: str) -> Grid:
    """The grid that a scheme of these plans writes the tensor in; int8 where none wants its range."""
    ground = study.ground
    model = read_model(ground.base.path)
    for number_format, title in ground.titles.items():
        needs = study.workshop.bound.schemes[title].needs(model, ground.plans[number_format], ground.engine.dialect)
        if tensor in needs.ranges:
            return needs.ranges[tensor]
    return INT8


def choices_of(statistics: TensorStatistics, grid: Grid, used: Calibrator, make: Callable[[str], Calibrator] = CALIBRATORS.make) -> tuple[Choice, ...]:
    """What every calibrator makes of a tensor; those that nothing can be made by are left out.

    Args:
        statistics: What was seen of it.
        grid: The grid that will write it.
        used: The recipe's calibrator, with its options.
        make: Makes a calibrator by its kind.

    Example:
        >>> seen = TensorStatistics.of(np.float32([-1, 0, 3]))
        >>> found = {c.calibrator: c for c in choices_of(seen, INT8, CALIBRATORS.make("minmax"))}
        >>> found["minmax"].low, found["minmax"].high, found["minmax"].clipped, found["minmax"].used
        (-1.0, 3.0, 0.0, True)
    """
    found = []
    for kind in CALIBRATORS.kinds():
        try:
            chosen = (used if kind == used.kind else make(kind)).range(statistics, grid)
        except CalibrationError:
            continue
        bins = statistics.bins
        outside = int(bins.counts[(bins.centers < chosen.low) | (bins.centers > chosen.high)].sum())
        found.append(Choice(kind, float(chosen.low), float(chosen.high), outside / max(statistics.count, 1), kind == used.kind))
    return tuple(found)


def histogram_of(statistics: TensorStatistics, bins: int = _BINS) -> Histogram:
    """The values seen, counted in cells of one width from the smallest to the largest.

    Example:
        >>> histogram_of(TensorStatistics.of(np.float32([0, 0, 1, 4])), bins=4)
        Histogram(edges=(0.0, 1.0, 2.0, 3.0, 4.0), counts=(2, 1, 0, 1))
    """
    low, high = statistics.minimum, statistics.maximum
    if high <= low:
        high = low + 1.0
    counts, edges = np.histogram(statistics.bins.centers, bins=bins, range=(low, high), weights=statistics.bins.counts)
    return Histogram(tuple(map(float, edges)), tuple(round(c) for c in counts))
