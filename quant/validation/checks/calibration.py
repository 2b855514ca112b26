"""The calibration table is what the calibration data show of the FP32 model."""

from __future__ import annotations

from typing import ClassVar

from quant.core.table import CalibrationTable
from quant.validation.check import CHECKS, OfRun
from quant.validation.findings import Checked, Finding, judged, skipped
from quant.validation.subject import TABLE, Subject
from quant.validation.tolerance import ROUNDING, different_tensors


@CHECKS.add
class Calibration(OfRun):
    """A new pass over the calibration data gives the very table that the run has left."""

    kind: ClassVar[str] = "calibration"
    title: ClassVar[str] = "the calibration table is what the data show"
    order: ClassVar[int] = 30

    def look(self, subject: Subject) -> Checked:
        """Calibrate again, and compare every tensor."""
        delivery = subject.delivery
        if delivery.folder is None:
            return skipped("a single artifact comes without a calibration table")
        fresh, place = delivery.table, delivery.folder / TABLE
        if fresh is None:
            return skipped("no scheme of the recipe needs calibration")
        stored = CalibrationTable.load(place)
        tolerance = ROUNDING if delivery.elsewhere else 0.0
        file = f"{TABLE}/table.json"
        found = [Finding(kind="tensor", where=name, file=file, what=what) for name, what in different_tensors(fresh, stored, tolerance=tolerance).items()]
        found += [
            Finding(kind="file", where=file, file=file, what=f"is of another {what} than the recipe's")
            for what, same in (("model", fresh.model == stored.model), ("set of calibration samples", fresh.data == stored.data))
            if not same
        ]
        if not delivery.elsewhere and not found and (fresh.magnitudes != stored.magnitudes or not _same_means(fresh, stored)):
            found.append(Finding(kind="file", where=file, file=file, what="magnitudes or means differ from what the data show"))
        near = " but for rounding, on another machine or with other libraries" if delivery.elsewhere else ""
        return judged(found, f"{len(fresh.statistics)} tensors over {fresh.samples} samples show the same{near}")


def _same_means(one: CalibrationTable, other: CalibrationTable) -> bool:
    return {name: array.tolist() for name, array in one.means.items()} == {name: array.tolist() for name, array in other.means.items()}
