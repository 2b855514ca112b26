"""The verdicts on a candidate: one for each gate of the recipe, kept like any other stage's result."""

from __future__ import annotations

import json
from pathlib import Path

from evaluators.gate import gate
from quant.core.documents import Verdict
from quant.core.files import write_text
from quant.engine.candidates import Built, Workshop
from quant.errors import QuantError
from quant.recipe.schema import GateSpec
from quant.stages.evaluate import Predictions

_VERDICTS = "verdicts.json"


def gate_candidate(workshop: Workshop, built: Built, baseline: Predictions, candidate: Predictions) -> dict[int, Verdict]:
    """Number of each gate of the recipe -> its verdict on `built`.

    Raises:
        DataError: Predictions are not finite, or a limit is a share of a baseline that is 0.
    """
    bound, recipe = workshop.bound, workshop.bound.loaded.recipe

    def produce(folder: Path) -> None:
        found = {number: _verdict(workshop, number, spec, baseline, candidate).model_dump(mode="json") for number, (_, spec) in enumerate(bound.gates)}
        write_text(folder / _VERDICTS, json.dumps(found, indent=1, sort_keys=True))

    gates = [[name, spec.model_dump(mode="json")] for name, spec in bound.gates]
    key = {**workshop.evaluation_key(recipe.evaluation.batch_size), "artifact": built.artifact.digest, "gates": gates, "seed": recipe.data.seed}
    found = json.loads((workshop.cache.stage(f"gate:{built.name}", key, produce) / _VERDICTS).read_text(encoding="utf-8"))
    return {int(number): Verdict.model_validate(verdict) for number, verdict in found.items()}


def _verdict(workshop: Workshop, number: int, spec: GateSpec, baseline: Predictions, candidate: Predictions) -> Verdict:
    bound = workshop.bound
    name = bound.gates[number][0]
    try:
        return gate(
            bound.metrics[name],
            baseline.records[name],
            candidate=candidate.records[name],
            groups=baseline.groups[name],
            max_drop=spec.max_drop,
            relative=spec.relative,
            confidence=spec.confidence,
            resamples=spec.resamples,
            seed=bound.loaded.recipe.data.seed,
        )
    except QuantError as error:
        raise error.at(bound.loaded.where(("gate", number))) from error
