"""Loading: extends, lines, versions, the resolved recipe."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from quant.core.registry import Options
from quant.errors import RecipeError
from quant.recipe.load import load_recipe, options_error
from quant.recipe.schema import Recipe, Use

BASE = """\
version: 1
name: base
model:
  source: model.onnx
  normalize: true
data:
  source: ../data.csv
  splits:
    calibration: 64
calibration:
  calibrator: {kind: percentile, percentile: 99.9}
gate:
  max_drop: 1e-3
"""
CHILD = """\
extends: base/base.yaml
name: child
gate:
  confidence: 0.9
calibration:
  calibrator: mse
"""


@pytest.fixture
def child(write):
    write(BASE, "base/base.yaml")
    return write(CHILD, "child.yaml")


def test_a_recipe_is_read_with_its_defaults(minimal):
    loaded = load_recipe(minimal)
    assert loaded.recipe == Recipe.model_validate({"version": 1, "name": "minimal", "model": {"source": "model.onnx"}, "data": {"source": "data.csv"}})
    assert loaded.path == Path()
    assert loaded.file == Path("minimal.yaml")


def test_extends_merges_and_lines_name_the_file_that_wrote_them(child):
    loaded = load_recipe(child, ["latency.requests=3"])
    recipe = loaded.recipe
    assert (recipe.name, recipe.gate[0].max_drop, recipe.gate[0].confidence, recipe.model.normalize) == ("child", 0.001, 0.9, True)
    assert recipe.calibration.calibrator == Use(kind="mse")
    assert loaded.where(("gate", 0, "max_drop")) == "base/base.yaml:13"
    assert loaded.where(("gate", 0, "confidence")) == "child.yaml:4"
    assert loaded.where(("data", "splits", "calibration", "samples")) == "base/base.yaml:9"
    assert loaded.where(("calibration", "calibrator", "kind")) == "child.yaml:6"
    assert loaded.where(("calibration", "batch_size")) == "child.yaml:5"
    assert loaded.where(("evaluation", "metrics", 0)) == "child.yaml:1"
    assert loaded.where(("latency", "requests")) == "--set latency.requests"


def test_sources_stay_relative_to_the_file_that_wrote_them(child):
    recipe = load_recipe(child).recipe
    assert recipe.model.source == "base/model.onnx"
    assert recipe.data.source == "base/../data.csv"


def test_sources_of_a_grandparent_are_found_from_the_first_recipe(write):
    write(BASE, "a/base.yaml")
    write("extends: ../a/base.yaml\nname: middle\n", "b/middle.yaml")
    recipe = load_recipe(write("extends: ../b/middle.yaml\nmodel: {source: hf:org/name}\n", "c/last.yaml")).recipe
    assert (Path("c") / recipe.data.source).resolve() == Path("data.csv").resolve()
    assert recipe.model.source == "hf:org/name"


def test_a_shipped_recipe_can_be_loaded_and_extended_by_its_name(write, shipped_folder):
    assert load_recipe(Path("text-sentiment")).path == shipped_folder
    recipe = load_recipe(write("extends: text-sentiment\nname: mine\n")).recipe
    assert recipe.name == "mine"
    assert recipe.model.source == (shipped_folder / "model.onnx").as_posix()


@pytest.mark.usefixtures("shipped_folder")
@pytest.mark.parametrize(
    ("extends", "message"),
    [
        ("bsae.yaml", r"my.yaml:2: extends 'bsae.yaml': no such recipe\nhint: did you mean 'base.yaml'"),
        ("[a, b]", r"my.yaml:2: extends: expected a file or the name of a shipped recipe, got a list"),
        ("", r"my.yaml:2: extends: expected a file or the name of a shipped recipe, got nothing"),
    ],
)
def test_a_parent_that_is_not_there_is_an_error_at_its_line(write, extends, message):
    write(BASE, "base.yaml")
    with pytest.raises(RecipeError, match=f"^{message}"):
        load_recipe(write(f"name: x\nextends: {extends}\n"))


def test_recipes_that_extend_each_other_are_refused(write):
    write("extends: b.yaml\n", "a.yaml")
    write("extends: ../folder/c.yaml\n", "folder/c.yaml")
    write("name: b\nextends: ./folder/../a.yaml\n", "b.yaml")
    with pytest.raises(RecipeError, match=r"^b.yaml:2: extends goes round in a circle: a.yaml -> b.yaml -> a.yaml\nhint: remove one"):
        load_recipe(Path("a.yaml"))
    with pytest.raises(RecipeError, match=r"^folder/c.yaml:1: extends goes round in a circle: c.yaml -> c.yaml"):
        load_recipe(Path("folder/c.yaml"))


def test_a_mistake_in_a_parent_names_the_parent(write):
    write(BASE.replace("max_drop", "max_dorp"), "base/base.yaml")
    with pytest.raises(RecipeError, match=r"^base/base.yaml:13: unknown key 'max_dorp' in gate\nhint: did you mean 'max_drop'\?$"):
        load_recipe(write(CHILD, "child.yaml"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"my.yaml:1: the recipe is empty\nhint: it starts with `version: 1`"),
        ("# only words\n", r"my.yaml:1: the recipe is empty"),
        ("- a\n", r"my.yaml:1: expected a mapping \(lines of `key: value`\), got a list"),
        ("\nhello\n", r"my.yaml:2: expected a mapping \(lines of `key: value`\), got 'hello'"),
        ("name: x\n", r"my.yaml:1: version is missing\nhint: start the recipe with `version: 1`"),
        ("name: x\nversion: 2\nsurprise: 1\n", r"my.yaml:2: version 2 is not known\nhint: this toolkit reads `version: 1`$"),
        ("version: '1'\n", r"my.yaml:1: version '1' is not known"),
        ("version: true\n", r"my.yaml:1: version true is not known"),
        ("version: 1.0\n", r"my.yaml:1: version 1.0 is not known"),
    ],
)
def test_what_is_no_recipe_of_this_version_is_refused(write, text, message):
    with pytest.raises(RecipeError, match=f"^{message}"):
        load_recipe(write(text))


@pytest.mark.usefixtures("shipped_folder", "minimal")
def test_a_missing_recipe_is_an_error():
    with pytest.raises(RecipeError, match=r"^minimol.yaml: no such recipe\nhint: did you mean 'minimal.yaml'"):
        load_recipe(Path("minimol.yaml"))


def test_the_digest_is_of_what_is_said_not_of_how(write, minimal):
    same = write("# words\nname: minimal\nversion: 1\ndata: {source: data.csv, seed: 0}\nmodel: {source: model.onnx}\n", "same.yaml")
    assert load_recipe(same).digest == load_recipe(minimal).digest
    assert load_recipe(minimal, ["data.seed=1"]).digest != load_recipe(minimal).digest


def test_the_resolved_recipe_has_every_default_in_the_order_of_the_schema(minimal):
    lines = load_recipe(minimal).resolved_yaml().splitlines()
    assert lines[:5] == ["version: 1", "name: minimal", "description: ''", "model:", "  source: model.onnx"]
    assert [line.split(":")[0] for line in lines if line[0].isalpha()] == list(Recipe.model_fields)
    assert "  max_drop: 0.01" in lines


TEXT = st.text(st.characters(codec="utf-8"), max_size=12).map(str.strip)
PLUGIN = st.builds(
    lambda kind, options: {**options, "kind": kind} if options else kind,
    st.sampled_from(["int8", "no", "1e-3"]),
    st.dictionaries(
        TEXT.filter(lambda key: key not in {*Use.model_fields, "source"}),
        TEXT | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none(),
        max_size=2,
    ),
)
RECIPES = st.fixed_dictionaries(
    {
        "version": st.just(1),
        "name": st.from_regex(r"[a-z0-9][a-z0-9-]{0,8}", fullmatch=True),
        "model": st.fixed_dictionaries(
            {"source": TEXT}, optional={"normalize": st.booleans(), "head": st.just({"C": 1e-05}), "state": st.dictionaries(TEXT, TEXT, max_size=2)}
        ),
        "data": st.fixed_dictionaries(
            {"source": TEXT},
            optional={
                "splits": st.fixed_dictionaries(
                    {}, optional={"search": st.integers(0, 9) | st.just("rest"), "calibration": st.fixed_dictionaries({"samples": st.floats(0, 1)})}
                ),
                "label": st.fixed_dictionaries({"classes": st.lists(TEXT | st.integers(), max_size=3)}),
                "inputs": PLUGIN,
            },
        ),
    },
    optional={
        "description": TEXT,
        "schemes": st.lists(PLUGIN, min_size=1, max_size=3),
        "gate": st.fixed_dictionaries({"max_drop": st.floats(0, 1e300)}) | st.lists(st.just({"relative": True}), min_size=1, max_size=2),
    },
)


@settings(max_examples=60, deadline=None)
@given(raw=RECIPES)
def test_the_resolved_recipe_loads_to_the_same_recipe(tmp_path_factory, raw):
    folder = tmp_path_factory.mktemp("round")
    first, second = folder / "first.yaml", folder / "second.yaml"
    first.write_text(json.dumps(raw), encoding="utf-8")  # JSON is YAML, and not written by us
    loaded = load_recipe(first)
    assert loaded.recipe == Recipe.model_validate(raw)
    second.write_text(loaded.resolved_yaml(), encoding="utf-8", newline="\n")
    again = load_recipe(second)
    assert again.recipe == loaded.recipe
    assert again.digest == loaded.digest
    assert again.resolved_yaml() == loaded.resolved_yaml()


class Percentile(Options):
    percentile: float
    bins: int = 2048


def checked(loaded, location, options):
    try:
        Percentile.model_validate(options)
    except ValidationError as error:
        return str(options_error(loaded, location, error, Percentile))
    raise AssertionError("the options are valid")


def test_a_wrong_option_of_a_plugin_is_reported_at_its_line(child):
    loaded = load_recipe(child, ["calibration.calibrator={kind: p, precentile: 3, bins: many}"])
    assert checked(loaded, ("calibration", "calibrator"), loaded.recipe.calibration.calibrator.options) == (
        "--set calibration.calibrator: missing key 'percentile' in calibration.calibrator\n"
        "--set calibration.calibrator: calibration.calibrator.bins: expected a whole number, got 'many'\n"
        "--set calibration.calibrator: unknown key 'precentile' in calibration.calibrator (did you mean 'percentile'?)"
    )


def test_an_option_in_a_list_of_plugins_is_reported_at_its_line(write):
    text = "version: 1\nname: x\nmodel: {source: m}\ndata: {source: d}\nschemes:\n  - int8\n  - kind: p\n    percentile: 99\n    binz: 5\n"
    loaded = load_recipe(write(text))
    assert checked(loaded, ("schemes", 1), loaded.recipe.schemes[1].options) == "my.yaml:9: unknown key 'binz' in schemes.1\nhint: did you mean 'bins'?"
    assert checked(loaded, ("schemes", 0), {}) == "my.yaml:6: missing key 'percentile' in schemes.0"


def test_a_misspelled_name_of_a_plugin_is_told(write):
    loaded = load_recipe(write("version: 1\nname: x\nmodel: {source: m}\ndata: {source: d}\nschemes: [{kind: p, nmae: q}]\n"))
    assert checked(loaded, ("schemes", 0), {"percentile": 1, "nmae": "q"}) == "my.yaml:5: unknown key 'nmae' in schemes.0\nhint: did you mean 'name'?"


def test_a_default_plugin_is_reported_at_the_nearest_section(minimal):
    loaded = load_recipe(minimal)
    assert checked(loaded, ("data", "inputs"), {}) == "minimal.yaml:5: missing key 'percentile' in data.inputs"
    assert checked(loaded, ("data", "inputs"), {"percentile": 1, "source": 1}).startswith("minimal.yaml:5: unknown key 'source' in data.inputs")


def test_data_of_one_role_may_hold_lists(tmp_path):
    """Lists are told from tuples where Python values are checked, and recipes know only lists."""
    file = tmp_path / "lists.yaml"
    file.write_text(
        "version: 1\nname: lists\nmodel: {source: m.onnx}\ndata:\n  source: d.csv\n  splits:\n"
        "    search: {data: {source: a.csv, columns: [a, b], where: [{column: a, any_of: [1, 2]}], label: {column: b, classes: [x, y]}}}\n"
    )
    data = load_recipe(file).recipe.data.splits.search.data
    assert data.columns == ("a", "b")
    assert data.where[0].any_of == (1, 2)
    assert data.label.classes == ("x", "y")
