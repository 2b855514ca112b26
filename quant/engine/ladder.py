"""ladder: the rungs that a model climbs from FP32 to each engine, each compared with the one before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluators.agreement import comparable
from quant.core.arguments import with_checked_arguments
from quant.core.cache_folder import cache_folder
from quant.core.progress import tracked
from quant.core.registry import did_you_mean
from quant.engine.agreeing import loader
from quant.engine.bind import bind
from quant.engine.cache import StageCache
from quant.engine.candidates import Built, Workshop
from quant.engine.climb import Climb, runtime
from quant.engine.inputs import cut, fitting, inputs_from_file, random_inputs
from quant.engine.prepare import prepare
from quant.engine.run import planned_jobs
from quant.errors import ModelError, QuantError
from quant.graph.model import read_model, signature
from quant.graph.runtime import Optimize, Runtime
from quant.recipe.load import load_recipe
from quant.recipe.shipped import shipped
from quant.report.ladder import Ladder
from quant.report.words import count
from quant.stages.agree import Feed, Meaning, feeds_of
from quant.stages.running import Outputs, Run
from quant.targets import TARGETS, Target

SAMPLES = 16
_AS_WRITTEN, _FP32 = "the graph as written", "FP32 as written"
_ELSEWHERE = "its engines are built here for machines elsewhere"
_LEVELS: tuple[tuple[str, Optimize], ...] = (("ONNX Runtime, basic level", "basic"), ("ONNX Runtime, all levels", True))


@with_checked_arguments
def ladder(
    graph: Path | str,
    *,
    baseline: Path | str | None = None,
    inputs: Path | str | None = None,
    recipe: Path | str | None = None,
    targets: Sequence[str] = (),
    samples: int = SAMPLES,
    overrides: Sequence[str] = (),
    trust_code: bool = False,
) -> Ladder:
    """Climb from FP32 over the plain meaning of an ONNX graph to each engine that reads it.

    Args:
        graph: An ONNX file, from whatever tool; or a recipe, whose schemes then are climbed to on all its targets.
        baseline: The FP32 model that it was made from; without, and without `recipe`, the noise of the format is what rounding does in the graph itself.
        inputs: An `.npz` with an array for each input; random ones are drawn when neither this nor `recipe` is given.
        recipe: Takes the evaluation samples of this recipe, and its FP32 model as the baseline.
        targets: Kinds of engines; all that are available here when empty.
        samples: How many samples at most.
        overrides: `KEY=VALUE` for values of the recipe.
        trust_code: Whether code that the recipe names may run.

    Raises:
        QuantError: A file cannot be read, inputs do not fit, or there is no such target.
    """
    if _is_recipe(graph):
        if baseline is not None or inputs is not None or recipe is not None:
            raise QuantError("a recipe brings its own baseline and inputs", where=str(graph), hint="leave out --baseline, --inputs and --recipe")
        return _climb_recipe(graph, targets, samples, overrides, trust_code=trust_code)
    path = Path(graph)
    model = read_model(path)
    engines = _engines(targets)
    if inputs is not None and recipe is not None:
        raise QuantError("inputs and a recipe are given; one of them says what goes in", hint="leave out --inputs or --recipe")
    first = None if baseline is None else Path(baseline)
    if recipe is not None:
        workshop = _workshop(recipe, overrides, trust_code=trust_code)
        feeds, said = _feeds(workshop, samples)
        first = workshop.prepared.path if first is None else first
    elif inputs is not None:
        feeds, said = inputs_from_file(Path(inputs), model, most=samples), Path(inputs).name
    else:
        feeds, said = random_inputs(model, rows=samples), "random"
    feeds = [fitting(feed, model) for feed in (feeds if recipe is None else cut(feeds, model))]
    climb = Climb(_shown_output(path, first), _count(feeds))
    meaning = _climb_to_meaning(climb, path, first, feeds)
    for name, level in _LEVELS:
        climb.step(name, meaning, runtime(level), before=climb.rungs[-1].name if climb.rungs[-1].status == "ran" else _AS_WRITTEN)
    _climb_to_engines(climb, meaning, engines)
    return _finished(climb, str(graph), said, feeds)


def _engines(targets: Sequence[str]) -> dict[str, Target]:
    for kind in targets:
        if kind not in TARGETS:
            raise QuantError(f"no such target: {kind!r}", hint=did_you_mean(kind, TARGETS.kinds()))
    made = {kind: TARGETS.make(kind) for kind in (targets or TARGETS)}
    return {kind: engine for kind, engine in made.items() if targets or (engine.available().available and not engine.ahead_of_time)}


def _is_recipe(name: Path | str) -> bool:
    return Path(name).suffix.lower() in {".yaml", ".yml"} or (not Path(name).exists() and str(name) in shipped())


def _workshop(recipe: Path | str, overrides: Sequence[str], *, trust_code: bool) -> Workshop:
    loaded = load_recipe(Path(recipe), overrides)
    bound = bind(loaded, trust_code=trust_code)
    cache = StageCache(cache_folder() / "stages")
    return Workshop(bound, prepare(bound, cache, trust_code=trust_code), cache)


def _feeds(workshop: Workshop, samples: int) -> tuple[list[dict[str, Any]], str]:
    """(the first evaluation samples of a recipe as they go into its FP32 model, what they are)."""
    recipe = workshop.bound.loaded.recipe
    feeding = workshop.prepared.feeding(workshop.bound, recipe.evaluation.batch_size)
    run = Runtime(workshop.prepared.path, optimize=False).run
    return feeds_of(workshop.prepared.data.roles["evaluation"], feeding, run, most=samples), f"evaluation samples of {recipe.name}"


def _climb_recipe(recipe: Path | str, targets: Sequence[str], samples: int, overrides: Sequence[str], *, trust_code: bool) -> Ladder:
    """From FP32 to each scheme in plain arithmetic, and from there to the engine; artifacts that are in the cache are taken from there."""
    workshop = _workshop(recipe, overrides, trust_code=trust_code)
    bound = workshop.bound
    if unknown := [title for title in targets if title not in bound.targets]:
        raise QuantError(f"the recipe has no target {unknown[0]!r}", where=str(recipe), hint=did_you_mean(unknown[0], list(bound.targets)))
    feeds, said = _feeds(workshop, samples)
    climb = Climb(workshop.fidelity_output or "", _count(feeds))
    whole = _climb_fp32(climb, workshop.prepared.path, feeds)
    jobs = planned_jobs(workshop)
    table = workshop.calibrate([(bound.schemes[j.scheme], bound.targets[j.target], j.plan) for j in jobs if j.plan is not None])
    for job in tracked([job for job in jobs if not targets or job.target in targets], "climbing"):
        name = f"{job.scheme} on {job.target}"
        if job.plan is None:
            climb.miss(name, before=_FP32, reason=job.reason, status="not available" if job.status == "not available" else "not applicable")
            continue
        try:
            built = workshop.build(job.scheme, job.target, job.plan, table)
            meaning = _meaning(built.graph, whole.feeds, whole.reference)
        except QuantError as error:
            climb.miss(name, before=_FP32, reason=" ".join(error.what.split()))
            continue
        written = f"{job.scheme} for {job.target}, as written"
        climb.stand(written, meaning.reference, before=_FP32)
        engine = bound.targets[job.target]
        if engine.ahead_of_time:
            climb.miss(name, before=written, reason=_ELSEWHERE, status="not available")
        else:
            climb.step(name, meaning, loader(engine), before=written, start=_starter(engine, built))
    return _finished(climb, str(recipe), said, feeds)


def _starter(engine: Target, built: Built) -> Callable[[], Run]:
    return lambda: engine.session(built.artifact, built.folder, threads=1).run


def _count(feeds: Sequence[Feed]) -> int:
    return sum(max((len(array) for array in feed.values() if array.ndim), default=1) for feed in feeds)


def _finished(climb: Climb, subject: str, said: str, feeds: Sequence[Feed]) -> Ladder:
    return Ladder(
        subject=subject,
        first=climb.rungs[0].name,
        inputs=f"{said}, {count(climb.samples, 'row')} in {len(feeds)} {'batch' if len(feeds) == 1 else 'batches'}",
        output=climb.output,
        rungs=tuple(climb.rungs),
        agrees=not any(rung.parts for rung in climb.rungs),
    )


def _meaning(path: Path, feeds: Sequence[Feed], exact: Sequence[Outputs] | None = None) -> Meaning:
    """`Meaning.of` a graph, of which something can be compared.

    Raises:
        ModelError: ONNX Runtime cannot run the graph as it is written, or gives nothing that is finite.
    """
    found = Meaning.of(path, feeds, exact)
    if not any(comparable(array) for outputs in found.reference for array in outputs.values()):
        what = "all that it gives for these inputs is NaN, infinite or empty: there is nothing to compare"
        raise ModelError(what, where=str(path), hint="give other inputs, or look for an overflow in the graph")
    return found


def _shown_output(path: Path, baseline: Path | None) -> str:
    """The first float output.

    Raises:
        ModelError: The baseline lacks an output of the graph.
    """
    outputs = signature(read_model(path)).outputs
    if baseline is not None:
        there = {spec.name for spec in signature(read_model(baseline)).outputs}
        if lacking := [spec.name for spec in outputs if spec.name not in there]:
            raise ModelError(f"has no output {lacking[0]!r}, which the graph has", where=str(baseline), hint=f"its outputs are: {', '.join(sorted(there))}")
    return next((spec.name for spec in outputs if "float" in spec.dtype), "")


def _climb_to_meaning(climb: Climb, path: Path, baseline: Path | None, feeds: Sequence[Feed]) -> Meaning:
    """The rungs before any engine: FP32 (or the graph without its rounding), and the graph in plain arithmetic."""
    if baseline is None:
        meaning = _meaning(path, feeds)
        climb.stand("the graph without rounding", meaning.exact)
    else:
        own = read_model(baseline)
        whole = _climb_fp32(climb, baseline, [fitting(feed, own) for feed in feeds])
        meaning = _meaning(path, feeds[: len(whole.feeds)])  # inputs need not be data: what they clip is no noise of the format
    climb.stand(_AS_WRITTEN, meaning.reference, before=climb.rungs[0].name)
    return meaning


def _climb_fp32(climb: Climb, path: Path, feeds: Sequence[Feed]) -> Meaning:
    """The FP32 model as it is written, and in ONNX Runtime as it is by default."""
    whole = _meaning(path, feeds)
    climb.stand(_FP32, whole.reference)
    climb.step("FP32, ONNX Runtime, all levels", whole, runtime(optimize=True), before=_FP32)
    return whole


def _climb_to_engines(climb: Climb, meaning: Meaning, engines: Mapping[str, Target]) -> None:
    for kind, engine in tracked(engines.items(), "climbing"):
        here = engine.available()
        if not here.available:
            reason = "; ".join(filter(None, (here.reason, here.install)))
            climb.miss(kind, before=_AS_WRITTEN, reason=reason, status="not available")
        elif engine.ahead_of_time:
            climb.miss(kind, before=_AS_WRITTEN, reason=_ELSEWHERE, status="not available")
        else:
            climb.step(kind, meaning, loader(engine), before=_AS_WRITTEN)
