"""Plans as YAML that a person can read, edit and give back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    lines = [f"# {line}" for line in (*head.splitlines(), "Formats may be changed; `quant apply RECIPE --plan THIS_FILE` carries them out.")]
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
    version = _value(root, "version")
    if version != VERSION:
        raise PlanError(f"version is {version!r}", where=str(path), hint=f"this toolkit reads version {VERSION}")
    digest = ground.workshop.prepared.digest
    if _value(root, "model") != digest:
        what = f"the plan is of another model ({str(_value(root, 'model'))[:12]}…, and this is {digest[:12]}…)"
        raise PlanError(what, where=str(root["model"].mark if "model" in root else path), hint="plan anew with `quant plan`")
    layers = root["layers"].mapping if "layers" in root else None
    if layers is None:
        raise PlanError("`layers` is to map names of layers to formats", where=str(path), hint="`quant plan` writes one")
    formats = ground.formats
    for name, chosen in layers.items():
        _check(name, chosen, formats)
    return {name: str(layers[name].value) if name in layers else FLOAT for name in formats}


def _value(root: Mapping[str, Placed], key: str) -> Any:
    return root[key].value if key in root else None


def _check(name: str, chosen: Placed, formats: Mapping[str, tuple[str, ...]]) -> None:
    if name not in formats:
        raise PlanError(f"the model has no layer {name!r}", where=str(chosen.mark), hint=did_you_mean(name, list(formats)))
    if chosen.value not in formats[name]:
        what = f"layer {name!r} cannot run in {chosen.value!r} here"
        raise PlanError(what, where=str(chosen.mark), hint=f"it can in {', '.join(formats[name])}; other formats need their scheme in the recipe")
