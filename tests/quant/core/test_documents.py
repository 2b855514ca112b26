"""Documents: frozen, byte for byte the same, and never read from what they are not."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from quant.core.documents import Artifact, Audit, AuditRow, LayerChoice, PrecisionPlan, Verdict
from quant.errors import RunError

LAYERS = (
    LayerChoice(layer="encoder/é", op="MatMul", format="int8", reason="quantized"),
    LayerChoice(layer="head", op="Gemm", format="fp32", reason="excluded by the recipe"),
)
PLAN = PrecisionPlan(scheme="int8", base="int8", layers=LAYERS)
VERDICT = Verdict(
    decision="inconclusive",
    baseline=0.9,
    value=0.89,
    drop=0.1 + 0.2,
    drop_lower=-0.01,
    drop_upper=1e-17,
    limit=0.01,
    relative=False,
    confidence=0.95,
    method="exact paired",
    samples=500,
    needed=1200,
)
AUDIT = Audit(
    target="onnxruntime",
    scheme="int8",
    rows=(
        AuditRow(layer="a", planned="int8", runs="int8", kernel="QGemm", agrees=True),
        AuditRow(layer="b", planned="int8", runs="fp32", kernel="Gemm", agrees=False),
    ),
)
ARTIFACT = Artifact(target="onnxruntime", scheme="int8", main="model.onnx", files={"z": "00", "a": "11"}, size_bytes=3)
every = pytest.mark.parametrize("document", [PLAN, VERDICT, AUDIT, ARTIFACT], ids=lambda d: type(d).__name__)


@every
def test_a_document_comes_back_the_same_byte_for_byte(tmp_path, document):
    path = tmp_path / "sub" / "d.json"
    document.save(path)
    loaded = type(document).load(path)
    assert loaded == document
    assert loaded.digest == document.digest
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()
    assert path.read_bytes().endswith(b"}\n")


def test_json_has_sorted_keys_and_plain_letters():
    text = ARTIFACT.to_json()
    assert text.index('"a"') < text.index('"z"')
    assert text.splitlines()[1] == '  "files": {'
    assert "encoder/é" in PLAN.to_json()


@every
def test_a_document_is_frozen_and_takes_no_unknown_fields(document):
    field = next(iter(type(document).model_fields))
    with pytest.raises(ValidationError, match="Instance is frozen"):
        setattr(document, field, "x")
    with pytest.raises(ValidationError, match="extra\n  Extra inputs are not permitted"):
        type(document).model_validate({**document.model_dump(), "extra": 1})


def test_the_digest_hangs_on_every_field_and_not_on_the_order_of_a_mapping():
    assert ARTIFACT.digest == ARTIFACT.model_copy(update={"files": {"a": "11", "z": "00"}}).digest
    changed = [VERDICT.model_copy(update={name: value}) for name, value in {"value": 0.8, "needed": None, "samples": 501, "decision": "pass"}.items()]
    assert len({document.digest for document in (VERDICT, *changed)}) == 5


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_json_has_no_word_for_is_refused_and_nothing_is_written(tmp_path, value):
    document = VERDICT.model_copy(update={"drop_upper": value})
    with pytest.raises(ValueError, match="Out of range float values are not JSON compliant"):
        document.save(tmp_path / "v.json")
    with pytest.raises(ValueError, match="Out of range float values are not JSON compliant"):
        _ = document.digest
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_told(tmp_path):
    path = tmp_path / "plan.json"
    with pytest.raises(RunError, match="^" + re.escape(f"{path}: no such PrecisionPlan") + "$"):
        PrecisionPlan.load(path)


@pytest.mark.parametrize("data", [b"", b"not json", b"{}", b"[1]", b'{"scheme": 3}', b"\xff\xfe\x00", VERDICT.to_json().encode()])
def test_a_file_of_another_kind_is_told(tmp_path, data):
    path = tmp_path / "plan.json"
    path.write_bytes(data)
    with pytest.raises(RunError, match="^" + re.escape(f"{path}: not a PrecisionPlan: ")):
        PrecisionPlan.load(path)


def test_a_folder_in_the_place_of_a_document_is_told(tmp_path):
    with pytest.raises(RunError, match="^" + re.escape(f"{tmp_path}: cannot read this Verdict: Is a directory") + "$"):
        Verdict.load(tmp_path)


def test_a_plan_tells_what_it_quantizes_and_what_it_leaves():
    assert PLAN.quantized == ("encoder/é",)
    assert [choice.layer for choice in PLAN.exclusions] == ["head"]


def test_an_audit_tells_what_disagrees():
    assert [row.layer for row in AUDIT.disagreements] == ["b"]
