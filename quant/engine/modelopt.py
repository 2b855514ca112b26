"""from_modelopt: a torch module with NVIDIA ModelOpt's quantizers becomes artifacts of our targets, its weights and scales kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from calibrators import CALIBRATORS
from quant.core.arguments import with_checked_arguments
from quant.core.dialect import Dialect
from quant.core.digest import digest_of, digest_of_arrays
from quant.core.documents import Artifact, PrecisionPlan
from quant.core.files import whole_folder
from quant.core.table import CalibrationTable
from quant.data.samples import Feed, Sample
from quant.engine.shapes import input_shapes
from quant.errors import DataError, PlanError
from quant.graph.importing import ImportReport
from quant.graph.importing.bring import import_module
from quant.graph.importing.modelopt import Quantized, read_quantizers, without_quantizers
from quant.graph.layers import find_layers
from quant.graph.model import MODEL_FILE, model_digest, read_model, signature
from quant.graph.planning import with_more_reasons
from quant.graph.runtime import Runtime
from quant.stages.agree import feeds_of
from quant.stages.apply import apply
from quant.stages.calibrate import calibrate
from quant.stages.carry import Carried, carried
from quant.stages.first_run import ARTIFACT_FILE
from quant.stages.levels import MOST_SAMPLES, settle_levels
from quant.stages.measure import requests
from quant.stages.running import Feeding
from quant.targets import TARGETS, Shapes, TakesSamples, TakesShapes, Target

_EXAMPLES = 2


@dataclass(frozen=True)
class _Inputs:
    """Examples as calibration samples.

    Args:
        feeds: One for each example, without the batch axis.
        role: As that of a recipe's samples.
    """

    feeds: tuple[Feed, ...]
    role: str = "calibration"

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over all of them."""
        return digest_of([digest_of_arrays({name: np.asarray(array) for name, array in feed.items()}) for feed in self.feeds])

    def __len__(self) -> int:
        return len(self.feeds)

    def __getitem__(self, position: int, /) -> Sample:
        return Sample(position, (self.feeds[position],))

    def __iter__(self) -> Iterator[Sample]:
        return (self[position] for position in range(len(self)))


