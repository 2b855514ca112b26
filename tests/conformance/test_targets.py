"""What every target owes, whatever it does; run over the registry."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from quant.core.digest import digest_of_file
from quant.core.documents import Artifact, LayerChoice, PrecisionPlan
from quant.core.formats import FORMATS
from quant.engine.auditing import audit
from quant.errors import QuantError, TargetError
from quant.graph.layers import LAYER_OPS, find_layers
from quant.graph.runtime import Runtime
from quant.stages.first_run import ARTIFACT_FILE
from quant.targets import TARGETS

SPEC = importlib.util.spec_from_file_location("zoo", Path(__file__).parents[1] / "quant" / "graph" / "zoo.py")
zoo = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(zoo)

GRAPHS = ("residual with relu", "attention", "gemm with factors")


@pytest.fixture(params=TARGETS.kinds())
def kind(request):
    return request.param


@pytest.fixture
def target(kind):
    made = TARGETS.make(kind)
    here = made.available()
    if not here.available:
        assert here.reason
        pytest.skip(here.reason)
    return made


def fixed(graph):
    """A graph of the zoo with fixed shapes, which every engine takes."""
    proto = zoo.ZOO[graph]()
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_value = zoo.ROWS
    return proto


def float_plan(model):
    return PrecisionPlan(scheme="fp32", base="fp32", layers=tuple(LayerChoice(layer=x.name, op=x.op, format="fp32", reason="test") for x in find_layers(model)))


def test_it_says_whether_it_is_available_and_if_not_why(kind):
    here = TARGETS.make(kind).available()
    assert here.version if here.available else here.reason and here.install


def test_its_dialect_makes_sense(kind):
    dialect = TARGETS.make(kind).dialect
    assert dialect.integer <= LAYER_OPS
    assert dialect.dynamic <= LAYER_OPS
    assert dialect.dynamic_group >= 0
    assert dialect.transparent <= dialect.chained
    assert not dialect.melting & dialect.chained
    assert dialect.integer_bias <= dialect.integer
    assert dialect.weights.symmetric


def test_it_has_a_word_on_every_format(kind):
    for number_format in FORMATS:
        said = TARGETS.make(kind).emulates(number_format)
        assert said is None or said


@pytest.mark.parametrize("graph", GRAPHS)
def test_what_is_exported_and_loaded_again_computes_the_model(target, graph, tmp_path):
    proto = fixed(graph)
    artifact = target.export(ir.from_proto(proto), tmp_path / "files", scheme="fp32")
    session = target.session(artifact, tmp_path / "files", threads=1)
    feed = zoo.feed(proto, 0)
    expected = Runtime(ir.from_proto(proto), optimize=False).run(feed)
    found = session.run(feed)
    assert list(session.outputs) == list(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-3 * np.abs(array).max())


def test_an_artifact_tells_its_files_with_digests_and_size(kind, target, tmp_path):
    proto = fixed("residual with relu")
    artifact = target.export(ir.from_proto(proto), tmp_path / "files", scheme="fp32")
    there = {str(p.relative_to(tmp_path / "files")): p for p in (tmp_path / "files").rglob("*") if p.is_file()}
    # What differs from build to build (a log, an engine) may be left untold; what is told is true.
    assert dict(artifact.files) == {name: digest_of_file(there[name]) for name in artifact.files}
    assert artifact.files
    assert artifact.main in there
    assert there[artifact.main].stat().st_size <= artifact.size_bytes <= sum(path.stat().st_size for path in there.values())
    assert (artifact.target, artifact.scheme) == (kind, "fp32")
    artifact.save(tmp_path / "artifact.json")
    assert Artifact.load(tmp_path / "artifact.json") == artifact


@pytest.mark.parametrize("graph", GRAPHS)
def test_an_audit_tells_every_layer_once_or_why_it_tells_nothing(kind, target, graph, tmp_path):
    model = ir.from_proto(fixed(graph))
    plan = float_plan(model)
    outputs = {x.name: str(x.node.outputs[0].name) for x in find_layers(model)}
    artifact = target.export(ir.from_proto(fixed(graph)), tmp_path, scheme="fp32")
    audit = target.audit(artifact, tmp_path, plan, outputs)
    assert (audit.target, audit.scheme) == (kind, "fp32")
    if audit.unaudited:
        assert not audit.rows
        assert target.ahead_of_time  # no engine that runs here is let off
        return
    assert [(row.layer, row.planned) for row in audit.rows] == [(c.layer, c.format) for c in plan.layers]
    assert all(row.kernel and row.agrees == (row.runs == row.planned) for row in audit.rows)


def test_what_lies_in_a_folder_is_audited_as_when_it_was_written(kind, target, tmp_path):
    model = ir.from_proto(fixed("residual with relu"))
    plan = float_plan(model)
    outputs = {x.name: str(x.node.outputs[0].name) for x in find_layers(model)}
    artifact = target.export(ir.from_proto(fixed("residual with relu")), tmp_path / "files", scheme="fp32")
    told = target.options.model_dump(mode="json", exclude_defaults=True)
    artifact.model_copy(update={"options": told, "layers": outputs}).save(tmp_path / "files" / ARTIFACT_FILE)
    plan.save(tmp_path / "plan.json")
    expected = target.audit(artifact, tmp_path / "files", plan, outputs)
    if expected.unaudited:
        with pytest.raises(TargetError, match=f"there is nothing to audit: {re.escape(expected.unaudited)}"):
            audit(tmp_path / "files", plan=tmp_path / "plan.json")
        return
    found = audit(tmp_path / "files", plan=tmp_path / "plan.json")
    assert found.audit == expected
    assert found.audit.target == kind


def test_an_audit_of_damaged_files_tells_the_file_or_what_there_is(target, tmp_path):
    """No file of an artifact, cut or replaced, ends an audit otherwise than in words."""
    model = ir.from_proto(fixed("residual with relu"))
    plan = float_plan(model)
    outputs = {x.name: str(x.node.outputs[0].name) for x in find_layers(model)}
    artifact = target.export(ir.from_proto(fixed("residual with relu")), tmp_path, scheme="fp32")
    unaudited = target.audit(artifact, tmp_path, plan, outputs).unaudited
    told = []
    for path in sorted(file for file in tmp_path.rglob("*") if file.is_file()):
        whole = path.read_bytes()
        for damaged in (b"", whole[: len(whole) // 2], b"{}", b"[]", b"[1]", b'{"x": 1}', None):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            try:
                target.audit(artifact, tmp_path, plan, outputs)
            except QuantError as error:
                told.append(error.where or error.what)
            path.write_bytes(whole)
    assert told or unaudited, "an audit reads nothing of the artifact"
