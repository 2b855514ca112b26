"""From predictions to the verdicts of all gates: together, at once or in looks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluators.family import Looks, Question, judge, judge_in_looks
from evaluators.gate import gate
from quant.core.documents import Verdict
from quant.data.slices import Members
from quant.engine.bind import Bound
from quant.errors import DataError, QuantError
from quant.recipe.schema import SequentialSpec
from quant.stages.evaluate import Predictions, Until


def gates_key(bound: Bound) -> list[Any]:
    """Everything that verdicts depend on, besides predictions."""
    recipe = bound.loaded.recipe
    slices = [spec.model_dump(mode="json") for spec in recipe.evaluation.slices]
    return [[[name, spec.model_dump(mode="json")] for name, spec in bound.gates], slices, recipe.data.seed]


def sequential_of(bound: Bound) -> SequentialSpec | None:
    """How the gates look early; None when they do not."""
    return bound.gates[0][1].sequential if bound.gates else None


def verdicts_of(bound: Bound, members: Mapping[str, Members], baseline: Predictions, candidate: Predictions, *, samples: int) -> dict[int, Verdict]:
    """Number of each gate -> its verdict; none for one whose metric was not defined when a sequential evaluation ended.

    Args:
        bound: The recipe, with a gate for each part of slices.
        members: Name of a part -> which samples are in it.
        baseline: What FP32 said about all samples.
        candidate: What the candidate said.
        samples: Number of evaluation samples.

    Raises:
        DataError: Predictions are not finite, a limit is a share of a baseline that is 0, or a metric is not defined on a part.
    """
    asked, seed = questions(bound, members, baseline, candidate), bound.loaded.recipe.data.seed
    sequential = sequential_of(bound)
    try:
        if sequential is None:
            return dict(enumerate(judge(asked, seed=seed)))
        looks = Looks.even(samples, sequential.looks, sequential.spending)
        return dict(sorted(judge_in_looks(asked, looks, seen=candidate.seen or samples, seed=seed)[0].items()))
    except QuantError as error:
        raise error.at(bound.loaded.where(("gate",))) from error


def questions(bound: Bound, members: Mapping[str, Members], baseline: Predictions, candidate: Predictions) -> list[Question]:
    """What each gate asks of what was predicted so far."""
    base = baseline.repeated(candidate.repeats) if candidate.repeats > 1 else baseline
    found = []
    for name, spec in bound.gates:
        part = spec.slices[0] if spec.slices else ""
        records, groups = base.records[name], base.groups[name]
        if candidate.seen is not None:
            records, groups = records[groups < candidate.seen], groups[groups < candidate.seen]
        within = members[part] if part else None
        how = (spec.max_drop, spec.relative, spec.confidence, spec.resamples)
        found.append(Question(bound.metrics[name], records, candidate.records[name], groups, *how, slice=part, members=within))
    return found


def until_sure(bound: Bound, members: Mapping[str, Members], baseline: Predictions, *, samples: int) -> Until | None:
    """When the evaluation of a candidate may end; None when it must not before all samples were run."""
    sequential = sequential_of(bound)
    if sequential is None:
        return None
    looks = Looks.even(samples, sequential.looks, sequential.spending)
    known: dict[int, Verdict] = {}
    since = 0

    def enough(candidate: Predictions) -> bool:
        nonlocal known, since
        assert candidate.seen is not None, "the evaluation says how far it is"
        asked = questions(bound, members, baseline, candidate)
        known, done = judge_in_looks(asked, looks, seen=candidate.seen, seed=bound.loaded.recipe.data.seed, before=known, since=since)
        since = candidate.seen
        return done

    return Until(looks.ends, enough)


def slice_verdicts(bound: Bound, members: Mapping[str, Members], baseline: Predictions, candidate: Predictions) -> list[tuple[str, Verdict]]:
    """(metric, what was found) of each metric in each part of slices, gated or not; none where a metric is not defined.

    Bounds hold for all parts of a metric at once (Bonferroni), so that the worst of many may be picked out. Limits are those of the metric's
    first gate, or of the first of all.
    """
    base = baseline.repeated(candidate.repeats) if candidate.repeats > 1 else baseline
    found: list[tuple[str, Verdict]] = []
    for name, metric in bound.metrics.items():
        spec = next((spec for title, spec in bound.gates if title == name), bound.gates[0][1])
        alpha = (1 - spec.confidence) / max(len(members), 1)
        for part, within in members.items():
            groups = base.groups[name]
            keep = within[groups] & (groups < (candidate.seen or len(within)))
            try:
                verdict = gate(
                    metric,
                    base.records[name][keep],
                    candidate=candidate.records[name][within[candidate.groups[name]]],
                    groups=groups[keep],
                    max_drop=spec.max_drop,
                    relative=spec.relative,
                    confidence=spec.confidence,
                    errors=(alpha, alpha),
                    resamples=spec.resamples,
                    seed=bound.loaded.recipe.data.seed,
                    plan=False,
                )
            except DataError:  # AUC within one class, say
                continue
            found.append((name, verdict.model_copy(update={"slice": part, "family": len(members)})))
    return found
