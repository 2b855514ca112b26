"""`schemes: auto`, in each form in which it may be written."""

import jsonschema
import pytest

from quant.errors import RecipeError
from quant.recipe.json_schema import json_schema
from quant.recipe.load import load_recipe
from quant.recipe.overrides import override
from quant.recipe.schema import AutoSchemes, Use
from quant.recipe.yaml_text import read_text

MINIMAL = "version: 1\nname: minimal\nmodel:\n  source: model.onnx\ndata:\n  source: data.csv\n"
WHOLE = "{kind: auto, speed: 0.5, size: 0.3, among: [int8, {kind: int8, name: mine, bits: 4}]}"


@pytest.fixture
def loaded(write):
    def load(schemes, *overrides):
        return load_recipe(write(f"{MINIMAL}schemes: {schemes}\n"), overrides)

    return load


def test_the_bare_word_wants_what_is_no_slower_than_fp32(loaded):
    recipe = loaded("auto").recipe
    assert recipe.auto == AutoSchemes(kind="auto", speed=1.0, size=None, among=())
    assert recipe.listed == ()


def test_a_mapping_says_what_is_wanted_and_among_what(loaded):
    auto = loaded(WHOLE).recipe.auto
    assert (auto.speed, auto.size) == (0.5, 0.3)
    assert [(use.title, use.options) for use in auto.among] == [("int8", {}), ("mine", {"bits": 4})]
    assert loaded("{kind: auto, speed: null}").recipe.auto.speed is None


def test_a_list_is_no_auto(loaded):
    recipe = loaded("[int8]").recipe
    assert recipe.auto is None
    assert recipe.listed == (Use(kind="int8"),)


@pytest.mark.parametrize("schemes", ["auto", WHOLE, "[int8]"])
def test_what_is_resolved_loads_to_the_same_recipe(loaded, write, schemes):
    first = loaded(schemes)
    again = load_recipe(write(first.resolved_yaml(), "again.yaml"))
    assert again.recipe == first.recipe
    assert again.digest == first.digest


def test_overrides_reach_into_it(loaded):
    assert loaded("[int8, fp16]", "schemes=auto").recipe.auto == AutoSchemes()
    assert loaded("auto", "schemes.speed=0.6").recipe.auto == AutoSchemes(speed=0.6)
    assert loaded(WHOLE, "schemes.among.0.bits=3").recipe.auto.among[0].options == {"bits": 3}
    assert loaded("auto", "schemes=[int8]").recipe.auto is None
    assert override(read_text("name: x", "f.yaml"), "schemes.0.bits=4").plain()["schemes"] == [{"kind": "int8", "bits": 4}]


def test_it_goes_over_the_list_of_an_extended_recipe_and_the_other_way_round(write):
    write(f"{MINIMAL}schemes: [int8]\n", "list.yaml")
    write(f"{MINIMAL}schemes: {WHOLE}\n", "auto.yaml")
    assert load_recipe(write("{extends: list.yaml, schemes: {kind: auto, speed: 0.7}}")).recipe.auto == AutoSchemes(speed=0.7)
    assert load_recipe(write("{extends: auto.yaml, schemes: [fp16]}")).recipe.listed == (Use(kind="fp16"),)
    assert load_recipe(write("{extends: auto.yaml, schemes: {speed: 0.9}}")).recipe.auto.size == 0.3


@pytest.mark.parametrize(
    ("schemes", "text"),
    [
        ("automatic", "schemes: expected a list, got 'automatic'\nhint: a list of one is written [automatic]"),
        ("5", "schemes: expected a list, got 5\nhint: a list of one is written [5]"),
        ("[]", "schemes: expected at least 1 in the list, got an empty list"),
        ("{kind: manual}", "schemes.kind: expected 'auto', got 'manual'"),
        ("{kind: auto, sped: 1}", "unknown key 'sped' in schemes\nhint: did you mean 'speed'?"),
        ("{kind: auto, speed: fast}", "schemes.speed: expected a number, got 'fast'"),
        ("{kind: auto, speed: 0}", "schemes.speed: expected a number above 0.0, got 0"),
        ("{kind: auto, among: int8}", "schemes.among: expected a list, got 'int8'\nhint: a list of one is written [int8]"),
        ("{kind: auto, among: [{bits: 4}]}", "missing key 'kind' in schemes.among.0"),
    ],
)
def test_mistakes_are_told_with_their_line(loaded, schemes, text):
    with pytest.raises(RecipeError) as caught:
        loaded(schemes)
    assert str(caught.value) == f"my.yaml:7: {text}"


@pytest.mark.parametrize(
    ("schemes", "good"),
    [
        ("auto", True),
        (WHOLE, True),
        ("{kind: auto, speed: null}", True),
        ("automatic", False),
        ("{kind: auto, sped: 1}", False),
        ("{kind: auto, among: [needy]}", False),
        ("{kind: auto, among: [{kind: int8, bitz: 4}]}", False),
    ],
)
def test_the_schema_for_editors_says_the_same(registries, schemes, good):
    validator = jsonschema.Draft202012Validator(json_schema(registries))
    for text in (f"{MINIMAL}schemes: {schemes}\n", f"extends: base.yaml\nschemes: {schemes}\n"):
        assert validator.is_valid(read_text(text, "f").plain()) == good
