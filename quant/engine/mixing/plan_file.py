"""Plans as YAML that a person can read, edit and give back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from quant.core.files import write_text
from quant.core.registry import did_you_mean
from quant.engine.mixing.ground import FLOAT, Ground
from quant.errors import PlanError
from quant.recipe.tree import Placed
from quant.recipe.yaml_text import read_file

VERSION = 1
_KEYS = ("version", "model", "target", "layers")


def write_plan(path: Path, choices: Mapping[str, str], *, model: str, target: str, said: Mapping[str, str], head: str) -> None:
    """Write a plan, whole or not at all.

    Args:
        path: The file.
        choices: Layer -> format.
        model: Digest of the FP32 model.
        target: Title of the target that it was made for.
        said: Layer -> what is to stand beside it.
        head: What is to stand above all.

    Raises:
        RunError: The file cannot be written.
    """
    width = max((len(json.dumps(name, ensure_ascii=False)) + len(f) for name, f in choices.items()), default=0)
    lines = [
        f"# {line}"
        for line in (
            *head.splitlines(),
            "Formats may be changed, and a layer that is not named stays in fp32; `quant apply RECIPE --plan THIS_FILE` carries them out.",
        )
    ]
    lines += [f"version: {VERSION}", f"model: {model}", f"target: {json.dumps(target, ensure_ascii=False)}", "layers:"]
    for name, chosen in choices.items():
        key = json.dumps(name, ensure_ascii=False)
        told = " ".join(said.get(name, "").split())
        lines.append(f"  {key}: {chosen}" + (" " * (width - len(key) - len(chosen)) + f"  # {told}" if told else ""))
    write_text(path, "\n".join(lines) + "\n")


def read_plan(path: Path, ground: Ground) -> dict[str, str]:
    """Layer -> format, for every layer that may be quantized; what the file does not name stays in higher precision.

    Raises:
        PlanError: It is no plan, of another model, or gives a layer a format that it cannot have; the message has the line.
        RecipeError: It is no YAML.
    """
    tree = read_file(path)
    root = tree.mapping
    if root is None:
        raise PlanError("a plan is a mapping", where=str(path), hint="`quant plan` writes one")
    if unknown := [key for key in root if key not in _KEYS]:
        raise PlanError(f"unknown key {unknown[0]!r}", where=str(root[unknown[0]].mark), hint=did_you_mean(unknown[0], _KEYS))
    version = root.get("version")
    if version is None or type(version.value) is not int or version.value != VERSION:
        raise PlanError(f"version is {_shown(version)}", where=_place(version, path), hint=f"this toolkit reads version {VERSION}")
    _check_model(root.get("model"), ground.workshop.prepared.digest, path)
    layers = root["layers"].mapping if "layers" in root else None
    if layers is None:
        raise PlanError("`layers` is to map names of layers to formats", where=_place(root.get("layers"), path), hint="`quant plan` writes one")
    formats = ground.formats
    for name, chosen in layers.items():
        _check(name, chosen, formats)
    if all(chosen.value == FLOAT for chosen in layers.values()):
        hint = f"give a layer another format; here there are {', '.join(ground.plans)}"
        raise PlanError(f"all layers are in {FLOAT}: the plan quantizes nothing", where=_place(root["layers"], path), hint=hint)
    return {name: str(layers[name].value) if name in layers else FLOAT for name in formats}


def _check_model(told: Placed | None, digest: str, path: Path) -> None:
    if told is None or not isinstance(told.value, str):
        what = f"does not say which model the plan is of: `model` is {_shown(told)}"
        raise PlanError(what, where=_place(told, path), hint=f"that of this recipe is {digest}")
    if told.value != digest:
        what = f"the plan is of another model ({told.value[:12]}…, and this is {digest[:12]}…)"
        raise PlanError(what, where=_place(told, path), hint="plan anew with `quant plan`")


def _place(value: Placed | None, path: Path) -> str:
    return str(path if value is None else value.mark)


def _shown(value: Placed | None) -> str:
    """What was written, for people."""
    if value is None or value.value is None:
        return "not given"
    if isinstance(value.value, str):
        return repr(value.value)
    return json.dumps(value.plain(), ensure_ascii=False)


def _check(name: str, chosen: Placed, formats: Mapping[str, tuple[str, ...]]) -> None:
    if name not in formats:
        raise PlanError(f"the model has no layer {name!r}", where=str(chosen.mark), hint=did_you_mean(name, list(formats)))
    if chosen.value not in formats[name]:
        named = isinstance(chosen.value, str)
        told = f"layer {name!r} cannot run in {_shown(chosen)} here" if named else f"the format of layer {name!r} is {_shown(chosen)}"
        raise PlanError(told, where=str(chosen.mark), hint=f"it can in {', '.join(formats[name])}; other formats need their scheme in the recipe")
