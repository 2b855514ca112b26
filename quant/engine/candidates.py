"""One scheme on one target, from plan to verdict; every step is taken from the cache when nothing it depends on has changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from evaluators.fidelity import Fidelity
from quant.core.documents import Artifact, Audit, PrecisionPlan
from quant.core.files import write_text
from quant.core.formats import Range
from quant.core.table import CalibrationTable
from quant.engine.bind import BASELINE, Bound
from quant.engine.cache import StageCache
from quant.engine.checks import check_gates, check_outputs, takes_classes, try_metrics
from quant.engine.exported import graph_in, keep_graph, share_graph
from quant.engine.improving import improved, improvement_digest
from quant.engine.machine import environment
from quant.engine.metadata import with_metadata
from quant.engine.prepare import Prepared
from quant.engine.settling import settled, settling_key
from quant.engine.shapes import input_shapes
from quant.engine.slicing import members_of, parts_of, with_slices
from quant.engine.too_few import warn_of_too_few
from quant.engine.training import TRAINED, check_training, training_key, training_material
from quant.engine.verdicts import gates_key, sequential_of, until_sure
from quant.errors import ModelError, QuantError, TargetError
from quant.graph.model import model_digest, read_model
from quant.graph.runtime import Runtime
from quant.schemes import Needs, Scheme
from quant.stages.apply import apply
from quant.stages.calibrate import calibrate
from quant.stages.evaluate import Predictions, Reference, evaluate, is_steady
from quant.stages.first_run import ARTIFACT_FILE
from quant.stages.improve import Story
from quant.stages.measure import requests
from quant.targets import Shapes, TakesSamples, TakesShapes, Target
from quant.twin.training.material import Trained

_PLAN, _RANGES, _AUDIT, _SHAPES = "plan.json", "ranges.json", "audit.json", "shapes.json"
_PREDICTIONS, _FIDELITY, _OUTPUTS, _NOT_FINITE = "predictions.npz", "fidelity.json", "outputs.npz", "not_finite.json"


@dataclass(frozen=True)
class Built:
    """An artifact that was written.

    Args:
        scheme: Title of the scheme, or `fp32`.
        target: Title of the target.
        artifact: Its files.
        folder: Where they are.
        plan: What each layer runs in; None for the baseline.
        ranges: Tensor -> range that was written into the graph.
        graph: The ONNX graph that the engine was given.
        story: What became of the transforms that were tried before it was quantized.
        table: What calibration saw in the model that was quantized; None for the baseline.
        trained: What training did; None when there was none.
    """

    scheme: str
    target: str
    artifact: Artifact
    folder: Path
    plan: PrecisionPlan | None
    ranges: Mapping[str, Range]
    graph: Path
    story: Story = field(default_factory=lambda: Story(steps=()))
    table: CalibrationTable | None = None
    trained: Trained | None = None

    @property
    def name(self) -> str:
        """`scheme on target`."""
        return f"{self.scheme} on {self.target}"


@dataclass(frozen=True)
class Baseline:
    """What the FP32 model said about the evaluation samples.

    Args:
        predictions: For every metric.
        outputs: File with the outputs that were kept.
        finite: Outputs that were finite for every sample.
    """

    predictions: Predictions
    outputs: Path
    finite: frozenset[str]


@dataclass(frozen=True)
class Measured:
    """What an artifact said about the evaluation samples."""

    predictions: Predictions
    fidelity: Fidelity | None


class Workshop:
    """What all candidates of a run share: the recipe, the model, the data, the cache.

    Args:
        bound: The bound recipe.
        prepared: Model and data.
        cache: Where stage results are.
    """

    def __init__(self, bound: Bound, prepared: Prepared, cache: StageCache) -> None:
        parts = parts_of(bound, prepared)
        self.bound = with_slices(with_metadata(bound, prepared.path), parts)
        self.slices = members_of(parts)
        self.prepared = prepared
        self.cache = cache
        self._recipe = bound.loaded.recipe

    def plan(self, scheme: str, target: str) -> PrecisionPlan:
        """The plan of a scheme for a target, before anything was measured.

        Raises:
            PlanError: A pattern matches no layer.
        """
        try:
            return self.bound.schemes[scheme].plan(read_model(self.prepared.path), self.prepared.layers, self.bound.targets[target].dialect)
        except QuantError as error:
            raise error.at(self.bound.where(scheme)) from error

    def calibrate(self, pairs: list[tuple[Scheme, Target, PrecisionPlan]], *, path: Path | None = None) -> CalibrationTable | None:
        """One pass over the calibration data for all candidates, of the FP32 model or of that in `path`; None when none of them needs any."""
        path = path or self.prepared.path
        model, digest = read_model(path), model_digest(path)
        needs = [_needs(model, scheme, plan, target) for scheme, target, plan in pairs]
        tensors = sorted({name for need in needs for name in need.ranges})
        magnitudes = any(need.magnitudes for need in needs)
        means = sorted(set().union(*(need.means for need in needs)))
        moments = {name: length for need in needs for name, length in sorted(need.moments.items())}
        if not tensors and not magnitudes and not moments:
            return None
        samples = self.prepared.data.roles["calibration"]
        feeding = self.prepared.feeding(self.bound, self._recipe.calibration.batch_size)

        def produce(folder: Path) -> None:
            calibrate(path, samples, tensors, feeding, magnitudes=magnitudes, digest=digest, means=means, moments=moments).save(folder)

        key = {
            **self._key("calibration", feeding.batch_size),
            "model": digest,
            "tensors": tensors,
            "magnitudes": magnitudes,
            "means": means,
            "moments": moments,
        }
        return CalibrationTable.load(self.cache.stage("calibrate", key, produce))

    def _key(self, role: str, batch_size: int) -> dict[str, Any]:
        spec = self._recipe.model
        return {"model": self.prepared.digest, "data": self.prepared.data.roles[role].digest, "batch": batch_size, "state": spec.state, "axes": spec.batch_axes}

    def build(self, scheme: str, target: str, plan: PrecisionPlan, table: CalibrationTable | None) -> Built:
        """Quantize for a target and write its artifact."""
        engine = self.bound.targets[target]
        use = self.bound.use(scheme)
        evidence = table or CalibrationTable(self.prepared.digest, "", 0, {}, {})
        needs = _needs(read_model(self.prepared.path), self.bound.schemes[scheme], plan, engine)
        base = improved(self, scheme, target, plan, evidence)

        def produce(folder: Path) -> None:
            how = self.bound.schemes[scheme]
            told: list[Trained] = []
            training = training_material(self, base.path, scratch, told.append) if needs.training else None
            model, done, found = apply(
                base.path, how, plan=plan, table=base.table, calibrator=self.bound.calibrator, dialect=engine.dialect, given=base.ranges, training=training
            )
            for trained in told:
                trained.save(folder / TRAINED)
                found |= {tensor: Range(*pair) for tensor, pair in trained.ranges.items()}
            done = settled(self, engine, model, done)
            keep_graph(model, folder)
            artifact = self._export(engine, model, folder / "files", scheme)
            share_graph(folder, artifact, folder / "files")
            self._complete(artifact, engine).save(folder / "files" / ARTIFACT_FILE)
            done.save(folder / _PLAN)
            (folder / _RANGES).write_text(json.dumps(found, sort_keys=True), encoding="utf-8")

        key = {
            "model": self.prepared.digest,
            "plan": plan.digest,
            "scheme": [scheme, use.kind, use.options],
            "calibrator": self._recipe.calibration.calibrator.model_dump(mode="json") if needs.ranges else None,
            "table": evidence.digest if needs.ranges or needs.magnitudes or needs.moments else None,
            "target": self._target_key(target),
            "improved": improvement_digest(base) if base.story.steps else None,
            "training": training_key(self) if needs.training else None,
            "levels": settling_key(self, engine, plan),
        }
        scratch = self.cache.scratch("apply", key)
        folder = self.cache.stage(f"apply:{scheme} on {target}", key, produce)
        shutil.rmtree(scratch, ignore_errors=True)
        ranges = {name: Range(*pair) for name, pair in json.loads((folder / _RANGES).read_text(encoding="utf-8")).items()}
        artifact, carried_out = Artifact.load(folder / "files" / ARTIFACT_FILE), PrecisionPlan.load(folder / _PLAN)
        trained = Trained.load(folder / TRAINED) if (folder / TRAINED).exists() else None
        return Built(scheme, target, artifact, folder / "files", carried_out, ranges, graph_in(folder), base.story, base.table, trained)

    @property
    def layer_outputs(self) -> dict[str, str]:
        """Layer -> the tensor that it makes."""
        return {layer.name: str(layer.node.outputs[0].name) for layer in self.prepared.layers}

    def _complete(self, artifact: Artifact, engine: Target) -> Artifact:
        """`artifact` with all that it takes to open and to audit it where nothing but its folder is left."""
        told = engine.options.model_dump(mode="json", exclude_defaults=True, exclude={"allow_fallback"})
        return artifact.model_copy(update={"options": told, "layers": self.layer_outputs})

    def export(self, model: ir.Model, folder: Path, *, scheme: str, target: str) -> Artifact:
        """Write a quantized graph as an artifact of `target`.

        Raises:
            TargetError: The engine refuses it.
        """
        engine = self.bound.targets[target]
        return self._complete(self._export(engine, model, folder, scheme), engine)

    def _export(self, engine: Target, model: ir.Model, folder: Path, scheme: str) -> Artifact:
        if not isinstance(engine, TakesSamples):
            return engine.export(model, folder, scheme=scheme, **self._shapes(engine))
        feeding = self.prepared.feeding(self.bound, self._recipe.latency.batch_size)
        samples = requests(self.prepared.data.roles["evaluation"], feeding, most=engine.reference_samples)
        return engine.export(model, folder, scheme=scheme, samples=samples, **self._shapes(engine))

    def _target_key(self, target: str) -> Any:
        engine = self.bound.targets[target]
        shapes = {name: list(map(list, found)) for name, found in self._shapes(engine).get("shapes", {}).items()}
        use = self._recipe.targets[list(self.bound.targets).index(target)]
        key = {"use": use.model_dump(mode="json"), "version": engine.available().version, "shapes": shapes}
        return {**key, "samples": self._key("evaluation", self._recipe.latency.batch_size)} if isinstance(engine, TakesSamples) else key

    def _shapes(self, engine: Target) -> dict[str, Mapping[str, Shapes]]:
        """`shapes` for the export to an engine that is built ahead of time, takes samples as well, or asks for them; nothing for others."""
        if not engine.ahead_of_time and not isinstance(engine, (TakesSamples, TakesShapes)):
            return {}
        feeding = self.prepared.feeding(self.bound, max(self._recipe.calibration.batch_size, self._recipe.evaluation.batch_size))
        roles = {role: self.prepared.data.roles[role] for role in ("calibration", "evaluation")}

        def produce(folder: Path) -> None:
            write_text(folder / _SHAPES, json.dumps(input_shapes(roles.values(), feeding, usual_batch=self._recipe.latency.batch_size), sort_keys=True))

        keys = {role: self._key(role, feeding.batch_size) for role in roles}
        folder = self.cache.stage("shapes", {**keys, "usual": self._recipe.latency.batch_size}, produce)
        found = json.loads((folder / _SHAPES).read_text(encoding="utf-8"))
        return {"shapes": {name: Shapes(*map(tuple, three)) for name, three in found.items()}}

    def build_baseline(self, target: str) -> Built:
        """The FP32 model as an artifact of the same engine, for sizes and times."""

        def produce(folder: Path) -> None:
            engine = self.bound.targets[target]
            artifact = self._export(engine, read_model(self.prepared.path), folder / "files", BASELINE)
            self._complete(artifact, engine).save(folder / "files" / ARTIFACT_FILE)

        folder = self.cache.stage(f"apply:{BASELINE} on {target}", {"model": self.prepared.digest, "target": self._target_key(target)}, produce)
        return Built(BASELINE, target, Artifact.load(folder / "files" / ARTIFACT_FILE), folder / "files", None, {}, self.prepared.path)

    def audit(self, built: Built) -> Audit:
        """What the engine runs for each planned layer."""
        engine = self.bound.targets[built.target]
        plan = built.plan
        assert plan is not None, "the baseline has no plan to hold the engine to"

        def produce(folder: Path) -> None:
            engine.audit(built.artifact, built.folder, plan, self.layer_outputs).save(folder / _AUDIT)

        key = {"artifact": built.artifact.digest, "plan": plan.digest, "machine": environment()}
        return Audit.load(self.cache.stage(f"audit:{built.name}", key, produce) / _AUDIT)

    @property
    def fidelity_output(self) -> str | None:
        """The output whose closeness to FP32 is shown: the recipe's, or the first that holds floats."""
        asked = self._recipe.evaluation.fidelity_output
        return asked or next((spec.name for spec in self.prepared.signature.outputs if spec.dtype.startswith("float")), None)

    def has_classes(self, output: str) -> bool:
        """Whether the columns of `output` are scores of classes: a metric that takes classes, and nothing else, reads it."""
        first = self.prepared.signature.outputs[0].name
        uses = zip(self._recipe.evaluation.metrics, self.bound.metrics.values(), strict=True)
        return any((use.options.get("output") or first) == output and takes_classes(metric) for use, metric in uses)

    def check(self) -> None:
        """Let every metric read what the FP32 model makes of two samples, before any long work.

        Raises:
            QuantError: One cannot.
        """
        check_outputs(self.bound, [spec.name for spec in self.prepared.signature.outputs])
        check_training(self)
        warn_of_too_few(self.bound, self.slices, len(self.prepared.data.roles["evaluation"]))
        feeding = self.prepared.feeding(self.bound, self._recipe.evaluation.batch_size)
        samples = self.prepared.data.roles["evaluation"]

        def produce(_folder: Path) -> None:
            try_metrics(self.bound, Runtime(self.prepared.path), samples, feeding)

        self.cache.stage("check", self.evaluation_key(feeding.batch_size), produce)

    def evaluate_baseline(self) -> Baseline:
        """The FP32 model over the evaluation samples.

        Raises:
            ModelError: An output that is to be compared is not finite.
            QuantError: A sample cannot be used, or a gate means nothing for what was found.
        """
        feeding = self.prepared.feeding(self.bound, self._recipe.evaluation.batch_size)
        samples = self.prepared.data.roles["evaluation"]

        def produce(folder: Path) -> None:
            runtime = Runtime(self.prepared.path)
            found = evaluate(runtime.run, samples, feeding, self.bound.metrics, title="evaluating fp32", keep=self.fidelity_output)
            found.predictions.save(folder / _PREDICTIONS)
            Reference(folder / _OUTPUTS).write(found.kept)
            (folder / _NOT_FINITE).write_text(json.dumps(found.not_finite, sort_keys=True), encoding="utf-8")

        folder = self.cache.stage("evaluate:fp32", self.evaluation_key(feeding.batch_size), produce)
        not_finite: dict[str, int] = json.loads((folder / _NOT_FINITE).read_text(encoding="utf-8"))
        if self.fidelity_output in not_finite:
            what = f"output {self.fidelity_output!r} of the FP32 model is not finite for {not_finite[self.fidelity_output]} of {len(samples)} samples"
            hint = "look for an overflow in the model, or name another output with `evaluation.fidelity_output`"
            raise ModelError(what, where=self.bound.loaded.where(("model",)), hint=hint)
        predictions = Predictions.load(folder / _PREDICTIONS)
        check_gates(self.bound, metric_values(self.bound, predictions))
        finite = frozenset(spec.name for spec in self.prepared.signature.outputs if spec.name not in not_finite)
        return Baseline(predictions, folder / _OUTPUTS, finite)

    def evaluation_key(self, batch_size: int) -> dict[str, Any]:
        """Everything that predictions on the evaluation samples depend on, besides what makes them."""
        metrics = [use.model_dump(mode="json") for use in self._recipe.evaluation.metrics]
        return {**self._key("evaluation", batch_size), "metrics": metrics, "code": self.bound.code, "fidelity": self.fidelity_output, "machine": environment()}

    def evaluate(self, built: Built, baseline: Baseline) -> Measured:
        """An artifact in its engine over the evaluation samples, and how close its outputs are to the baseline's.

        Raises:
            QuantError: The engine refuses the artifact, or a metric cannot read what it gives.
        """
        feeding = self.prepared.feeding(self.bound, self._recipe.evaluation.batch_size)
        samples = self.prepared.data.roles["evaluation"]

        def produce(folder: Path) -> None:
            session = self.bound.targets[built.target].session(built.artifact, built.folder, threads=1)
            against = Reference(baseline.outputs).read()
            found = evaluate(
                session.run,
                samples,
                feeding,
                self.bound.metrics,
                title=f"evaluating {built.name}",
                keep=self.fidelity_output,
                against=against,
                finite=baseline.finite,
                until=until_sure(self.bound, self.slices, baseline.predictions, samples=len(samples)),
                repeats=1 if is_steady(session.run, samples, feeding) else self._recipe.evaluation.repeats,
            )
            if found.not_finite:
                (folder / _NOT_FINITE).write_text(json.dumps(found.not_finite, sort_keys=True), encoding="utf-8")
                return
            found.predictions.save(folder / _PREDICTIONS)
            if found.closeness is not None:
                found.closeness.save(folder / _FIDELITY)

        key = {**self.evaluation_key(feeding.batch_size), "artifact": built.artifact.digest, "repeats": self._recipe.evaluation.repeats}
        if sequential_of(self.bound) is not None:
            key |= {"until": gates_key(self.bound)}
        folder = self.cache.stage(f"evaluate:{built.name}", key, produce)
        if (folder / _NOT_FINITE).exists():
            found = json.loads((folder / _NOT_FINITE).read_text(encoding="utf-8"))
            said = ", ".join(f"output {name!r} is not finite for {count} of {len(samples)} samples" for name, count in found.items())
            raise TargetError(f"{said}, where FP32's is")
        closeness = Fidelity.load(folder / _FIDELITY) if (folder / _FIDELITY).exists() else None
        return Measured(Predictions.load(folder / _PREDICTIONS), closeness)


def metric_values(bound: Bound, predictions: Predictions) -> dict[str, float]:
    """Name -> value of every metric."""
    return {name: float(metric.value(predictions.records[name])) for name, metric in bound.metrics.items()}


def _needs(model: ir.Model, scheme: Scheme, plan: PrecisionPlan, target: Target) -> Needs:
    needs = scheme.needs(model, plan, target.dialect)
    return replace(needs, magnitudes=needs.magnitudes or target.dialect.body != "fp32")
