"""The import of a model: read or export, raise the operator set, clean up, write; every step held to the same outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir

from quant.data.samples import Feed, Samples
from quant.errors import ModelError, QuantError
from quant.graph.importing.clean_up import clean
from quant.graph.importing.decoder import Decoder
from quant.graph.importing.kinds import find_onnx, model_kind
from quant.graph.importing.numbers import refuse_nan
from quant.graph.importing.onnx_file import custom_operators, read_onnx
from quant.graph.importing.opset import MINIMUM_OPSET, raise_opset
from quant.graph.importing.report import ImportReport, Step
from quant.graph.importing.trial import TOLERANCE, Outputs, Trial, batches, change
from quant.graph.model import opset, write_model
from quant.recipe.schema import ModelSpec

PARITY = 1e-3
"""Largest difference between torch and the exported graph, relative to the output's largest magnitude."""


_LARGE_BYTES = 1 << 30


@dataclass
class _Watch:
    """Holds each step to the outputs of the step before.

    Args:
        trial: What graphs are run on; None for a model that ONNX Runtime cannot run.
        last: The outputs of the step before.
    """

    trial: Trial | None
    last: Outputs = ()

    def __call__(self, name: str, model: ir.Model) -> float | None:
        if self.trial is None or not self.trial.feeds or _weight_bytes(model) > _LARGE_BYTES:
            return None  # the last comparison, with the file that is written, is enough
        return self._compare(name, self.trial.outputs(model))

    def finish(self, path: Path) -> None:
        """Compare the file that was written."""
        if self.trial is not None:
            self._compare("write", self.trial.outputs_of_file(path))

    def _compare(self, name: str, found: Outputs) -> float:
        absolute, relative = change(self.last, found)
        assert relative <= TOLERANCE, f"step {name!r} of the import changed the outputs by {absolute:g} ({relative:.2%} of their scale)"
        self.last = found
        return absolute


def _weight_bytes(model: ir.Model) -> int:
    return sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)


@dataclass(frozen=True)
class _Context:
    """What every kind of import needs."""

    spec: ModelSpec
    folder: Path
    base: Path
    where: str
    trust_code: bool
    examples: tuple[Feed, ...]
    batch_axes: Mapping[str, int | None]
    train: Samples | None


def import_model(
    spec: ModelSpec,
    path: Path | None,
    folder: Path,
    *,
    base: Path,
    where: str,
    trust_code: bool,
    examples: Sequence[Feed],
    batch_axes: Mapping[str, int | None],
    train: Samples | None = None,
) -> ImportReport:
    """Bring a model in as `folder/model.onnx`, with its large weights beside it.

    Args:
        spec: What the recipe says of the model.
        path: The file or folder, already here; None when `spec.source` is `module:function`.
        folder: Where the graph is written.
        base: Folder of the recipe, for `module:function`.
        where: Place in the recipe, for messages.
        trust_code: Whether code that the recipe names may run.
        examples: A few feeds, on which every step is compared; may be empty for a file or folder.
        batch_axes: Input -> its batch axis, None for an input without one; 0 for those not named.
        train: Samples for a `module:function` that has an argument called `train`.

    Raises:
        ModelError: The model cannot be read, exported, converted or run.
    """
    kind = model_kind(spec, path, where=where)
    context = _Context(spec, folder, base, where, trust_code, tuple(examples), batch_axes, train)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if kind == "onnx":
            assert path is not None, "an ONNX file has a path"
            return _import_onnx(context, find_onnx(path))
        if kind == "huggingface":
            assert path is not None, "a folder has a path"
            return _import_huggingface(context, path)
        if kind == "gguf":
            from quant.graph.importing.decoder import load_decoder  # noqa: PLC0415 - brings torch

            assert path is not None, "a file has a path"
            return _import_decoder(context, load_decoder(path), kind)
        return _import_torch(context)
    except QuantError as error:
        raise error.at(where) from error.__cause__


def _import_onnx(context: _Context, path: Path) -> ImportReport:
    model = read_onnx(path)
    before = opset(model)
    notes: list[str] = []
    watch = _Watch(Trial(batches(model, context.examples, context.batch_axes, state=tuple(context.spec.state)), context.folder))
    assert watch.trial is not None, "just made"
    try:
        watch.last = watch.trial.outputs_of_file(path)
    except ModelError:
        custom = custom_operators(model)
        if not custom:
            raise
        notes.append(f"steps are not compared: ONNX Runtime does not know {', '.join(custom)}")
        watch = _Watch(None)
    model, steps = _finish(model, watch, context.folder)
    return ImportReport(kind="onnx", steps=tuple(steps), opset_before=before, opset_after=opset(model), notes=tuple(notes))


