"""Every scheme on every engine that computes on this machine, for every shipped recipe: each is measured, or says why it is not."""

import json

import pytest

import quant
from quant.engine import timing
from quant.recipe.load import load_recipe
from quant.recipe.shipped import shipped
from quant.schemes import SCHEMES
from quant.targets import TARGETS

pytestmark = [pytest.mark.benchmark, pytest.mark.network]

ROWS, SAMPLES = 64, 8
"""Rows of a recipe's own data, and samples of each role but training: enough to run everything, and for no verdict."""
REFUSED = "the engine refuses the model already in FP32: "
"""What is said of a candidate on an engine that cannot run the model at all."""
SMALL = (
    f"data.limit={ROWS}",
    "transforms=[]",
    "calibration.minimum=1",
    "evaluation.minimum=1",
    "evaluation.agreement_samples=2",
    "latency={requests: 1, warmup: 0}",
)


def _schemes():
    """All of them; those that train do so once over their samples."""
    return [{"kind": kind} | ({"epochs": 1} if "epochs" in SCHEMES.get(kind).Options.model_fields else {}) for kind in SCHEMES]


def _engines():
    made = {kind: TARGETS.make(kind) for kind in TARGETS}
    return [kind for kind, engine in made.items() if engine.available().available and not engine.ahead_of_time]


def _fewer(name):
    """Overrides that give each role of a recipe `SAMPLES` samples; what a head is fitted on stays the rest."""
    splits = load_recipe(name).recipe.data.splits
    roles = [role for role in type(splits).model_fields if (split := getattr(splits, role)) is not None and (role, split.samples) != ("train", "rest")]
    return [f"data.splits.{role}.samples={SAMPLES}" for role in roles]


@pytest.mark.parametrize("name", shipped())
def test_each_candidate_of_a_recipe_is_measured_or_says_why_not(name, tmp_path, monkeypatch, record_property):
    monkeypatch.setattr(timing, "measure_first_runs", lambda *_arguments, **_options: {})  # a process for each candidate takes longer than all else
    changes = [*SMALL, *_fewer(name), f"schemes={json.dumps(_schemes())}", f"targets={json.dumps(_engines())}"]
    candidates = quant.run(name, output=tmp_path, overrides=changes).report.candidates
    assert [(c.target, c.scheme) for c in candidates] == [(target, scheme) for target in _engines() for scheme in SCHEMES]
    listed = [c for c in candidates if c.status in {"not applicable", "not available"} or c.reason.startswith(REFUSED)]
    broken = {f"{c.scheme} on {c.target}": f"{c.status}: {c.reason}" for c in candidates if c.status != "measured" and c not in listed}
    assert broken == {}
    for candidate in candidates:
        assert candidate.metrics if candidate.status == "measured" else candidate.reason.strip()
    measured = sum(c.status == "measured" for c in candidates)
    record_property("figure", f"{name}: {measured} of {len(candidates)} candidates measured, each of the others with its reason")
    assert measured
