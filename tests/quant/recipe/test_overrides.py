"""Overrides of single values."""

from pathlib import Path

import pytest

from quant.errors import RecipeError
from quant.recipe.load import load_recipe
from quant.recipe.overrides import override
from quant.recipe.yaml_text import read_text

BASE = """\
name: x
model: {source: m.onnx, head: null}
schemes: [int8, {kind: int4, group: 32}]
calibration: {calibrator: {kind: percentile, percentile: 99}}
data: {source: d, splits: {search: 500}}
"""


def changed(*texts, base=BASE):
    root = read_text(base, "f.yaml")
    for text in texts:
        root = override(root, text)
    return root.plain()


def test_a_value_is_read_as_yaml_and_names_its_override():
    root = override(read_text(BASE, "f.yaml"), "gate.max_drop=2e-3")
    assert root.plain()["gate"] == {"max_drop": 0.002}
    assert str(root.child("gate").child("max_drop").mark) == "--set gate.max_drop"
    assert changed("targets=[onnxruntime,openvino]")["targets"] == ["onnxruntime", "openvino"]
    assert changed("model.source=hf:org/name@main")["model"]["source"] == "hf:org/name@main"
    assert changed("description=a = b")["description"] == "a = b"
    assert changed("calibration={minimum: 4}")["calibration"] == {"minimum": 4}


def test_a_number_is_an_index_and_a_bare_plugin_gets_room_for_options():
    assert changed("schemes.0.calibrator=mse")["schemes"] == [{"kind": "int8", "calibrator": "mse"}, {"kind": "int4", "group": 32}]
    assert changed("schemes.1=fp16")["schemes"] == ["int8", "fp16"]
    assert changed("schemes.0.calibrator=mse", "schemes.0.calibrator.bins=5")["schemes"][0] == {"kind": "int8", "calibrator": {"kind": "mse", "bins": 5}}


def test_another_kind_drops_the_options_of_the_file_and_keeps_those_of_overrides():
    assert changed("calibration.calibrator.kind=mse")["calibration"]["calibrator"] == {"kind": "mse"}
    assert changed("calibration.calibrator.bins=5", "calibration.calibrator.kind=mse")["calibration"]["calibrator"] == {"bins": 5, "kind": "mse"}
    assert changed("calibration.calibrator.kind=percentile")["calibration"]["calibrator"] == {"kind": "percentile", "percentile": 99}
    assert changed("data.kind=csv")["data"]["source"] == "d"


def test_what_is_not_written_starts_from_its_default():
    assert changed("schemes.0.bits=4", base="name: x")["schemes"] == [{"kind": "int8", "bits": 4}]
    assert changed("calibration.calibrator.bins=4", base="name: x")["calibration"] == {"calibrator": {"kind": "mse", "bins": 4}}
    assert changed("data.splits.calibration.of=train", base="name: x")["data"]["splits"] == {"calibration": {"samples": 128, "of": "train"}}
    assert changed("model.head.C=2")["model"]["head"] == {"C": 2}
    assert changed("data.splits.search.of=train")["data"]["splits"]["search"] == {"samples": 500, "of": "train"}
    assert changed("model.arguments.width=3")["model"]["arguments"] == {"width": 3}


def test_the_gate_is_one_or_a_list():
    assert changed("gate.0.max_drop=0.5")["gate"] == {"max_drop": 0.5}
    assert changed("gate.1.max_drop=0.5", base="gate: [{max_drop: 1}, {max_drop: 2}]")["gate"] == [{"max_drop": 1}, {"max_drop": 0.5}]


def test_a_relative_source_starts_at_the_current_folder(minimal):
    assert load_recipe(minimal, ["model.source=other.onnx"]).recipe.model.source == (Path.cwd() / "other.onnx").as_posix()
    assert load_recipe(minimal, ["model={source: other.onnx}"]).recipe.model.source == (Path.cwd() / "other.onnx").as_posix()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gate.max_drop", r"--set: expected KEY=VALUE, got 'gate.max_drop'\nhint: such as --set gate.max_drop=0.02"),
        ("=5", r"--set: expected KEY=VALUE, got '=5'"),
        ("gate..x=5", r"--set: expected KEY=VALUE, got 'gate..x=5'"),
        ("name=", r"--set name: no value after the =\nhint: write null for nothing"),
        ("name=[1", r"--set name: not readable YAML: "),
        ("name=no", r"--set name: a bare 'no' is text to some readers"),
        ("nmae=y", r"--set nmae: unknown key 'nmae'\nhint: did you mean 'name'\?"),
        ("gate.max_dorp=1", r"--set gate.max_dorp: unknown key 'max_dorp' in gate\nhint: did you mean 'max_drop'\?"),
        ("gate.0.max_dorp=1", r"--set gate.0.max_dorp: unknown key 'max_dorp' in gate\nhint: did you mean 'max_drop'\?"),
        ("data.splits.serch=1", r"--set data.splits.serch: unknown key 'serch' in data.splits\nhint: did you mean 'search'\?"),
        ("model.head.max_itr=1", r"--set model.head.max_itr: unknown key 'max_itr' in model.head\nhint: did you mean 'max_iter'\?"),
        ("data.label.colum=1", r"--set data.label.colum: unknown key 'colum' in data.label\nhint: did you mean 'column'\?"),
        ("schemes.bits=4", r"--set schemes.bits: schemes is a list, and has no 'bits'\nhint: give a number, such as schemes.0"),
        ("schemes.2=fp16", r"--set schemes.2: schemes has 2 items, and no number 2\nhint: numbers start at 0; .* --set schemes=\[...\]"),
        ("gate.1.max_drop=0", r"--set gate.1.max_drop: gate has 1 item, and no number 1"),
        ("evaluation.metrics.0.x=0", r"--set evaluation.metrics.0.x: evaluation.metrics has 0 items, and no number 0"),
        ("model.source.x=0", r"--set model.source.x: model.source is a single value, and has no 'x' in it"),
    ],
)
def test_an_override_that_says_nothing_sensible_is_refused(text, message):
    with pytest.raises(RecipeError, match=f"^{message}"):
        changed(text)


def test_a_wrong_value_is_reported_at_the_override(minimal):
    with pytest.raises(RecipeError, match=r"^--set gate.max_drop: gate.max_drop: expected a number, got 'a lot'$"):
        load_recipe(minimal, ["gate.max_drop=a lot"])


def test_another_source_drops_what_was_said_of_the_inside_of_the_old_one(tmp_path):
    path = tmp_path / "r.yaml"
    digest = "a" * 64
    data = f"{{source: 'package:a==1', file: x/y.csv, sha256: {digest}, kind: csv, splits: {{calibration: {{data: {{source: 'package:a==1', file: z}}}}}}}}"
    path.write_text(f"version: 1\nname: r\nmodel: {{source: m.onnx, sha256: {digest}}}\ndata: {data}\n")

    def told(*overrides):
        found = load_recipe(path, overrides).recipe
        return (found.data.source.rpartition("/")[2], found.data.file, found.data.sha256)

    assert told("data.source=other.csv") == ("other.csv", None, None)
    assert told("data.source=folder", "data.file=inner.csv") == told("data.file=inner.csv", "data.source=folder") == ("folder", "inner.csv", None)
    assert told("data.source=package:a==2") == ("package:a==2", "x/y.csv", digest)
    assert told("data.splits.calibration.data.source=b") == ("package:a==1", "x/y.csv", digest)
    assert load_recipe(path, ["data.splits.calibration.data.source=b"]).recipe.data.splits.calibration.data.file is None
    assert load_recipe(path, ["model.source=other.onnx"]).recipe.model.sha256 is None
