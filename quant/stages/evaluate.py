"""evaluate: an artifact (or the FP32 baseline) over the evaluation samples -> records of every metric, and fidelity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from evaluators.fidelity import Fidelity, FidelityMeter
from quant.core.progress import progress
from quant.core.protocols import Metric, Records
from quant.data.samples import Samples
from quant.data.span import Span
from quant.errors import DataError
from quant.stages.running import Array, Feeding, Outputs, Run, run_samples

_KEEP_BYTES = 512 << 20


@dataclass(frozen=True)
class Predictions:
    """What a model said about the evaluation samples.

    Args:
        records: Name of a metric -> its records, `[rows, columns]`, in the samples' order.
        groups: Name of a metric -> the sample of each row, `[rows]`.
        seen: Number of samples that were run, the first of all; None: all.
        repeats: How often each of them was run, its rows one run after the other.
    """

    records: Mapping[str, Records]
    groups: Mapping[str, npt.NDArray[np.int64]]
    seen: int | None = None
    repeats: int = 1

    def save(self, path: Path) -> None:
        """Write to one `.npz` file."""
        arrays = {f"records:{k}": v for k, v in self.records.items()} | {f"groups:{k}": v for k, v in self.groups.items()}
        told = {} if self.seen is None else {"seen": np.array(self.seen)}
        told |= {"repeats": np.array(self.repeats)} if self.repeats > 1 else {}
        np.savez(path, allow_pickle=False, **arrays, **told)

    @classmethod
    def load(cls, path: Path) -> Predictions:
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            parts = {kind: {k.split(":", 1)[1]: arrays[k] for k in arrays.files if k.startswith(f"{kind}:")} for kind in ("records", "groups")}
            seen, repeats = (int(arrays[k]) if k in arrays.files else None for k in ("seen", "repeats"))
        return cls(parts["records"], parts["groups"], seen, repeats or 1)

    def repeated(self, times: int) -> Predictions:
        """The same with the rows of each sample so many times, to go with predictions that were repeated."""
        order = {name: _repeated(groups, times) for name, groups in self.groups.items()}
        records = {name: found[order[name]] for name, found in self.records.items()}
        return Predictions(records, {name: found[order[name]] for name, found in self.groups.items()}, self.seen, times)


def _repeated(groups: npt.NDArray[np.int64], times: int) -> npt.NDArray[np.int64]:
    """Rows in an order in which those of each sample, which lie together, come so many times one after the other."""
    starts = np.flatnonzero(np.append(True, groups[1:] != groups[:-1])) if len(groups) else np.zeros(0, np.int64)
    blocks = np.split(np.arange(len(groups)), starts[1:])
    return np.concatenate([np.tile(block, times) for block in blocks])


@dataclass(frozen=True)
class Until:
    """When an evaluation may end before all samples were run.

    Args:
        ends: Number of samples after which to ask, rising; the last is all.
        enough: Whether it is enough.
    """

    ends: tuple[int, ...]
    enough: Callable[[Predictions], bool]


class Reference:
    """The baseline's outputs of one tensor, kept on disk for comparison; as many samples as fit into 512 MiB."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, outputs: Mapping[tuple[int, int], Array]) -> None:
        """Keep `outputs`: (sample, feed) -> output."""
        np.savez(self.path, allow_pickle=False, **{f"{i}:{j}": array for (i, j), array in outputs.items()})

    def read(self) -> dict[tuple[int, int], Array]:
        """(sample, feed) -> output."""
        with np.load(self.path, allow_pickle=False) as arrays:
            return {(int(k.split(":")[0]), int(k.split(":")[1])): arrays[k] for k in arrays.files}


@dataclass(frozen=True)
class Evaluation:
    """What running over all evaluation samples gave.

    Args:
        predictions: Records of every metric.
        kept: (sample, feed) -> output, for comparison with it later; empty when there was something to compare with.
        closeness: How close outputs were to those that were kept; None when there was nothing to compare with.
        not_finite: Output -> number of samples for which it held a NaN or an infinity, if it did for any.
    """

    predictions: Predictions
    kept: dict[tuple[int, int], Array]
    closeness: Fidelity | None
    not_finite: dict[str, int]


