"""evaluate: an artifact (or the FP32 baseline) over the evaluation samples -> records of every metric, and fidelity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        np.savez(path, **arrays)

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
        np.savez(self.path, **{f"{i}:{j}": array for (i, j), array in outputs.items()})

    def read(self) -> dict[tuple[int, int], Array]:
        """(sample, feed) -> output."""
        with np.load(self.path, allow_pickle=False) as arrays:
            return {(int(k.split(":")[0]), int(k.split(":")[1])): arrays[k] for k in arrays.files}


def evaluate(
    run: Run, samples: Samples, feeding: Feeding, metrics: Mapping[str, Metric], *, title: str, keep: str | None = None, against: Mapping[tuple[int, int], Array] | None = None
) -> tuple[Predictions, dict[tuple[int, int], Array], Fidelity | None]:
    """Run over all evaluation samples.

    Args:
        run: Computes one batch.
        samples: Evaluation samples, with labels if there are metrics.
        feeding: How samples go in.
        metrics: Name -> metric.
        title: What the progress bar says.
        keep: Output to keep (for the baseline) or to compare with `against` (for a candidate).
        against: The baseline's outputs of `keep`.

    Returns:
        The predictions; the outputs that were kept (when `against` is None); closeness to `against` (when it is given).

    Raises:
        DataError: A label does not fit its metric.
    """
    rows: dict[str, dict[int, Records]] = {name: {} for name in metrics}
    kept: dict[tuple[int, int], Array] = {}
    closeness: dict[tuple[int, int], tuple[Array, Array]] = {}
    budget = _Budget(len(samples))
    with progress(title, len(samples)) as advance:
        for position, outputs in run_samples(run, samples, feeding):
            advance(1)
            _record(metrics, rows, position, outputs, samples)
            if keep is not None:
                for number, found in enumerate(outputs):
                    key = (position, number)
                    if against is None and budget.has_room(position, found[keep]):
                        kept[key] = found[keep]
                    elif against is not None and key in against:
                        closeness[key] = (against[key], found[keep])
    predictions = Predictions(
        {name: np.concatenate([found[i] for i in sorted(found)]) for name, found in rows.items()},
        {name: np.concatenate([np.full(len(found[i]), i, np.int64) for i in sorted(found)]) for name, found in rows.items()},
    )
    return predictions, kept, _fidelity(closeness) if against is not None else None


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
