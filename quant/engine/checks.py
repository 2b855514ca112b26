"""What a recipe says of a model and of data, held to what the model and the data are: before any work starts."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from quant.core.protocols import Metric
from quant.core.registry import did_you_mean
from quant.core.signature import Signature, TensorSpec
from quant.data.load import Data
from quant.data.samples import Sample, Samples
from quant.engine.bind import Bound
from quant.errors import DataError, ModelError, QuantError, RecipeError
from quant.graph.importing.head import LOGITS
from quant.graph.runtime import Runtime
from quant.recipe.tree import Location
from quant.stages.running import Feeding, run_samples


def check_model_names(bound: Bound, signature: Signature) -> None:
    """Every input and output that the recipe names is one of the model's.

    Args:
        bound: The recipe.
        signature: Of the model as it came in, before a head is fused into it.

    Raises:
        RecipeError: One is not; the hint names the nearest ones.
    """
    spec = bound.loaded.recipe.model
    inputs = {found.name: found for found in signature.inputs}
    outputs = {found.name: found for found in signature.outputs}
    for name, source in spec.state.items():
        place = ("model", "state", name)
        _known(bound, name, inputs, "model.state: the model has no input", place)
        _known(bound, source, outputs, "model.state: the model has no output", place)
        _check_state(bound, inputs[name], outputs[source], place)
    for name, axis in spec.batch_axes.items():
        place = ("model", "batch_axes", name)
        _known(bound, name, inputs, "model.batch_axes: the model has no input", place)
        rank = None if (shape := inputs[name].shape) is None else len(shape)
        if axis is not None and rank is not None and not -rank <= axis < rank:
            what = f"model.batch_axes: input {inputs[name]} has no axis {axis}"
            raise RecipeError(what, where=bound.loaded.where(place), hint="axes are counted from 0; null says that there is none")
    if spec.head is not None and spec.head.output is not None:
        _known(bound, spec.head.output, outputs, "model.head.output: the model has no output", ("model", "head", "output"))
    check_outputs(bound, [*outputs, *([LOGITS] if spec.head is not None else [])])


def check_outputs(bound: Bound, outputs: Collection[str]) -> None:
    """Every output that a metric or the fidelity reads is one of the model's.

    Raises:
        RecipeError: One is not; the hint names the nearest ones.
    """
    spec = bound.loaded.recipe.evaluation
    if spec.fidelity_output is not None:
        _known(bound, spec.fidelity_output, outputs, "evaluation.fidelity_output: the model has no output", ("evaluation", "fidelity_output"))
    for number, use in enumerate(spec.metrics):
        if isinstance(name := use.options.get("output"), str):
            _known(bound, name, outputs, f"metric {use.title}: the model has no output", ("evaluation", "metrics", number, "output"))


def _known(bound: Bound, name: str, known: Collection[str], what: str, place: Location) -> None:
    if name not in known:
        raise RecipeError(f"{what} {name!r}", where=bound.loaded.where(place), hint=did_you_mean(name, sorted(known)))


def _check_state(bound: Bound, taken: TensorSpec, given: TensorSpec, place: Location) -> None:
    """What a state's output gives can go into its input at the next step."""
    lengths = zip(taken.shape, given.shape, strict=False) if taken.shape is not None and given.shape is not None else ()
    differ = any(isinstance(one, int) and isinstance(two, int) and one != two for one, two in lengths)
    ranks = taken.shape is not None and given.shape is not None and len(taken.shape) != len(given.shape)
    if taken.dtype != given.dtype or differ or ranks:
        what = f"model.state: output {given} cannot feed input {taken}"
        raise RecipeError(what, where=bound.loaded.where(place), hint="name the output that holds this state after a step")