def _finish(model: ir.Model, watch: _Watch, folder: Path) -> tuple[ir.Model, list[Step]]:
    """Refuse what is no number, raise, clean up and write."""
    refuse_nan(model)
    before = opset(model)
    model = raise_opset(model, MINIMUM_OPSET)
    steps = []
    if opset(model) != before:
        steps.append(Step(name="raise operator set", count=opset(model) - before, max_abs_change=watch("raise operator set", model)))
    steps += clean(model, observe=watch)
    watch.finish(write_model(model, folder))
    return model, steps


def _import_huggingface(context: _Context, path: Path) -> ImportReport:
    from quant.graph.importing.huggingface import is_language_model, load_encoder, load_language_model  # noqa: PLC0415 - brings torch
    from quant.graph.importing.torch_export import export, run_torch  # noqa: PLC0415

    if context.spec.pooling == "none" and not context.spec.normalize and is_language_model(path):
        return _import_decoder(context, load_language_model(path), "huggingface")
    encoder = load_encoder(path, pooling=context.spec.pooling, normalize=context.spec.normalize)
    feed = _as_tensors({name: encoder.stand_in[0][name][None].repeat(2, axis=0) for name in encoder.inputs})
    model = export(encoder.module, feed, encoder.dynamic, outputs=[encoder.output], prefix="model.")
    feeds = batches(model, context.examples or encoder.stand_in, context.batch_axes)
    return _compare("huggingface", model, Trial(feeds, context.folder), lambda: run_torch(encoder.module, feeds))


def _import_decoder(context: _Context, decoder: Decoder, kind: str) -> ImportReport:
    from quant.graph.importing.decoder import DYNAMIC, OUTPUT  # noqa: PLC0415 - brings torch
    from quant.graph.importing.torch_export import export, run_torch  # noqa: PLC0415

    feed = _as_tensors({name: array[None].repeat(2, axis=0) for name, array in decoder.stand_in[0].items()})
    model = export(decoder.module, feed, DYNAMIC, outputs=[OUTPUT], prefix="model.")
    feeds = batches(model, context.examples or decoder.stand_in, context.batch_axes)
    return _compare(kind, model, Trial(feeds, context.folder), lambda: run_torch(decoder.module, feeds))


def _import_torch(context: _Context) -> ImportReport:
    from quant.graph.importing.torch_module import build_module  # noqa: PLC0415 - brings torch

    module = build_module(
        context.spec.source, context.spec.arguments, base=context.base, trust_code=context.trust_code, where=context.where, train=context.train
    )
    return import_module(module, context.folder, examples=context.examples, batch_axes=context.batch_axes, where=context.where)


def import_module(module: Any, folder: Path, *, examples: Sequence[Feed], batch_axes: Mapping[str, int | None], where: str = "") -> ImportReport:
    """Bring a torch module in as `folder/model.onnx`, with its large weights beside it.

    Args:
        module: A `torch.nn.Module` in inference mode and FP32.
        folder: Where the graph is written; it is there already.
        examples: A few feeds, on which every step is compared.
        batch_axes: Input -> its batch axis, None for an input without one; 0 for those not named.
        where: Place in the recipe, for messages.

    Raises:
        ModelError: The module cannot be exported or run.
    """
    from quant.graph.importing.torch_export import export, run_torch  # noqa: PLC0415 - brings torch
    from quant.graph.importing.torch_module import export_feed  # noqa: PLC0415

    arrays, dynamic = export_feed(module, examples, batch_axes, where=where)
    names = list(run_torch(module, [arrays])[0])
    model = export(module, _as_tensors(arrays), dynamic, outputs=names)
    feeds = batches(model, examples, batch_axes)
    return _compare("torch", model, Trial(feeds, folder), lambda: run_torch(module, feeds))


def _as_tensors(arrays: Mapping[str, Any]) -> dict[str, Any]:
    import torch  # noqa: PLC0415 - heavy

    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


def _compare(kind: str, model: ir.Model, trial: Trial, expected: Callable[[], Outputs]) -> ImportReport:
    """Hold the exported graph, and the cleaned one, to what torch computes."""
    before = opset(model)
    wanted = expected()
    watch = _Watch(trial, trial.outputs(model))
    _check_parity(wanted, watch.last)
    model, steps = _finish(model, watch, trial.scratch)
    return ImportReport(kind=kind, steps=tuple(steps), opset_before=before, opset_after=opset(model), parity_max_abs=_check_parity(wanted, watch.last))


def _check_parity(wanted: Outputs, found: Outputs) -> float:
    absolute, relative = change(wanted, found)
    if relative > PARITY:
        what = f"the exported graph differs from the torch module by {absolute:g} ({relative:.2%} of the output's scale; at most {PARITY:.1%})"
        raise ModelError(
            what, hint="torch's exporter writes something else than the module computes; look for control flow that depends on values or on the batch"
        )
    return absolute
