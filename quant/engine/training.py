"""What a scheme that trains is given: samples, the FP32 model, metrics on the search samples, and a folder for checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quant.core.parallel import worker_count
from quant.core.protocols import Metric, Records
from quant.data.samples import Samples
from quant.errors import DataError, ModelError
from quant.stages.running import Run, run_samples
from quant.twin.training.material import Material, Trained, refuse_state

if TYPE_CHECKING:
    from quant.engine.candidates import Workshop

TRAINED = "trained.json"


@dataclass(frozen=True)
class _Roles:
    """The samples that training uses."""

    train: Samples
    search: Samples | None


def _roles(workshop: Workshop) -> _Roles:
    roles = workshop.prepared.data.roles
    return _Roles(roles.get("train") or roles["calibration"], roles.get("search"))


def training_key(workshop: Workshop) -> dict[str, Any]:
    """What a trained model depends on, besides the model, the plan and the scheme's options."""
    roles, recipe = _roles(workshop), workshop.bound.loaded.recipe
    found = {samples.role: samples.digest for samples in (roles.train, roles.search) if samples is not None}
    metrics = [use.model_dump(mode="json") for use in recipe.evaluation.metrics]
    return {"data": found, "axes": recipe.model.batch_axes, "state": recipe.model.state, "metrics": metrics, "code": workshop.bound.code}


def training_material(workshop: Workshop, path: Path, scratch: Path, tell: Callable[[Trained], None]) -> Material:
    """What is trained on: the train split, or, where the recipe has none, the calibration samples without their labels.

    Args:
        workshop: Model and data.
        path: The FP32 model as it is quantized: what its layers give is what the trained layers are to give.
        scratch: A folder for checkpoints.
        tell: Is given what training did.
    """
    prepared, roles, spec = workshop.prepared, _roles(workshop), workshop.bound.loaded.recipe.model
    outputs = [found.name for found in prepared.signature.outputs]
    return Material(
        path,
        prepared.signature,
        roles.train,
        search=roles.search,
        judged=frozenset(use.options.get("output") or outputs[0] for use in workshop.bound.loaded.recipe.evaluation.metrics),
        classes=frozenset(name for name in outputs if workshop.has_classes(name)),
        batch_axes=spec.batch_axes,
        state=frozenset(spec.state),
        measure=_measure(workshop, roles.search) if roles.search is not None else None,
        scratch=scratch,
        tell=tell,
        threads=worker_count(),
    )


def training_obstacle(workshop: Workshop, scheme: str) -> str | None:
    """Why the scheme of that title cannot train the recipe's model; None when it can, or does not train."""
    if workshop.bound.schemes[scheme].data != "training":
        return None
    try:
        refuse_state(workshop.bound.loaded.recipe.model.state)
    except ModelError as error:
        return error.what
    return None


def check_training(workshop: Workshop) -> None:
    """Refuse what a scheme that trains wants and the recipe does not have, before any long work.

    Raises:
        DataError: Early stopping without search samples, or labels that samples do not have.
    """
    roles = _roles(workshop)
    for title, scheme in workshop.bound.schemes.items():
        options = getattr(scheme, "options", None)
        if scheme.data != "training" or options is None:
            continue
        where = workshop.bound.where(title)
        if getattr(options, "early_stopping", None) is not None and roles.search is None:
            raise DataError(
                "early stopping is judged on search samples, and there are none", where=where, hint="give `data.splits.search`, as in `search: 500`"
            )
        if getattr(options, "loss", None) == "labels" and "train" not in workshop.prepared.data.roles:
            what = "training on labels needs a `train` split"
            raise DataError(what, where=where, hint="give `data.splits.train`, as in `train: rest`; `loss: distillation` takes calibration samples")


def _measure(workshop: Workshop, samples: Samples) -> Callable[[Run], Mapping[str, float]] | None:
    """Gives the metrics of a model on `samples`; None where these have no labels that a metric takes."""
    metrics = {name: metric for name, metric in workshop.bound.metrics.items() if _takes(metric, samples)}
    if not metrics:
        return None
    feeding = workshop.prepared.feeding(workshop.bound, workshop.bound.loaded.recipe.evaluation.batch_size)

    def measure(run: Run) -> dict[str, float]:
        records: dict[str, dict[int, Records]] = {name: {} for name in metrics}
        for position, outputs in run_samples(run, samples, feeding):
            label = samples[position].label
            for name, metric in metrics.items():
                records[name][position] = metric.record(outputs, label)
        return {name: float(metrics[name].value(np.concatenate([found[i] for i in sorted(found)]))) for name, found in records.items()}

    return measure


def _takes(metric: Metric, samples: Samples) -> bool:
    try:
        metric.check_label(samples[0].label)
    except DataError:
        return False
    return True
