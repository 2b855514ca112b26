"""A JSON Schema of recipes, so that an editor completes keys, plug-ins and their options, and marks mistakes."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from quant.core.registry import Registry
from quant.recipe.schema import Recipe

_DIALECT = "https://json-schema.org/draft/2020-12/schema"

# noun of the registry -> (section, key) of each place that names a plug-in, or a list of them
_SLOTS = {
    "scheme": (("Recipe", "schemes"), ("AutoSchemes", "among"), ("Recipe", "on_fail")),
    "transform": (("Recipe", "transforms"),),
    "target": (("Recipe", "targets"),),
    "calibrator": (("CalibrationSpec", "calibrator"),),
    "metric": (("EvaluationSpec", "metrics"),),
    "processor": (("DataSpec", "inputs"), ("OtherData", "inputs")),
    "estimator": (("PlanSpec", "estimator"),),
    "cost": (("PlanSpec", "costs"),),
}


def json_schema(registries: Mapping[str, Registry[Any]]) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a recipe file.

    Args:
        registries: The plug-ins that may be named, by noun: `scheme`, `transform`, `target`, `calibrator`, `metric`, `processor`,
            `estimator`, `cost`. A noun that is left out takes any name and any option.
    """
    if unknown := set(registries) - set(_SLOTS):
        raise AssertionError(f"no section of a recipe names a {sorted(unknown)}")
    whole = Recipe.model_json_schema()
    definitions: dict[str, Any] = whole.pop("$defs")
    definitions["Recipe"] = whole
    for noun, registry in registries.items():
        definitions[noun] = _plugin(noun, registry, definitions)
        for section, key in _SLOTS[noun]:
            _fill(definitions[section]["properties"][key], {"$ref": f"#/$defs/{noun}"})
    partial = {f"{name}.part": _without_required(schema) for name, schema in definitions.items()}
    partial["Recipe.part"]["properties"]["extends"] = {
        "type": "string",
        "minLength": 1,
        "description": "a recipe file (relative to this one) or the name of a shipped recipe; what is written here goes over it",
    }
    return {
        "$schema": _DIALECT,
        "title": "Recipe",
        "type": "object",
        "if": {"required": ["extends"]},
        "then": {"$ref": "#/$defs/Recipe.part"},
        "else": {"$ref": "#/$defs/Recipe"},
        "$defs": definitions | partial,
    }


def _fill(slot: dict[str, Any], plugin: dict[str, Any]) -> None:
    """Let `slot`, which takes any plug-in (or a list of them, or null), take those that `plugin` describes."""
    lists = [form for form in (slot, *slot.get("oneOf", ())) if "items" in form]
    if lists:
        lists[0]["items"] = plugin
        return
    null = {"type": "null"}
    takes_null = null in slot.pop("anyOf", [])
    slot.update({"anyOf": [plugin, null]} if takes_null else plugin)


def _plugin(noun: str, registry: Registry[Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """A bare name, or a mapping with `kind` and the options of that kind; models used by options go to `definitions`."""
    common = definitions["Use"]["properties"]
    bare: list[str] = []
    written: list[dict[str, Any]] = []
    for kind in registry.kinds():
        prefix = f"{noun}.{kind}"
        options: Any = registry.get(kind)
        schema = options.Options.model_json_schema(ref_template=f"#/$defs/{prefix}.{{model}}")
        definitions |= {f"{prefix}.{name}": inner for name, inner in schema.pop("$defs", {}).items()}
        required = schema.get("required", [])
        if not required:
            bare.append(kind)
        summary = (options.__doc__ or "").strip().partition("\n")[0]
        written.append(
            {
                **schema,
                "title": f"{noun} {kind}",
                "description": summary,
                "properties": {**common, "kind": {"const": kind}, **schema.get("properties", {})},
                "required": ["kind", *required],
            }
        )
    names = [{"enum": bare, "description": f"a {noun} with its default options"}] if bare else []
    return {"anyOf": [*names, *written]}


def _without_required(schema: Any) -> Any:
    """A copy for recipes that extend another: nothing has to be written, and references go to the copies."""
    if isinstance(schema, list):
        return [_without_required(item) for item in schema]
    if not isinstance(schema, dict):
        return copy.copy(schema)
    copied = {key: _without_required(value) for key, value in schema.items() if not (key == "required" and isinstance(value, list))}
    if isinstance(copied.get("$ref"), str):
        copied["$ref"] += ".part"
    return copied
