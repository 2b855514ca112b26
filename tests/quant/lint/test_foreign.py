"""Graphs that ModelOpt, onnxruntime and NNCF wrote: what is found in each, and that TensorRT-RTX does as was found, no more and no less."""

import re
from collections import Counter
from pathlib import Path

import pytest

from quant.graph.model import read_model
from quant.lint.check import check
from quant.lint.facts import Facts, Setting

FOREIGN = Path(__file__).parent / "foreign"
FOUND = {
    "modelopt-fp8-fp16-cnn": {},
    "modelopt-fp8-fp16-mlp": {},
    "modelopt-int4-fp16-mlp": {"Q22": 2},
    "modelopt-int8-fp16-cnn": {"Q29": 1},
    "modelopt-int8-fp16-mlp": {},
    "modelopt-int8-fp32-cnn": {"Q29": 1},
    "modelopt-int8-fp32-mlp": {},
    "nncf-default-cnn": {"Q02": 4, "Q25": 1, "Q29": 1},
    "nncf-default-mlp": {"Q02": 1, "Q25": 1},
    "nncf-mixed-cnn": {"Q01": 2, "Q02": 4, "Q25": 1, "Q29": 1},
    "nncf-mixed-mlp": {"Q01": 3, "Q02": 1, "Q25": 1},
    "onnxruntime-default-cnn": {"Q01": 4, "Q15": 5, "Q02": 5, "Q25": 1, "Q29": 1},
    "onnxruntime-default-mlp": {"Q01": 8, "Q15": 1, "Q02": 1, "Q25": 3},
    "onnxruntime-dynamic-cnn": {"Q16": 10},
    "onnxruntime-dynamic-mlp": {"Q16": 4},
    "onnxruntime-operators-cnn": {"M01": 3, "Q01": 2, "Q16": 4},
    "onnxruntime-operators-mlp": {"M01": 3, "Q01": 3, "Q16": 2},
    "onnxruntime-symmetric-cnn": {"Q25": 5, "Q29": 1},
    "onnxruntime-symmetric-mlp": {"Q25": 4},
}
ERRORS = {"M01", "Q01", "Q15", "Q16"}
COMPUTES = re.compile(r"LayerType: (correlation|gemm|runtime_fusion)")
LOW = {"INT8": "Int8", "UINT8": "Int8", "INT4": "Int4", "FLOAT8E4M3FN": "FP8"}  # Q02 says that UINT8 is taken for INT8


@pytest.fixture(params=sorted(path.stem for path in FOREIGN.glob("*.onnx")))
def foreign(request):
    return FOREIGN / f"{request.param}.onnx"


def test_what_is_found_is_what_is_wrong_with_it(foreign):
    assert Counter(f.rule for f in check(foreign, capability="sm89").findings) == FOUND[foreign.stem]


def test_tensorrt_rtx_refuses_it_exactly_when_an_error_is_found(foreign, rtx):
    refused = check(foreign, capability="sm89").count("error") > 0
    assert rtx.ask(foreign)["accepted"] is not refused


@pytest.mark.parametrize("stem", [stem for stem, found in FOUND.items() if not ERRORS & set(found)])
def test_every_layer_runs_in_its_format_unless_a_finding_names_it(stem, rtx):
    foreign = FOREIGN / f"{stem}.onnx"
    checked = check(foreign, capability="sm89")
    named = {finding.node for finding in checked.findings}
    lines = rtx.ask(foreign)["layers"]
    layers = [layer for layer in Facts(read_model(foreign), Setting(89)).layers if layer.left.codes or layer.right.codes]
    assert layers
    for layer in layers:
        codes = layer.left.codes or layer.right.codes
        [line] = [line for line in lines if COMPUTES.search(line) and f"[ONNX Layer: {layer.node.name}]" in line]
        read = set(re.findall(r"Datatype: (\w+)", line.split("Outputs:")[0]))
        assert (LOW[codes.name] in read) is not (layer.node.name in named), (layer.node.name, read)


def test_every_graph_is_expected_and_small():
    files = {path.stem: path.stat().st_size for path in FOREIGN.glob("*.onnx")}
    assert set(files) == set(FOUND)
    assert max(files.values()) < 32 << 10
