"""Plans on search samples: the error of the whole, and whether the gate would pass if the evaluation samples were like these."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evaluators.gate import gate
from quant.core.documents import Document, PrecisionPlan, Verdict
from quant.core.files import write_text
from quant.core.protocols import Records
from quant.data.first import FirstSamples
from quant.engine.machine import environment
from quant.engine.mixing.binding import TITLE
from quant.engine.mixing.ground import Ground
from quant.engine.mixing.shares import surer
from quant.errors import QuantError, RunError
from quant.graph.model import read_model
from quant.graph.runtime import Runtime
from quant.planner.loop import Joint
from quant.recipe.schema import GateSpec
from quant.sensitivity.measuring.outputs import OutputMeasure, choose_measures
from quant.stages.evaluate import Predictions, evaluate
from quant.stages.joint import joint_error
from quant.stages.running import Feeding

_PREDICTIONS, _JOINT = "predictions.npz", "joint.json"
_BROKEN = 1e12
"""The error of a plan whose outputs are not finite, or that the engine refuses."""


class _Measured(Document):
    """What a trial found, as it is kept."""

    error: float
    standard_error: float
    passes: tuple[bool, ...]
    told: str


class Search:
    """Measures plans of one target on the search samples.

    Args:
        ground: What plans stand on.
        shares: The share of a gate's error probability that each look at the evaluation samples has: a plan passes for a look if it would there.
    """

    def __init__(self, ground: Ground, shares: tuple[float, ...] = (1.0,)) -> None:
        self.ground, self.workshop, self.shares = ground, ground.workshop, shares
        self.bound = ground.workshop.bound
        self.samples = self.workshop.prepared.data.roles["search"]
        self.few = FirstSamples(self.samples, ground.bound.spec.samples)

    @property
    def _feeding(self) -> Feeding:
        return self.workshop.prepared.feeding(self.bound, self.bound.loaded.recipe.evaluation.batch_size)

    @cached_property
    def measures(self) -> tuple[OutputMeasure, ...]:
        """What is measured of which output."""
        prepared = self.workshop.prepared
        outputs = [spec.name for spec in prepared.signature.outputs]
        classes = [name for name in outputs if self.workshop.has_classes(name)]
        return choose_measures(read_model(prepared.path), prepared.signature, classes=classes)

    @property
    def key(self) -> dict[str, Any]:
        """All that a measurement depends on, besides the plan."""
        recipe = self.bound.loaded.recipe
        return {
            "ground": self.ground.key,
            "samples": self.samples.digest,
            "few": len(self.few),
            "batch": recipe.evaluation.batch_size,
            "gates": [[name, spec.model_dump(mode="json")] for name, spec in self.bound.gates],
            "metrics": [use.model_dump(mode="json") for use in recipe.evaluation.metrics],
            "evaluation": len(self.workshop.prepared.data.roles["evaluation"]),
            "max_error": self.ground.bound.spec.max_error,
            "shares": self.shares,
            "code": self.bound.code,
            "machine": environment(),
        }

    @cached_property
    def _baseline(self) -> Predictions:
        def produce(folder: Path) -> None:
            runtime = Runtime(self.workshop.prepared.path)
            evaluate(runtime.run, self.samples, self._feeding, self.bound.metrics, title="FP32 on search samples").predictions.save(folder / _PREDICTIONS)

        key = {k: v for k, v in self.key.items() if k not in {"ground", "gates", "max_error", "shares"}}
        key = {**key, "model": self.workshop.prepared.digest, "state": self.bound.loaded.recipe.model.state}
        return Predictions.load(self.workshop.cache.stage("evaluate:fp32 on search samples", key, produce) / _PREDICTIONS)

    @cached_property
    def _reference(self) -> Runtime:
        return Runtime(self.workshop.prepared.path)

    def measure(self, choices: Mapping[str, str], look: int = 0) -> Joint:
        """A plan as a whole, in the engine; kept like any other stage's result.

        Args:
            choices: Layer -> format.
            look: Number of the look at the evaluation samples that it is to pass.

        Raises:
            RunError: The disk is full, or cannot be written.
        """
        plan = self.ground.plan(choices)

        def produce(folder: Path) -> None:
            with tempfile.TemporaryDirectory(prefix="quant-plan-") as scratch:
                write_text(folder / _JOINT, self._measured(plan, Path(scratch)).to_json())

        folder = self.workshop.cache.stage(f"try:{TITLE} on {self.ground.target}", {**self.key, "plan": plan.digest}, produce)
        found = json.loads((folder / _JOINT).read_text(encoding="utf-8"))
        return Joint(found["error"], found["standard_error"], found["passes"][look], found["told"])

    def _measured(self, plan: PrecisionPlan, scratch: Path) -> _Measured:
        never = (False,) * len(self.shares)
        try:
            model, _, _ = self.ground.write(plan)
            artifact = self.workshop.export(model, scratch, scheme=TITLE, target=self.ground.target)
            session = self.ground.engine.session(artifact, scratch, threads=1)
            error, spread = joint_error(session.run, self._reference.run, self.few, self._feeding, self.measures)
            found = evaluate(session.run, self.samples, self._feeding, self.bound.metrics, title="measuring a plan", finite=self._finite)
        except RunError:
            raise
        except QuantError as refused:
            return _Measured(error=_BROKEN, standard_error=0.0, passes=never, told=" ".join(refused.what.split()))
        if found.not_finite:
            return _Measured(error=error, standard_error=spread, passes=never, told=f"{', '.join(sorted(found.not_finite))} not finite")
        judged = [self._judged(found.predictions, error, share) for share in self.shares]
        return _Measured(error=error, standard_error=spread, passes=tuple(passes for _, passes in judged), told=judged[0][0])

    @property
    def _finite(self) -> frozenset[str]:
        return frozenset(measure.output for measure in self.measures)

    def _judged(self, predictions: Predictions, error: float, share: float) -> tuple[str, bool]:
        limit = self.ground.bound.spec.max_error
        said, passes = [], True
        if limit is not None:
            passes = error <= limit
            said.append(f"error {error:.3g} of at most {limit:g}")
        for name, spec in surer(self.bound, share).gates:
            verdict = self._verdict(name, spec, predictions)
            passes = passes and verdict.decision == "pass"
            said.append(f"{name} drops by {verdict.drop:.3g}, at most {verdict.drop_upper:.3g} of {verdict.limit:g}")
        return "; ".join(said), passes

    def _verdict(self, name: str, spec: GateSpec, predictions: Predictions) -> Verdict:
        """The gate's verdict on as many samples as the evaluation has, if these were like the search samples: those are repeated."""
        rows = len(self.workshop.prepared.data.roles["evaluation"])
        baseline, groups = _repeated(self._baseline.records[name], self._baseline.groups[name], rows)
        candidate, _ = _repeated(predictions.records[name], predictions.groups[name], rows)
        return gate(
            self.bound.metrics[name],
            baseline,
            candidate=candidate,
            groups=groups,
            max_drop=spec.max_drop,
            relative=spec.relative,
            confidence=spec.confidence,
            resamples=spec.resamples,
            seed=self.bound.loaded.recipe.data.seed,
        )


def _repeated(records: Records, groups: npt.NDArray[np.int64], samples: int) -> tuple[Records, npt.NDArray[np.int64]]:
    """Records of samples repeated until there are `samples` of them; all of them once where there are as many.

    Example:
        >>> rows, groups = _repeated(np.array([[1.0], [2.0]]), np.array([0, 1]), 3)
        >>> rows.ravel().tolist(), groups.tolist()
        ([1.0, 2.0, 1.0], [0, 1, 2])
    """
    names, first = np.unique(groups, return_inverse=True)
    if len(names) >= samples:
        return records, groups
    times = -(-samples // len(names))
    numbers = np.concatenate([first + time * len(names) for time in range(times)])
    kept = numbers < samples
    return np.concatenate([records] * times)[kept], numbers[kept].astype(np.int64)
