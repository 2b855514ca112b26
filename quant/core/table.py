"""The calibration table: tensor -> statistics, with the digests of what they were made from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from quant.core.arguments import with_checked_arguments
from quant.core.digest import digest_of, digest_of_arrays
from quant.core.files import write_text
from quant.core.shown import Chart, Series, Shown, Table
from quant.core.statistics import TensorStatistics
from quant.errors import RunError

_TABLE, _ARRAYS, _MEANS, _MOMENTS = "table.json", "histograms.npy", "means.npy", "moments.npy"


@dataclass(frozen=True, repr=False, eq=False)
class CalibrationTable(Shown):
    """What calibration saw.

    Args:
        model: Digest of the FP32 model.
        data: Digest of the calibration samples.
        samples: Number of samples seen.
        statistics: Tensor name -> extremes and histogram, for tensors that are to be quantized.
        magnitudes: Tensor name -> largest finite magnitude seen, for every float tensor (empty when no scheme asks for it).
        means: Tensor name -> float64 `[channels]`, mean of each slice along axis 1, for tensors that a scheme asks it for.
        moments: Tensor name -> second moments along its last axis, the upper triangle row by row, float64 (`quant.core.moments.unpacked`).
    """

    model: str
    data: str
    samples: int
    statistics: Mapping[str, TensorStatistics]
    magnitudes: Mapping[str, float]
    means: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    moments: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)

    def as_table(self) -> Table:
        """What was seen of each tensor, those with the farthest outliers first."""
        columns = ("tensor", "values", "minimum", "maximum", "rms", "farthest / rms", "not finite")
        found = [(name, s.count, s.minimum, s.maximum, s.rms, _reach(s), s.not_finite) for name, s in self.statistics.items()]
        found.sort(key=lambda row: (-(row[5] or 0.0), row[0]))
        return Table("Calibration table", columns, found, {"samples": self.samples, "tensors": len(self.statistics)})

    def as_chart(self) -> Chart:
        """How far the farthest value of each tensor lies out: such a value widens the range that all others must share."""
        found = sorted(((reach, name) for name, s in self.statistics.items() if (reach := _reach(s)) is not None), key=lambda pair: (-pair[0], pair[1]))
        series = Series("farthest value over rms", [reach for reach, _ in found], [name for _, name in found])
        return Chart("How far outliers reach", "farthest value, in root mean squares", "", [series], "bars")

    def _summary(self) -> dict[str, Any]:
        tensors, start = {}, 0
        for name in sorted(self.statistics):
            s = self.statistics[name]
            tensors[name] = {"count": s.count, "minimum": s.minimum, "maximum": s.maximum, "not_finite": s.not_finite, "bins": [start, start + s.codes.size]}
            start += s.codes.size
        sizes = {part: {name: int(found[name].size) for name in sorted(found)} for part, found in (("means", self.means), ("moments", self.moments))}
        magnitudes = dict(sorted(self.magnitudes.items()))
        return {"model": self.model, "data": self.data, "samples": self.samples, "tensors": tensors, "magnitudes": magnitudes, **sizes}

    def _histograms(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """All histograms behind one another, int64 `[2, bins]`: codes and counts."""
        ordered = [self.statistics[name] for name in sorted(self.statistics)]
        empty = np.zeros((2, 0), np.int64)
        return np.concatenate([empty, *(np.stack([s.codes, s.counts]) for s in ordered)], axis=1).astype(np.int64)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the whole table."""
        return digest_of(
            [self._summary(), digest_of_arrays({"histograms": self._histograms(), "means": _joined(self.means), "moments": _joined(self.moments)})]
        )

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, CalibrationTable) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def save(self, folder: Path | str) -> None:
        """Write `table.json`, `histograms.npy`, `means.npy` and `moments.npy` into `folder`; the same bytes for the same table."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / _ARRAYS, self._histograms(), allow_pickle=False)
        np.save(folder / _MEANS, _joined(self.means), allow_pickle=False)
        np.save(folder / _MOMENTS, _joined(self.moments), allow_pickle=False)
        write_text(folder / _TABLE, json.dumps(self._summary(), indent=1, sort_keys=True, allow_nan=False) + "\n")

    @classmethod
    @with_checked_arguments
    def load(cls, folder: Path | str) -> CalibrationTable:
        """Read what `save` wrote.

        Raises:
            RunError: The folder holds no whole calibration table.
        """
        folder = Path(folder)
        try:
            summary = json.loads((folder / _TABLE).read_text(encoding="utf-8"))
            histograms = np.load(folder / _ARRAYS, allow_pickle=False)
            statistics = {}
            for name, row in summary["tensors"].items():
                codes, counts = histograms[:, slice(*row["bins"])]
                statistics[name] = TensorStatistics(row["count"], row["minimum"], row["maximum"], codes, counts, row["not_finite"])
            means = _parted(np.load(folder / _MEANS, allow_pickle=False), summary["means"])
            # Moments of a large model take hundreds of MiB, of which a layer at a time is looked at: they stay in the file.
            moments = _parted(np.load(folder / _MOMENTS, allow_pickle=False, mmap_mode="r"), summary["moments"])
            return cls(summary["model"], summary["data"], summary["samples"], statistics, summary["magnitudes"], means, moments)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"not a calibration table: {error}", where=str(folder), hint="calibrate again") from error


def _reach(seen: TensorStatistics) -> float | None:
    """The farthest value over the root mean square; None where only extremes were kept, or all was zero."""
    return seen.magnitude / seen.rms if seen.codes.size and seen.rms > 0 else None


def _joined(found: Mapping[str, npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    """All arrays behind one another, float64, in the order of their names."""
    return np.concatenate([np.zeros(0), *(found[name] for name in sorted(found))])


def _parted(joined: npt.NDArray[np.float64], sizes: Mapping[str, int]) -> dict[str, npt.NDArray[np.float64]]:
    """What `_joined` joined."""
    ends = np.cumsum(list(sizes.values()), dtype=np.int64)
    return dict(zip(sizes, np.split(joined, ends[:-1]), strict=True)) if len(ends) else {}