def check_sizes(bound: Bound, data: Data) -> None:
    """There are as many samples as the recipe wants at least.

    Raises:
        DataError: There are fewer.
    """
    recipe = bound.loaded.recipe
    for role, minimum in (("calibration", recipe.calibration.minimum), ("evaluation", recipe.evaluation.minimum)):
        have = len(data.roles[role])
        if have < minimum:
            what = f"{have} {role} samples, the recipe wants at least {minimum}"
            raise DataError(what, where=bound.loaded.where((role, "minimum")), hint=f"give more data, or lower {role}.minimum")


def check_labels(bound: Bound, data: Data) -> None:
    """Every metric accepts the label of every evaluation sample.

    Raises:
        DataError: One does not; the message names the sample.
    """
    if not bound.metrics:
        return
    for index, label in _labels(data.roles["evaluation"]):
        for name, metric in bound.metrics.items():
            try:
                metric.check_label(label)
            except DataError as error:
                raise error.at(f"evaluation sample {index} (metric {name})") from error


def _labels(samples: Samples) -> list[tuple[int, object]]:
    entries = getattr(samples, "entries", None)
    return [(e.index, e.label) for e in entries] if entries is not None else [(s.index, s.label) for s in samples]


@dataclass(frozen=True)
class _Chosen:
    """A few samples of a role."""

    samples: Samples
    positions: tuple[int, ...]

    @property
    def role(self) -> str:
        return self.samples.role

    @property
    def digest(self) -> str:
        return self.samples.digest

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, position: int, /) -> Sample:
        return self.samples[self.positions[position]]

    def __iter__(self) -> Iterator[Sample]:
        return (self[position] for position in range(len(self)))


def try_metrics(bound: Bound, runtime: Runtime, samples: Samples, feeding: Feeding) -> None:
    """Run the FP32 model on the first evaluation sample and on that with the largest label, and let every metric read them.

    Raises:
        QuantError: The model cannot run, or a metric cannot read its outputs: another output is meant, or there are fewer classes than labels.
    """
    chosen = _Chosen(samples, tuple(dict.fromkeys((0, _largest_label(samples)))))
    for position, outputs in run_samples(runtime.run, chosen, feeding):
        sample = chosen[position]
        for number, (name, metric) in enumerate(bound.metrics.items()):
            try:
                metric.record(outputs, sample.label)
            except QuantError as error:
                place = bound.loaded.where(("evaluation", "metrics", number))
                raise type(error)(f"metric {name}, evaluation sample {sample.index}: {error.what}", where=error.where or place, hint=error.hint) from error


def _largest_label(samples: Samples) -> int:
    """Position of the sample with the largest class among its labels; 0 when labels are no numbers."""
    largest = [_largest_class(label) for _, label in _labels(samples)]
    return largest.index(max(largest))


def _largest_class(label: object) -> int:
    if not isinstance(label, int | np.integer | np.ndarray) or not np.issubdtype(np.asarray(label).dtype, np.integer):
        return -1
    return int(np.max(label, initial=-1))


def check_gates(bound: Bound, values: dict[str, float]) -> None:
    """The limit of every gate means something for the value that FP32 reaches.

    Args:
        bound: The recipe.
        values: Name of a metric -> the FP32 model's value.

    Raises:
        ModelError: The FP32 model's value is not finite.
        RecipeError: A drop is a share of nothing.
    """
    for number, (name, gate) in enumerate(bound.gates):
        where = bound.loaded.where(("gate", number))
        if not np.isfinite(values[name]):
            raise ModelError(
                f"the FP32 model's {name} is {values[name]}", where=where, hint="look at its outputs with `quant evaluate`, and for an overflow in it"
            )
        if gate.relative and values[name] == 0:
            what = f"the drop of {name} cannot be a share of FP32's value: that is 0"
            raise RecipeError(what, where=where, hint="set `relative: false` and an absolute `max_drop`")


def takes_classes(metric: Metric) -> bool:
    """Whether a metric takes classes as labels, and nothing else."""

    def takes(label: object) -> bool:
        try:
            metric.check_label(label)
        except DataError:
            return False
        return True

    return takes(1) and not takes(0.5)
