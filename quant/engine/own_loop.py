"""Quantization-aware training in a loop of the user's own: a torch module with quantizers, and the artifact that is made of it."""

from __future__ import annotations

import copy
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from quant.core.documents import Artifact, PrecisionPlan
from quant.core.files import disk_errors, make_folder
from quant.core.registry import did_you_mean
from quant.core.table import CalibrationTable
from quant.engine.bind import Bound
from quant.engine.cache import StageCache
from quant.engine.candidates import Workshop
from quant.engine.prepare import Prepared, prepare, prepare_module
from quant.errors import PlanError, RecipeError
from quant.graph.body import write_body
from quant.graph.qdq import Placed, freeze_qdq
from quant.schemes import Places
from quant.stages.apply import gather, opened
from quant.stages.first_run import ARTIFACT_FILE
from quant.twin.training.material import refuse_state

if TYPE_CHECKING:
    import torch

    from quant.twin.training.module import QatModule

PLAN_FILE = "plan.json"


def trainable_module(bound: Bound, module: torch.nn.Module | None, cache: StageCache, *, scheme: str | None, target: str | None, trust_code: bool) -> QatModule:
    """A module with quantizers for one scheme on one target of a recipe.

    Args:
        bound: The recipe.
        module: The model, in place of the recipe's; None: that one.
        cache: Where stage results are.
        scheme: Title of the scheme; the first that trains when not given.
        target: Title of the target; the first when not given.
        trust_code: Whether code that the recipe names may run.

    Raises:
        QuantError: The module, the data, or the choice cannot be used.
    """
    from quant.twin.training.module import QatModule  # noqa: PLC0415 - heavy
    from quant.twin.training.trainable import Trainable  # noqa: PLC0415

    title, engine = _scheme(bound, scheme), _target(bound, target)
    how = bound.schemes[title]
    assert isinstance(how, Places), "just looked at"
    refuse_state(bound.loaded.recipe.model.state)
    home = Path(tempfile.mkdtemp(prefix="quant-")) if module is not None else None
    prepared = prepare(bound, cache, trust_code=trust_code) if home is None else _from_module(bound, module, home, trust_code=trust_code)
    workshop = Workshop(bound, prepared, cache)
    plan = workshop.plan(title, engine)
    if not plan.quantized:
        reasons = sorted({choice.reason for choice in plan.layers})
        raise PlanError(f"{title} on {engine} finds nothing to quantize: {'; '.join(reasons)}", where=bound.where(title))
    dialect = bound.targets[engine].dialect
    table = workshop.calibrate([(how, bound.targets[engine], plan)])
    assert table is not None, "a scheme that trains starts from ranges"
    model = opened(prepared.path, how, dialect)
    evidence, _ = gather(model, how, plan=plan, table=table, calibrator=bound.calibrator, dialect=dialect, given={})
    placed = how.place(model, plan, evidence, dialect)
    learn = bool(getattr(getattr(how, "options", None), "learn_scales", True))
    trainable = Trainable(model, placed, learn_scales=learn, check=[_feed(bound, prepared)])

    def finish(folder: Path) -> Artifact:
        written = model.clone()
        trainable.write_back(written)
        return _export(workshop, written, placed, plan, table=table, names=(title, engine), folder=folder)

    made = QatModule(trainable, finish)
    if home is not None:
        weakref.finalize(made, shutil.rmtree, home, ignore_errors=True)  # weights of the graph are mapped from there
    return made


def _from_module(bound: Bound, module: torch.nn.Module | None, folder: Path, *, trust_code: bool) -> Prepared:
    """The graph of a copy of `module`, in inference mode and FP32 on the CPU; the module itself stays as it is."""
    assert module is not None, "there is a folder for its graph"
    return prepare_module(bound, copy.deepcopy(module).float().cpu().eval(), folder, trust_code=trust_code)


def _export(
    workshop: Workshop, model: ir.Model, placed: Placed, plan: PrecisionPlan, *, table: CalibrationTable, names: tuple[str, str], folder: Path
) -> Artifact:
    """Write `model` as codes, and as the target's artifact with the plan beside it."""
    freeze_qdq(model, placed)
    scheme, target = names
    engine = workshop.bound.targets[target]
    done = write_body(model, plan, table.magnitudes, engine.dialect.body)
    with disk_errors(folder):
        make_folder(folder)
        artifact = workshop.export(model, folder, scheme=scheme, target=target)
        artifact.save(folder / ARTIFACT_FILE)
        done.save(folder / PLAN_FILE)
    return artifact


def _feed(bound: Bound, prepared: Prepared) -> dict[str, Any]:
    """One batch to hold the module to ONNX Runtime on."""
    from quant.data.batches import batches  # noqa: PLC0415 - here alone

    samples = prepared.data.roles["calibration"]
    return next(iter(batches(samples, prepared.signature.inputs, batch_size=4, batch_axes=bound.loaded.recipe.model.batch_axes))).feed


def _scheme(bound: Bound, title: str | None) -> str:
    known = [name for name, how in bound.schemes.items() if isinstance(how, Places)]
    if title is None and known:
        return known[0]
    if title not in known:
        what = "no scheme of this recipe trains" if title is None else f"{title!r} is no scheme of this recipe that trains"
        raise RecipeError(what, where=bound.loaded.where(("schemes",)), hint=did_you_mean(title or "", known) or "add `- int8-qat` to `schemes`")
    return str(title)


def _target(bound: Bound, title: str | None) -> str:
    if title is not None and title not in bound.targets:
        raise RecipeError(f"the recipe has no target {title!r}", where=bound.loaded.where(("targets",)), hint=did_you_mean(title, list(bound.targets)))
    return title or next(iter(bound.targets))
