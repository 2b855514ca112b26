"""Recipe, model and data are those that the run says it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from quant.recipe.load import load_recipe
from quant.report.document import Report
from quant.validation.check import CHECKS, OfRun
from quant.validation.findings import Checked, Finding, judged, skipped
from quant.validation.subject import Delivery, Subject

RECIPE_FILE, REPORT_FILE = "recipe.yaml", "report.json"
_FREE = ("limits", "latency", "description")
"""Sections that change nothing in what is delivered."""


@CHECKS.add
class Sources(OfRun):
    """The run's recipe is the recipe that is given, and model and data have the digests that the report names."""

    kind: ClassVar[str] = "sources"
    title: ClassVar[str] = "recipe, model and data are those of the run"
    order: ClassVar[int] = 20

    def look(self, subject: Subject) -> Checked:
        """Bring them in again, and compare."""
        delivery = subject.delivery
        if delivery.folder is None:
            return skipped("a single artifact says nothing of its sources")
        report = delivery.report
        found = [*_recipe(delivery, report), *_digests(delivery, report)]
        own = "; the recipe is the run's own: with --data it is held to yours" if delivery.own_recipe else ""
        return judged(found, f"model {delivery.workshop.prepared.digest[:12]}… and all samples as the report says{own}")


def _recipe(delivery: Delivery, report: Report) -> list[Finding]:
    assert delivery.folder is not None
    loaded = delivery.workshop.bound.loaded
    written = (delivery.folder / RECIPE_FILE).read_text(encoding="utf-8") if (delivery.folder / RECIPE_FILE).is_file() else ""
    found = []
    if written != report.recipe:
        found.append(_file(RECIPE_FILE, "is another recipe than the one in report.json"))
    if not delivery.own_recipe:
        was, now = (recipe.model_dump(mode="json") for recipe in (load_recipe(delivery.folder / RECIPE_FILE).recipe, loaded.recipe))
        found += [_file(RECIPE_FILE, f"{key} is {one}, the recipe that is given says {other}") for key, one, other in _parts(was, now)]
    return found


def _parts(run: Mapping[str, Any], given: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """(section, value of the run, value that is given) of all that differ and matter; the shortest way to say each."""
    found: list[tuple[str, Any, Any]] = []
    for key in sorted({*run, *given} - set(_FREE)):
        was, now = run.get(key), given.get(key)
        if was != now and isinstance(was, dict) and isinstance(now, dict):
            found += [(f"{key}.{inner}", was.get(inner), now.get(inner)) for inner in sorted({*was, *now}) if was.get(inner) != now.get(inner)]
        elif was != now:
            found.append((key, was, now))
    return found


def _digests(delivery: Delivery, report: Report) -> list[Finding]:
    prepared = delivery.workshop.prepared
    told = [
        ("the FP32 model", report.baseline.model_sha256, prepared.digest),
        ("the samples", report.data.samples_sha256, prepared.data.digest),
    ]
    return [_file(REPORT_FILE, f"{what} had SHA-256 {was[:12]}…, now {now[:12]}…") for what, was, now in told if was != now]


def _file(name: str, what: str) -> Finding:
    return Finding(kind="file", where=name, file=name, what=what)
