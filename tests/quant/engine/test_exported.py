"""The graph that an engine was given is kept, once."""

import importlib.util
from pathlib import Path

import onnx_ir as ir

from quant.core.digest import digest_of_file
from quant.core.documents import Artifact
from quant.engine.exported import graph_in, keep_graph, share_graph
from quant.graph.model import write_model

SPEC = importlib.util.spec_from_file_location("half_scales", Path(__file__).parents[1] / "graph" / "half_scales.py")
half_scales = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(half_scales)


def model():
    return ir.from_proto(half_scales.half_scales())


def artifact(folder):
    files = {p.relative_to(folder).as_posix(): digest_of_file(p) for p in sorted(folder.rglob("*")) if p.is_file()}
    return Artifact(target="engine", scheme="int8", main=next(iter(files)), files=files, size_bytes=1)


def test_a_graph_that_the_artifact_lacks_is_kept_beside_it(tmp_path):
    keep_graph(model(), tmp_path)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "model.xml").write_text("<x/>")
    share_graph(tmp_path, artifact(tmp_path / "files"), tmp_path / "files")
    assert graph_in(tmp_path) == tmp_path / "graph" / "model.onnx"
    assert ir.load(graph_in(tmp_path)).graph.name == "half_scales"


def test_a_graph_that_is_the_artifact_is_not_kept_twice(tmp_path):
    keep_graph(model(), tmp_path)
    write_model(model(), tmp_path / "files" / "inner", single_file=True)
    share_graph(tmp_path, artifact(tmp_path / "files"), tmp_path / "files")
    assert graph_in(tmp_path) == tmp_path / "files" / "inner" / "model.onnx"
    assert not (tmp_path / "graph").exists()
    assert graph_in(tmp_path).is_file()


def test_a_graph_that_was_changed_by_the_export_is_another(tmp_path):
    keep_graph(model(), tmp_path)
    other = model()
    other.graph.name = "other"
    write_model(other, tmp_path / "files", single_file=True)
    share_graph(tmp_path, artifact(tmp_path / "files"), tmp_path / "files")
    assert ir.load(graph_in(tmp_path)).graph.name == "half_scales"
