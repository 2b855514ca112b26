"""A saved profile, priced for a target: the cheapest plan by what was measured before, without another measurement of what layers do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from quant.core.sensitivity import SensitivityProfile
from quant.engine.candidates import Workshop
from quant.engine.mixing.closing import Closing
from quant.engine.mixing.exploring import Planned, alone_on, ground_of
from quant.engine.mixing.ground import FLOAT, Ground
from quant.engine.mixing.plan_file import read_plan
from quant.engine.mixing.pricing import priced
from quant.engine.mixing.provenance import check_effects, check_profile, provenance
from quant.engine.mixing.searching import Search
from quant.errors import PlanError
from quant.planner.front import front
from quant.planner.loop import Closed
from quant.planner.moves import quantizes
from quant.planner.problem import ERROR, Goal, Problem
from quant.planner.solve import solve
from quant.report.words import count
from quant.targets import Profiles


def repriced(workshop: Workshop, target: str | None, profile: Path, *, like: Path | None = None) -> Planned:
    """The cheapest plan for a target by a profile that was saved; nothing is measured but, where its engine runs here, what its kernels take.

    Args:
        workshop: The recipe, its model and data.
        target: Title of the target; the first when not given.
        profile: What `quant profile` wrote, for this target or one that writes the same codes.
        like: A plan whose predicted error is the most that is allowed; without, the recipe's `plan.max_error` or `plan.within` says that.

    Raises:
        PlanError: The profile is stale or of other codes, nothing says what is allowed, or no plan keeps to it.
        QuantError: A file cannot be read.
    """
    ground, statistics = ground_of(workshop, target)
    spec = ground.bound.spec
    known = SensitivityProfile.load(profile)
    check_profile(known, profile, now=provenance(ground, Search(ground).samples.digest), target=ground.target)
    check_effects(known, profile, ground.formats, target=ground.target)
    allowed = None if like is None else read_plan(like, ground)
    if like is None and spec.max_error is None and not spec.within:
        hint = "give a plan that passed elsewhere with `--like`, or set `plan.max_error` or `plan.within`"
        raise PlanError("nothing is measured, so that gates cannot tell a good plan", where=str(profile), hint=hint)
    in_engine = not ground.engine.ahead_of_time and isinstance(ground.engine, Profiles)
    uniform = alone_on(workshop, ground, statistics) if in_engine else []
    closing = Closing(workshop, ground, None, uniform, workshop.build_baseline(ground.target) if in_engine else None)
    closing.profile = known
    closing.prices = priced(ground, closing.baseline, {f: closing.uniform.get(title) for f, title in ground.titles.items()})
    problem = closing.problem()
    goal, told, best = _goal(ground, problem, None if like is None or allowed is None else (like.name, allowed))
    try:
        found = solve(problem, goal)
    except PlanError as error:
        raise error.at(str(like) if like is not None else workshop.bound.loaded.where(("plan", "within"))) from error
    closed = Closed(found.choices, (), front(problem, cost=spec.minimize), problem, in_time=True)
    if not quantizes(found.choices):
        return Planned(None, closing.row(closed, None, f"No quantization is {told}."), workshop.prepared.digest, ground.target)
    quantized = sum(f != FLOAT for f in found.choices.values())
    ended = f"{best} of the plans {told}: {quantized} of {count(len(found.choices), 'layer')} quantized, predicted by {profile.name}; no plan was measured."
    return Planned(found.choices, closing.row(closed, found.choices, ended), workshop.prepared.digest, ground.target)


def _goal(ground: Ground, problem: Problem, like: tuple[str, Mapping[str, str]] | None) -> tuple[Goal, str, str]:
    """(What is wanted, of which plans in words, which of those)."""
    spec = ground.bound.spec
    if like is not None:
        name, allowed = like
        most = problem.error(allowed).value
        return Goal(minimize=spec.minimize, within={ERROR: most}), f"predicted to be no worse than {name} (error {most:.3g})", "The cheapest"
    if spec.within:
        whole = dict.fromkeys(problem.effects, FLOAT)
        budgets: dict[str, float] = {name: share * problem.costs[name].total(whole) for name, share in spec.within.items()}
        budgets |= {ERROR: spec.max_error} if spec.max_error is not None else {}
        return Goal(minimize=ERROR, within=budgets), "within the budgets", "The most accurate"
    assert spec.max_error is not None, "one of three"
    return Goal(minimize=spec.minimize, within={ERROR: spec.max_error}), f"predicted to have an error of at most {spec.max_error:g}", "The cheapest"
