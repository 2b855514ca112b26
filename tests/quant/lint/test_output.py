"""What `quant check` prints and writes, and how it ends."""

import json
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest

from quant.lint.check import CAPABILITIES
from quant.targets.nvidia.engine_host.capabilities import FORMATS

SARIF = json.loads((Path(__file__).parent / "sarif-2.1.0-subset.json").read_text(encoding="utf-8"))
"""What SARIF 2.1.0 says of the properties that are written, from its text."""


@pytest.fixture
def broken(drawing, tmp_path):
    """A file with one refused pair, whose names are hostile to a terminal, and a scale that goes wrong silently."""
    g = drawing()
    g.input("x", [8, 64])
    q = g.node("QuantizeLinear", ["x", g.weight(0.05), g.weight(3, "i8")], name="[bold]evil\x1b[31m")
    y = g.node("MatMul", [g.dequantize(q, zero=3), g.coded((64, 64), 0)], name="dense")
    g.output(y, ["N", 64])
    path = tmp_path / "my model.onnx"
    onnx.save(g.model(), path)
    return path


def test_text_is_grouped_by_rule_with_the_engine_s_own_words_and_names_that_a_terminal_does_not_act_on(cli, broken):
    done = cli("check", broken, "--target", "tensorrt")
    assert done.code == 1
    assert done.err == ""
    lines = done.out.splitlines()
    assert lines[0] == "error Q01: the zero point is not zero"
    assert lines[1] == r"    QuantizeLinear '[bold]evil\x1b[31m': zero point is 3 [x]"
    assert any(line.startswith("  TensorRT says: Assertion failed: shiftIsAllZeros") for line in lines)
    assert any(line.startswith("silent Q09:") for line in lines)
    assert "\x1b" not in done.out
    assert lines[-1].endswith("my model.onnx for tensorrt: 2 refused, 1 silently otherwise, 0 to know")


def test_a_clean_model_ends_with_0_and_so_does_one_with_silent_findings_only(cli, broken):
    assert cli("check", broken, "--rule", "Q03").out.endswith("for tensorrt: nothing found\n")
    done = cli("check", broken, "--rule", "q09")
    assert done.code == 0
    assert "1 silently otherwise" in done.out


def test_json_holds_every_rule_that_was_asked_and_every_finding(cli, broken):
    found = json.loads(cli("check", broken, "--json", "--severity", "error").out)
    assert [(f["rule"], f["severity"], f["op"]) for f in found["findings"]] == [("Q01", "error", "QuantizeLinear"), ("Q01", "error", "DequantizeLinear")]
    assert {"Q01", "T01", "P01"} <= {rule["id"] for rule in found["rules"]}


@pytest.mark.usefixtures("broken")
def test_sarif_is_what_its_specification_asks_for(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli("check", "my model.onnx", "--sarif", tmp_path / "out.sarif").code == 1
    log = json.loads((tmp_path / "out.sarif").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(SARIF).validate(log)
    [run] = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    assert [r["ruleId"] for r in run["results"]] == ["Q01", "Q01", "Q09"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "my%20model.onnx", "index": 0}
    assert run["results"][2]["locations"][0]["logicalLocations"][0]["name"] == "dense"
    assert [r["level"] for r in run["results"]] == ["error", "error", "warning"]
    assert len({r["partialFingerprints"]["node/v1"] for r in run["results"]}) == 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--rule", "Q99"], "no such rule: 'Q99'"),
        (["--severity", "fatal"], "no such severity: 'fatal'"),
        (["--target", "openvino"], "no rules for target 'openvino'"),
        (["--capability", "RTX 4090"], "not a compute capability: 'RTX 4090'"),
        (["--capability", "8.99"], "not a compute capability: '8.99'"),
        (["--capability", "sm61"], "TensorRT builds nothing for compute capability 'sm61'\nhint: one of sm75, sm80, "),
        (["--capability", "5.0"], "TensorRT builds nothing for compute capability '5.0'"),
        (["--capability", "sm76"], "TensorRT builds nothing for compute capability 'sm76'"),
    ],
)
def test_a_wrong_option_ends_with_2_and_says_what_is_wrong(cli, broken, arguments, says):
    done = cli("check", broken, *arguments)
    assert done.code == 2
    assert says in done.err
    assert done.out == ""


def test_capabilities_are_those_that_the_targets_know():
    assert tuple(f"sm{number}" for number in CAPABILITIES) == tuple(FORMATS)


@pytest.mark.parametrize("content", [None, b"", b"not a model", b"\x08\x0a"])
def test_what_is_no_model_ends_with_2(cli, tmp_path, content):
    path = tmp_path / "x.onnx"
    if content is not None:
        path.write_bytes(content)
    done = cli("check", path)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert cli("check", tmp_path).code == 2


def test_a_mended_copy_is_written_and_what_remains_is_told(cli, drawing, tmp_path):
    g = drawing(13)
    g.input("x", [1, 32, 16, 16], "f32")
    bias = g.dequantize(g.weight(np.arange(32), "i32"), np.full(32, 0.0005), axis=0)
    g.output(g.node("Conv", [g.pair("x", zero=7), g.coded((32, 32, 3, 3), 0), bias], pads=[1] * 4), [1, 32, 16, 16], "f32")
    onnx.save(g.model(), tmp_path / "model.onnx")
    before = (tmp_path / "model.onnx").read_bytes()
    done = cli("check", tmp_path / "model.onnx", "--fix", tmp_path / "mended.onnx")
    assert done.code == 1
    assert done.out.startswith(f"mended: Q15 in 1 place; written to {tmp_path / 'mended.onnx'}\n")
    assert done.out.rstrip().endswith("2 refused, 0 silently otherwise, 0 to know left in the copy")
    assert (tmp_path / "model.onnx").read_bytes() == before
    assert cli("check", tmp_path / "mended.onnx", "--rule", "Q15").code == 0
    assert cli("check", tmp_path / "model.onnx", "--fix", tmp_path / "model.onnx").code == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--sarif", "model.onnx"], "model.onnx: the report would overwrite what it is made of"),
        (["--sarif", "./weights.data"], "weights.data: the report would overwrite what it is made of"),
        (["--fix", "model.onnx"], "model.onnx: the mended copy would overwrite what it is made of"),
        (["--fix", "weights"], "weights: the mended copy would overwrite what it is made of"),
        (["--fix", "new.onnx", "--sarif", "new.onnx"], "new.onnx: the report would overwrite the mended copy"),
        (["--fix", "new.onnx", "--sarif", ""], ".: cannot write here: Is a directory"),
        (["--fix", "", "--sarif", "new.sarif"], ".: cannot write here: Is a directory"),
    ],
)
def test_nothing_is_written_where_an_output_would_overwrite_the_model_or_another_output(cli, broken, monkeypatch, options, said):
    tmp_path = broken.parent
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.load(broken), "model.onnx", save_as_external_data=True, location="weights.data", size_threshold=0)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    done = cli("check", "model.onnx", *options)
    assert done.code == 2
    assert done.err.startswith(f"error: {said}\nhint: give ")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
