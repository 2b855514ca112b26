"""profile: FP32 model + table + search samples -> sensitivity profile."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import onnx_ir as ir

from quant.core.dialect import Dialect
from quant.core.digest import digest_of
from quant.core.documents import PrecisionPlan
from quant.core.formats import FP16, GRIDS, Range
from quant.core.protocols import Calibrator
from quant.core.sensitivity import Effect, SensitivityProfile
from quant.core.table import CalibrationTable
from quant.data.batches import batches, safe_batch_size
from quant.data.samples import Samples
from quant.errors import PlanError
from quant.graph.behind import name_of
from quant.graph.fp16 import BFLOAT16, FLOAT16, write_fp16
from quant.graph.importing.opset import raise_opset
from quant.graph.importing.types import infer_types
from quant.graph.layers import find_layers, match_layers
from quant.graph.model import read_model
from quant.schemes import Evidence, Scheme
from quant.sensitivity import ESTIMATORS, Estimator, Found, Run, Subject
from quant.sensitivity.measuring.outputs import Measures, OutputMeasure, choose_measures
from quant.stages.apply import gather
from quant.stages.running import Array, Feeding, run_samples

FALLBACK = "exact"
"""Estimator of what the one that was asked for cannot tell."""


@dataclass(frozen=True)
class Profiling:
    """What a profile is made for.

    Args:
        schemes: Format -> the scheme that writes it.
        dialect: The form of graph that the target wants.
        calibrator: How ranges are chosen.
        feeding: How samples go in.
        samples: Samples that effects are measured on.
        measures: What is measured of which output; chosen by itself when empty.
        given: Tensor -> range that was chosen already.
        digest: Digest of the FP32 model.
    """

    schemes: Mapping[str, Scheme]
    dialect: Dialect
    calibrator: Calibrator
    feeding: Feeding
    samples: Samples
    measures: Sequence[OutputMeasure] = ()
    given: Mapping[str, Range] = field(default_factory=dict)
    digest: str = ""


def profile(path: Path, work: Profiling, *, table: CalibrationTable, estimator: Estimator, layers: Sequence[str] = ()) -> SensitivityProfile:
    """What each layer does to the outputs in each format.

    Args:
        path: The FP32 model.
        work: What it is made for.
        table: Calibration of the model, with all that the schemes need.
        estimator: How effects are found; where it cannot, `exact` does, and the profile says so.
        layers: Patterns of the layers that are wanted; all that a scheme can quantize when empty.

    Raises:
        PlanError: A pattern matches no layer, or no scheme can quantize any of them.
        ModelError: The model cannot be computed, or has no output that could be measured.
        DataError: A sample does not fit the model.
        CalibrationError: A range cannot be had.
    """
    subject = _Writing(path, work, table, layers).subject()
    found = estimator.estimate(subject)
    notes, estimators = [], {}
    if found.failed:
        left = {f: subject.candidates[f] for f in found.failed}
        rest = ESTIMATORS.make(FALLBACK).estimate(replace(subject, candidates=left))
        notes = [f"{f}: measured by `{FALLBACK}`, for `{estimator.kind}` cannot tell: {why}" for f, why in sorted(found.failed.items())]
        estimators = dict.fromkeys(sorted(left), FALLBACK)
        found = _joined(found, rest)
    return SensitivityProfile(
        measure=found.measure or subject.measures.name,
        estimator=estimator.kind,
        effects=_ordered(found.effects, subject.candidates),
        samples=found.samples,
        reference=found.reference,
        joint=tuple(found.joint),
        estimators=estimators,
        notes=tuple(notes),
        keys={"model": work.digest or table.model, "table": table.digest, "samples": work.samples.digest, "plans": _digest_of_plans(subject.candidates)},
    )


def _joined(found: Found, rest: Found) -> Found:
    effects, joint = [*found.effects, *rest.effects], [*found.joint, *rest.joint]
    some = found if found.effects else rest
    return Found(effects, some.samples, some.reference, joint, measure=some.measure)


def _ordered(effects: Sequence[Effect], candidates: Mapping[str, Sequence[str]]) -> tuple[Effect, ...]:
    """Effects by format and layer, in the order of the graph."""
    place = {(f, layer): number for number, (f, layer) in enumerate((f, layer) for f, layers in candidates.items() for layer in layers)}
    return tuple(sorted(effects, key=lambda effect: place[effect.format, effect.layer]))


def _digest_of_plans(candidates: Mapping[str, Sequence[str]]) -> str:
    return digest_of({f: list(layers) for f, layers in candidates.items()})


class _Writing:
    """Writes plans with some layers in one format.

    Args:
        path: The FP32 model.
        work: What for.
        table: Its calibration.
        layers: Patterns of the layers that are wanted.
    """

    def __init__(self, path: Path, work: Profiling, table: CalibrationTable, layers: Sequence[str]) -> None:
        self._path, self._work, self._table = path, work, table
        self._dialect = replace(work.dialect, body="fp32")  # an effect is that of a layer, whatever the rest is computed in
        least = [GRIDS[name].encoding.opset for name in work.schemes if name in GRIDS]
        self._model = raise_opset(read_model(path), max(work.dialect.opset, 0, *least))
        infer_types(self._model)
        found = find_layers(self._model)
        for node in self._model.graph:
            node.name = name_of(node)
        wanted = match_layers(found, layers) if layers else {layer.name for layer in found}
        self._plans = {f: _of(scheme.plan(self._model, found, self._dialect), wanted) for f, scheme in work.schemes.items()}
        self._evidence: dict[str, Evidence] = {}

    def subject(self) -> Subject:
        """What an estimator is given."""
        work, feeding = self._work, self._work.feeding
        candidates = {f: plan.quantized for f, plan in self._plans.items() if plan.quantized}
        if not candidates:
            reasons = sorted({c.reason for plan in self._plans.values() for c in plan.exclusions if c.reason})
            raise PlanError("no layer can be in any of the formats, so there is nothing to profile", hint="; ".join(reasons[:3]))
        chosen = work.measures or choose_measures(self._model, feeding.signature)
        size = safe_batch_size(feeding.signature, feeding.batch_size, batch_axes=feeding.batch_axes)
        return Subject(
            model=self._model,
            folder=self._path.parent,
            signature=feeding.signature,
            candidates=candidates,
            write=self.write,
            measures=Measures(chosen, feeding.signature, feeding.batch_axes, work.samples),
            batches=lambda: batches(work.samples, feeding.signature.inputs, batch_size=size, batch_axes=feeding.batch_axes),
            steps=partial(_steps, work.samples, feeding),
            remembers=bool(feeding.state),
        )

    def write(self, number_format: str, layers: Collection[str], *, plain: bool = False) -> ir.Model:
        """The graph with only `layers` in a format."""
        model = self._model.clone()
        if number_format not in GRIDS:
            _give_own_types(model)
            dtype = FLOAT16 if number_format == FP16.name else BFLOAT16
            write_fp16(model, keep=[node for node in model.graph if node.name not in layers], dtype=dtype)
            return model
        dialect = _in_standard_operators(self._dialect) if plain else self._dialect
        plan = _of(self._plans[number_format], layers)
        self._work.schemes[number_format].apply(model, plan, self._known(number_format), dialect)
        return model

    def _known(self, number_format: str) -> Evidence:
        """What a scheme may know of activations: for all of its layers at once, of which it takes what it needs."""
        if number_format not in self._evidence:
            work = self._work
            self._evidence[number_format], _ = gather(
                self._model,
                work.schemes[number_format],
                plan=self._plans[number_format],
                table=self._table,
                calibrator=work.calibrator,
                dialect=self._dialect,
                given=work.given,
            )
        return self._evidence[number_format]


def _of(plan: PrecisionPlan, layers: Collection[str]) -> PrecisionPlan:
    """`plan` with only `layers` in its format."""
    kept = (c if c.layer in layers or c.layer not in plan.quantized else c.model_copy(update={"format": "fp32", "reason": ""}) for c in plan.layers)
    return plan.model_copy(update={"layers": tuple(kept)})


def _give_own_types(model: ir.Model) -> None:
    """Let no value share its type with a value of the model that `model` was copied from: casts change types in place."""
    for value in (*model.graph.inputs, *model.graph.initializers.values(), *(v for node in model.graph for v in node.outputs)):
        if isinstance(value.type, ir.TensorType):
            value.type = ir.TensorType(value.type.dtype)


def _in_standard_operators(dialect: Dialect) -> Dialect:
    """`dialect` with weights in blocks behind DequantizeLinear."""
    form = dialect.int4
    if form is None:
        return dialect
    return replace(dialect, int4=replace(form, products="dequantize", tables=form.tables and "dequantize", accuracy_level=0))


def _steps(samples: Samples, feeding: Feeding, run: Run) -> Iterator[dict[str, Array]]:
    """The outputs of every step of a model that remembers, in order."""
    for _position, outputs in run_samples(run, samples, feeding):
        yield from outputs
