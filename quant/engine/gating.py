"""The verdicts on a candidate: one for each gate of the recipe (and each part of slices that it names), kept like any other stage's result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from quant.core.documents import Verdict
from quant.core.files import write_text
from quant.engine.candidates import Built, Workshop
from quant.engine.verdicts import gates_key, slice_verdicts, verdicts_of
from quant.stages.evaluate import Predictions

_VERDICTS = "verdicts.json"


def gate_candidate(workshop: Workshop, built: Built, baseline: Predictions, candidate: Predictions) -> dict[int, Verdict]:
    """Number of each gate of the workshop's recipe -> its verdict on `built`.

    Raises:
        DataError: Predictions are not finite, a limit is a share of a baseline that is 0, or a metric is not defined on a slice.
    """

    def produce(folder: Path) -> None:
        samples = len(workshop.prepared.data.roles["evaluation"])
        found = verdicts_of(workshop.bound, workshop.slices, baseline, candidate, samples=samples)
        write_text(folder / _VERDICTS, json.dumps({n: v.model_dump(mode="json") for n, v in found.items()}, indent=1, sort_keys=True))

    found = json.loads((workshop.cache.stage(f"gate:{built.name}", _key(workshop, built), produce) / _VERDICTS).read_text(encoding="utf-8"))
    return {int(number): Verdict.model_validate(found[number]) for number in sorted(found, key=int)}


def slices_of(workshop: Workshop, built: Built, baseline: Predictions, candidate: Predictions) -> tuple[tuple[str, Verdict], ...]:
    """(metric, what was found) of `built` in each part of the recipe's slices."""
    if not workshop.slices:
        return ()

    def produce(folder: Path) -> None:
        found = slice_verdicts(workshop.bound, workshop.slices, baseline, candidate)
        write_text(folder / _VERDICTS, json.dumps([[name, v.model_dump(mode="json")] for name, v in found], indent=1, sort_keys=True))

    found = json.loads((workshop.cache.stage(f"slices:{built.name}", _key(workshop, built), produce) / _VERDICTS).read_text(encoding="utf-8"))
    return tuple((name, Verdict.model_validate(verdict)) for name, verdict in found)


def _key(workshop: Workshop, built: Built) -> dict[str, Any]:
    recipe = workshop.bound.loaded.recipe
    evaluated = workshop.evaluation_key(recipe.evaluation.batch_size)
    return {**evaluated, "artifact": built.artifact.digest, "gates": gates_key(workshop.bound), "repeats": recipe.evaluation.repeats}