def evaluate(
    run: Run,
    samples: Samples,
    feeding: Feeding,
    metrics: Mapping[str, Metric],
    *,
    title: str,
    keep: str | None = None,
    against: Mapping[tuple[int, int], Array] | None = None,
    finite: Collection[str] | None = None,
    until: Until | None = None,
    repeats: int = 1,
) -> Evaluation:
    """Run over all evaluation samples, or until it is enough.

    Args:
        run: Computes one batch.
        samples: Evaluation samples, with labels if there are metrics.
        feeding: How samples go in.
        metrics: Name -> metric.
        title: What the progress bar says.
        keep: Output to keep (for the baseline) or to compare with `against` (for a candidate).
        against: The baseline's outputs of `keep`.
        finite: Outputs that must be finite: a sample for which one is not is counted, and neither recorded nor compared. None: all outputs are
            counted, and every sample is recorded.
        until: When it may end before.
        repeats: How often to run all samples, for an engine that does not give the same twice; outputs are compared in the first run.

    Raises:
        DataError: A label does not fit its metric.
    """
    rows: dict[str, dict[int, list[Records]]] = {name: {} for name in metrics}
    kept: dict[tuple[int, int], Array] = {}
    closeness: dict[tuple[int, int], tuple[Array, Array]] = {}
    not_finite: Counter[str] = Counter()
    budget = _Budget(len(samples))
    ends = (len(samples),) if until is None else until.ends
    with progress(title, len(samples) * repeats) as advance:
        for start, end in pairwise((0, *ends)):
            for turn in range(repeats):
                for position, outputs in _spanned(run, samples, feeding, start, end):
                    advance(1)
                    broken = _not_finite(outputs, finite)
                    not_finite.update(broken)
                    if broken and finite is not None:
                        continue
                    _record(metrics, rows, position, outputs, samples)
                    for number, found in enumerate(outputs if keep is not None and turn == 0 else ()):
                        key = (position, number)
                        if against is None and budget.has_room(position, found[str(keep)]):
                            kept[key] = found[str(keep)]
                        elif against is not None and key in against:
                            closeness[key] = (against[key], found[str(keep)])
            predictions = _predictions(rows, None if until is None else end, repeats)
            if until is not None and end < ends[-1] and (not_finite or until.enough(predictions)):
                break
    return Evaluation(predictions, kept, _fidelity(closeness) if closeness else None, dict(sorted(not_finite.items())))


def is_steady(run: Run, samples: Samples, feeding: Feeding) -> bool:
    """Whether the first batch of samples gives the same outputs, bit for bit, when it is run twice."""
    few = Span(samples, 0, min(len(samples), feeding.batch_size))
    one, two = (dict(run_samples(run, few, feeding)) for _ in range(2))
    return all(
        np.array_equal(first[name], second[name], equal_nan=np.issubdtype(first[name].dtype, np.inexact))
        for position in one
        for first, second in zip(one[position], two[position], strict=True)
        for name in first
    )


def _spanned(run: Run, samples: Samples, feeding: Feeding, start: int, end: int) -> Iterator[tuple[int, list[Outputs]]]:
    whole = (start, end) == (0, len(samples))
    for position, outputs in run_samples(run, samples if whole else Span(samples, start, end), feeding):
        yield start + position, outputs


def _not_finite(outputs: Sequence[Outputs], wanted: Collection[str] | None) -> set[str]:
    return {
        name
        for found in outputs
        for name, array in found.items()
        if (wanted is None or name in wanted) and np.issubdtype(array.dtype, np.inexact) and not np.isfinite(array).all()
    }


def _predictions(rows: Mapping[str, Mapping[int, Sequence[Records]]], seen: int | None, repeats: int) -> Predictions:
    filled = {name: [part for i in sorted(found) for part in found[i]] for name, found in rows.items() if found}
    groups = {name: [np.full(len(part), i, np.int64) for i in sorted(found) for part in found[i]] for name, found in rows.items() if found}
    joined = {name: np.concatenate(parts) for name, parts in groups.items()}
    return Predictions({name: np.concatenate(parts) for name, parts in filled.items()}, joined, seen, repeats)


def _record(metrics: Mapping[str, Metric], rows: Mapping[str, dict[int, list[Records]]], position: int, outputs: Sequence[Outputs], samples: Samples) -> None:
    sample = samples[position] if metrics else None
    for name, metric in metrics.items():
        assert sample is not None
        try:
            rows[name].setdefault(position, []).append(metric.record(outputs, sample.label))
        except DataError as error:
            raise error.at(f"evaluation sample {sample.index}") from error


class _Budget:
    """Room for the outputs of the first samples; which ones does not depend on the order they come in."""

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._limit: int | None = None

    def has_room(self, position: int, output: Array) -> bool:
        if self._limit is None:
            self._limit = max(1, _KEEP_BYTES // max(1, output.nbytes) // 2)
        return position < self._limit


def _fidelity(pairs: Mapping[tuple[int, int], tuple[Array, Array]]) -> Fidelity:
    meter = FidelityMeter()
    for key in sorted(pairs):
        meter.add(*pairs[key])
    return meter.result()
