"""The JSON Schema for editors says what the loader says."""

import jsonschema
import pytest

from quant.recipe.json_schema import json_schema
from quant.recipe.schema import Use
from quant.recipe.yaml_text import read_text

GOOD = [
    "{version: 1, name: x, model: {source: m}, data: {source: d}}",
    "{version: 1, name: x, model: {source: m}, data: {source: d}, schemes: [int8, {kind: int8, name: s, bits: 4}], targets: [{kind: needy, percentile: 1}]}",
    "{version: 1, name: x, model: {source: m}, data: {source: d, inputs: int8, splits: {search: 500, train: rest, calibration: {samples: 0.5}}}}",
    "{version: 1, name: x, model: {source: m}, data: {source: d}, calibration: {calibrator: {kind: int8, nested: {size: 3}}}, evaluation: {metrics: [int8]}}",
    "{version: 1, name: x, model: {source: m}, data: {source: d}, gate: {max_drop: 1e-3}}",
    "{version: 1, name: x, model: {source: m}, data: {source: d}, gate: [{max_drop: 0.1}, {relative: true}]}",
    "{extends: base.yaml}",
    "{extends: base.yaml, name: y, model: {pooling: mean}, calibration: {calibrator: {bits: 4}}, targets: [int8]}",
]
BAD = [
    "{version: 1, name: x, model: {source: m}, data: {source: d}, shcemes: [int8]}",
    "{version: 2, name: x, model: {source: m}, data: {source: d}}",
    "{version: 1, name: x, model: {sorce: m}, data: {source: d}}",
    "{version: 1, name: x, model: {source: m}}",
    "{version: 1, name: x, model: {source: m}, data: {source: d}, schemes: [int9]}",
    "{version: 1, name: x, model: {source: m}, data: {source: d}, schemes: [needy]}",
    "{version: 1, name: x, model: {source: m}, data: {source: d}, schemes: [{kind: int8, bitz: 4}]}",
    "{version: 1, name: x, model: {source: m}, data: {source: d}, schemes: [{bits: 4}]}",
    "{version: 1, name: x, model: {source: m}, data: {source: d}, schemes: [{kind: int8, bits: 9}]}",
    "{version: 1, name: x, model: {source: m}, data: {source: d, inputs: {kind: int8, nested: {size: a}}}}",
    "{version: 1, name: x, model: {source: m}, data: {source: d}, calibration: {calibrator: int9}}",
    "{version: 1, name: x, model: {source: m}, data: {source: d}, evaluation: {metrics: [{kind: int9}]}}",
    "{version: 1, name: x, model: {source: m}, data: {source: d}, gate: {max_dorp: 1}}",
    "{extends: base.yaml, nmae: y}",
    "{extends: [base.yaml]}",
    "{extends: base.yaml, schemes: [int9]}",
    "{extends: base.yaml, calibration: {calibrator: {bitz: 4}}}",
    "[]",
]


@pytest.fixture
def validator(registries):
    schema = json_schema(registries)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def value(text):
    return read_text(text, "f").plain()


@pytest.mark.parametrize("text", GOOD)
def test_a_recipe_is_accepted(validator, text):
    assert [error.message for error in validator.iter_errors(value(text))] == []


@pytest.mark.parametrize("text", BAD)
def test_a_mistake_is_refused(validator, text):
    assert not validator.is_valid(value(text))


def test_every_kind_comes_with_its_options_and_first_line(registries):
    schema = json_schema(registries)
    for noun, registry in registries.items():
        names, *written = schema["$defs"][noun]["anyOf"]
        assert names["enum"] == ["int8"]
        assert [plugin["properties"]["kind"]["const"] for plugin in written] == list(registry.kinds())
        assert written[0]["description"] == "Eight bits."
        assert list(written[0]["properties"]) == [*Use.model_fields, "bits", "mode", "nested", "share"]


def test_without_registries_any_plugin_is_accepted():
    validator = jsonschema.Draft202012Validator(json_schema({}))
    assert validator.is_valid(value("{version: 1, name: x, model: {source: m}, data: {source: d}, schemes: [a, {kind: b, c: 1}]}"))
    assert not validator.is_valid(value("{version: 1, name: x, model: {source: m}, data: {source: d}, schemes: [5]}"))


def test_a_noun_that_no_section_uses_is_a_bug(registries):
    with pytest.raises(AssertionError, match="no section of a recipe names"):
        json_schema({"schemes": registries["scheme"]})


def test_every_reference_has_a_definition(registries):
    schema = json_schema(registries)

    def references(node):
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                yield node["$ref"]
            node = list(node.values())
        if isinstance(node, list):
            for item in node:
                yield from references(item)

    found = set(references(schema))
    assert len(found) > 20
    assert {reference.removeprefix("#/$defs/") for reference in found} <= set(schema["$defs"])


def test_the_data_of_one_role_name_processors_too(registries):
    slot = json_schema(registries)["$defs"]["OtherData"]["properties"]["inputs"]
    assert slot["anyOf"] == [{"$ref": "#/$defs/processor"}, {"type": "null"}]
