"""evaluate: an artifact (or the FP32 baseline) over the evaluation samples -> records of every metric, and fidelity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from evaluators.fidelity import Fidelity, FidelityMeter
from quant.core.progress import progress
from quant.core.protocols import Metric, Records
from quant.data.samples import Samples
from quant.errors import DataError
from quant.stages.running import Array, Feeding, Outputs, Run, run_samples

_KEEP_BYTES = 512 << 20


@dataclass(frozen=True)
class Predictions:
    """What a model said about the evaluation samples.

    Args:
        records: Name of a metric -> its records, `[rows, columns]`, in the samples' order.
        groups: Name of a metric -> the sample of each row, `[rows]`.
    """

    records: Mapping[str, Records]
    groups: Mapping[str, npt.NDArray[np.int64]]

    def save(self, path: Path) -> None:
        """Write to one `.npz` file."""
        arrays = {f"records:{k}": v for k, v in self.records.items()} | {f"groups:{k}": v for k, v in self.groups.items()}
        np.savez(path, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, path: Path) -> Predictions:
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            parts = {kind: {k.split(":", 1)[1]: arrays[k] for k in arrays.files if k.startswith(f"{kind}:")} for kind in ("records", "groups")}
        return cls(parts["records"], parts["groups"])


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
) -> Evaluation:
    """Run over all evaluation samples.

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

    Raises:
        DataError: A label does not fit its metric.
    """
    rows: dict[str, dict[int, Records]] = {name: {} for name in metrics}
    kept: dict[tuple[int, int], Array] = {}
    closeness: dict[tuple[int, int], tuple[Array, Array]] = {}
    not_finite: Counter[str] = Counter()
    budget = _Budget(len(samples))
    with progress(title, len(samples)) as advance:
        for position, outputs in run_samples(run, samples, feeding):
            advance(1)
            broken = _not_finite(outputs, finite)
            not_finite.update(broken)
            if broken and finite is not None:
                continue
            _record(metrics, rows, position, outputs, samples)
            for number, found in enumerate(outputs if keep is not None else ()):
                key = (position, number)
                if against is None and budget.has_room(position, found[str(keep)]):
                    kept[key] = found[str(keep)]
                elif against is not None and key in against:
                    closeness[key] = (against[key], found[str(keep)])
    return Evaluation(_predictions(rows), kept, _fidelity(closeness) if closeness else None, dict(sorted(not_finite.items())))


def _not_finite(outputs: Sequence[Outputs], wanted: Collection[str] | None) -> set[str]:
    return {
        name
        for found in outputs
        for name, array in found.items()
        if (wanted is None or name in wanted) and np.issubdtype(array.dtype, np.inexact) and not np.isfinite(array).all()
    }


def _predictions(rows: Mapping[str, Mapping[int, Records]]) -> Predictions:
    filled = {name: [found[i] for i in sorted(found)] for name, found in rows.items() if found}
    groups = {name: [np.full(len(found[i]), i, np.int64) for i in sorted(found)] for name, found in rows.items() if found}
    return Predictions({name: np.concatenate(parts) for name, parts in filled.items()}, {name: np.concatenate(parts) for name, parts in groups.items()})


def _record(metrics: Mapping[str, Metric], rows: Mapping[str, dict[int, Records]], position: int, outputs: Sequence[Outputs], samples: Samples) -> None:
    sample = samples[position] if metrics else None
    for name, metric in metrics.items():
        assert sample is not None
        try:
            rows[name][position] = metric.record(outputs, sample.label)
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