@dataclass(frozen=True)
class FromModelOpt:
    """A model that ModelOpt has quantized: its FP32 graph, and how each of its modules is quantized.

    Args:
        path: The FP32 graph; with what `pre_quant_scale` multiplies inputs by, if anything.
        modules: Name of a module -> how ModelOpt quantizes it.
        report: How the graph was brought in.
        inputs: The examples, for ranges of tensors that ModelOpt has none for and a target wants.
        batch_axes: Input -> its batch axis, None for an input without one; 0 for those not named.
    """

    path: Path
    modules: Mapping[str, Quantized]
    report: ImportReport
    inputs: _Inputs
    batch_axes: Mapping[str, int | None]

    @cached_property
    def scheme(self) -> Carried:
        """What writes the graph: as any scheme, with ModelOpt's choices."""
        return carried(self.modules)

    def plan(self, dialect: Dialect) -> PrecisionPlan:
        """What each layer runs in on a target of that dialect, and why."""
        model = read_model(self.path)
        return self.scheme.plan(model, find_layers(model), dialect)

    def table(self, dialect: Dialect) -> CalibrationTable:
        """Statistics of every tensor whose range a target of that dialect wants, from the examples."""
        model = read_model(self.path)
        needs = self.scheme.needs(model, self.plan(dialect), dialect)
        return calibrate(self.path, self.inputs, sorted(needs.ranges), self._feeding, magnitudes=dialect.body != "fp32", digest=model_digest(self.path))

    def apply(self, dialect: Dialect) -> tuple[ir.Model, PrecisionPlan]:
        """The quantized graph in a dialect, and the plan as it was carried out.

        Raises:
            PlanError: A target of that dialect can run none of the layers that ModelOpt quantizes.
        """
        plan = self.plan(dialect)
        if not plan.quantized:
            raise PlanError(f"none of the layers can be written: {'; '.join(sorted({choice.reason for choice in plan.layers}))}")
        given = self.scheme.ranges(read_model(self.path), plan, dialect)
        calibrator = CALIBRATORS.make("minmax")  # as ModelOpt's own, for the few tensors that it has no scale for
        model, done, _ = apply(self.path, self.scheme, plan=plan, table=self.table(dialect), calibrator=calibrator, dialect=dialect, given=given)
        if dialect.int4 is not None and dialect.int4.accuracy_level is None:
            run = Runtime(self.path).run
            done = with_more_reasons(done, settle_levels(model, feeds_of(self.inputs, self._feeding, run, most=MOST_SAMPLES), run))
        return model, done

    def export(self, target: str | Target, folder: Path | str) -> Artifact:
        """Write the artifact for a target (its kind, or one made with options) into `folder`, the plan beside it.

        Raises:
            QuantError: The target cannot run the model, or does not take it.
        """
        engine = TARGETS.make(target) if isinstance(target, str) else target
        model, plan = self.apply(engine.dialect)
        with whole_folder(Path(folder)) as part:
            artifact = engine.export(model, part, scheme=self.scheme.kind, **self._wanted(engine))
            layers = {layer.name: str(layer.node.outputs[0].name) for layer in find_layers(read_model(self.path))}
            told = engine.options.model_dump(mode="json", exclude_defaults=True, exclude={"allow_fallback"})
            artifact = artifact.model_copy(update={"options": told, "layers": layers})
            artifact.save(part / ARTIFACT_FILE)
            plan.save(part / "plan.json")
        return artifact

    @property
    def _feeding(self) -> Feeding:
        return Feeding(signature(read_model(self.path)), len(self.inputs), batch_axes=self.batch_axes)

    def _wanted(self, engine: Target) -> dict[str, Any]:
        """What the export to `engine` asks for besides the graph: shapes, samples."""
        feeding = self._feeding
        wanted: dict[str, Any] = {}
        if engine.ahead_of_time or isinstance(engine, (TakesSamples, TakesShapes)):
            wanted["shapes"] = {name: Shapes(*map(tuple, found)) for name, found in input_shapes([self.inputs], feeding, usual_batch=1).items()}
        if isinstance(engine, TakesSamples):
            wanted["samples"] = requests(self.inputs, replace(feeding, batch_size=1), most=engine.reference_samples)
        return wanted


@with_checked_arguments
def from_modelopt(
    model: Any, inputs: Mapping[str, npt.NDArray[Any]], folder: Path | str, *, batch_axes: Mapping[str, int | None] | None = None
) -> FromModelOpt:
    """Read a torch model that `modelopt.torch.quantization` has quantized: INT8, FP8, or weights in INT4.

    Args:
        model: The module, calibrated, trained further or not; it is not changed.
        inputs: Name of each argument of its `forward` -> a batch of examples; two at least.
        folder: Where the FP32 graph is written.
        batch_axes: Input -> its batch axis, None for an input without one; 0 for those not named.

    Raises:
        ModelError: The model has no such quantizers, or some that cannot be written, or cannot be exported.
        DataError: There are too few examples.
    """
    modules = read_quantizers(model)
    carried(modules)  # refused before any long work
    axes = dict(batch_axes or {})
    feeds = _feeds(inputs, axes)
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    report = import_module(without_quantizers(model), path, examples=feeds[:_EXAMPLES], batch_axes=axes)
    return FromModelOpt(path / MODEL_FILE, modules, report, _Inputs(tuple(feeds)), axes)


def _feeds(inputs: Mapping[str, npt.NDArray[Any]], axes: Mapping[str, int | None]) -> Sequence[Feed]:
    lengths = {name: np.shape(array)[axis] for name, array in inputs.items() if (axis := axes.get(name, 0)) is not None}
    if len(set(lengths.values())) != 1 or min(lengths.values()) < _EXAMPLES:
        raise DataError(f"inputs hold {lengths or 'no'} examples", hint="give a batch of at least two, of the same length for every input")

    def one(name: str, array: npt.NDArray[Any], position: int) -> npt.NDArray[Any]:
        axis = axes.get(name, 0)
        return array if axis is None else np.take(array, position, axis=axis)

    return [{name: one(name, np.asarray(array), position) for name, array in inputs.items()} for position in range(next(iter(lengths.values())))]
