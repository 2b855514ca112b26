"""Trees of values with their places: finding, merging, relative paths."""

from pathlib import Path

import pytest

from quant.recipe.tree import Mark, Placed, dotted, is_plain_path, locate, merge, rebase
from quant.recipe.yaml_text import read_text


def merged(parent, child):
    return merge(read_text(parent, "parent.yaml"), read_text(child, "child.yaml"))


def test_mappings_merge_deeply_and_keep_their_places():
    root = merged("data: {source: a.csv, seed: 1}\nname: p\n", "name: c\ndata:\n  seed: 2\n")
    assert root.plain() == {"data": {"source": "a.csv", "seed": 2}, "name": "c"}
    assert str(locate(root, ("data", "source"))[0].mark) == "parent.yaml:1"
    assert str(locate(root, ("data", "seed"))[0].mark) == "child.yaml:3"
    assert str(locate(root, ("data",))[0].mark) == "child.yaml:2"


@pytest.mark.parametrize("child", ["schemes: [fp16]", "schemes: []", "schemes: null", "schemes: fp16"])
def test_lists_and_scalars_replace(child):
    assert merged("schemes: [int8, {kind: int4, group: 32}]", child).plain() == read_text(child, "").plain()


@pytest.mark.parametrize(
    ("parent", "child", "result"),
    [
        ("{kind: percentile, percentile: 99}", "{kind: mse}", {"kind": "mse"}),
        ("{kind: percentile, percentile: 99}", "mse", "mse"),
        ("{kind: percentile, percentile: 99}", "{bins: 5}", {"kind": "percentile", "percentile": 99, "bins": 5}),
        ("{kind: percentile, percentile: 99}", "{kind: percentile, bins: 5}", {"kind": "percentile", "percentile": 99, "bins": 5}),
        ("{kind: percentile, percentile: 99}", "percentile", {"kind": "percentile", "percentile": 99}),
        ("percentile", "{percentile: 99}", {"kind": "percentile", "percentile": 99}),
        ("{kind: a, inner: {kind: x, option: 1}}", "{inner: {kind: y}}", {"kind": "a", "inner": {"kind": "y"}}),
        ("{kind: a, mode: static}", "{mode: dynamic}", {"kind": "a", "mode": "dynamic"}),
        ("{kind: a, shape: {x: 1}}", "{shape: square}", {"kind": "a", "shape": "square"}),
        ("{kind: a, shape: square}", "{shape: {x: 1}}", {"kind": "a", "shape": {"x": 1}}),
    ],
)
def test_another_kind_of_plugin_drops_the_options_of_the_parent(parent, child, result):
    root = merged(f"calibration: {{calibrator: {parent}}}", f"calibration: {{calibrator: {child}}}")
    assert root.plain()["calibration"]["calibrator"] == result


def test_the_kind_of_a_section_is_an_ordinary_value():
    root = merged("model: {source: m, kind: onnx}\ndata: {kind: csv, source: d}", "model: {kind: torch}\ndata: {kind: tsv}")
    assert root.plain() == {"model": {"source": "m", "kind": "torch"}, "data": {"kind": "tsv", "source": "d"}}


def test_a_split_merges_with_its_short_form():
    root = merged("data: {splits: {search: 500}}", "data: {splits: {search: {of: train}}}")
    assert root.plain()["data"]["splits"]["search"] == {"samples": 500, "of": "train"}


def test_locate_stops_at_the_deepest_written_parent():
    root = read_text("name: x\nmodel:\n  source: m\ngate:\n  max_drop: 1\n", "f.yaml")
    assert locate(root, ("model", "head", "name")) == (root.child("model"), ("model",))
    assert locate(root, ("latency", "name"))[0] is root
    assert locate(root, ("gate", 0, "max_drop"))[1] == ("gate", "max_drop")
    assert locate(root, ("gate", "no such", "max_drop"), skip_unknown=True)[1] == ("gate", "max_drop")


def test_relative_sources_follow_their_file_and_nothing_else_does():
    text = "model: {source: m.onnx, file: inner.onnx, arguments: {source: s}}\ndata: {source: '../d', inputs: {kind: x, more: [{source: t.json}]}}"
    root = rebase(read_text(text, "f.yaml"), Path("base"))
    assert root.plain() == {
        "model": {"source": "base/m.onnx", "file": "inner.onnx", "arguments": {"source": "s"}},
        "data": {"source": "base/../d", "inputs": {"kind": "x", "more": [{"source": "base/t.json"}]}},
    }


@pytest.mark.parametrize(
    "source",
    [
        "hf:org/name@main",
        "package:name==1.0",
        "npm:@scope/name@1",
        "my.module:make",
        "module:function",
        "/abs/m.onnx",
        "C:\\\\m.onnx",
        "https://x.org/m",
        "s3:bucket",
        "~/m.onnx",
        "",
    ],
)
def test_a_source_that_is_no_relative_path_stays(source):
    assert not is_plain_path(source)
    assert rebase(Placed({"source": Placed(source, Mark("f", 1))}, Mark("f", 1)), Path("base")).plain() == {"source": source}


@pytest.mark.parametrize("source", ["m.onnx", "../m.onnx", "folder/m", "a b:c d", "2024:x", "make.py:model", "tools/make.py:model"])
def test_a_relative_path_is_one(source):
    assert is_plain_path(source)


def test_a_place_reads_as_file_and_line():
    assert str(Mark("a.yaml", 3)) == "a.yaml:3"
    assert str(Mark("--set a.b", 0)) == "--set a.b"
    assert dotted(("a", 0, "b")) == "a.0.b"


def test_the_data_of_one_role_merge_like_the_recipes_data(tmp_path):
    from quant.recipe.load import load_recipe

    (tmp_path / "parent.yaml").write_text(
        "version: 1\nname: parent\nmodel: {source: m.onnx}\ndata:\n  source: d.csv\n  splits:\n"
        "    calibration: {samples: 9, data: {source: c.csv, kind: csv, inputs: {kind: text, max_length: 8}}}\n"
    )
    (tmp_path / "inner").mkdir()
    child = tmp_path / "inner" / "child.yaml"
    child.write_text("extends: ../parent.yaml\ndata: {splits: {calibration: {data: {kind: tsv, inputs: text}}}}\n")
    split = load_recipe(child).recipe.data.splits.calibration
    assert split.samples == 9
    assert split.data.source == "../c.csv"
    assert split.data.kind == "tsv"
    assert split.data.inputs.options == {"max_length": 8}
