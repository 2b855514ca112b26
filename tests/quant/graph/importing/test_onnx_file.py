import pickle
import zipfile

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from quant.errors import ModelError
from quant.graph.importing.onnx_file import custom_operators, read_onnx, refuse_checkpoint

node = helper.make_node


def _zip(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", b"1234")


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (_zip, r"not an ONNX model but a zip archive"),
        (lambda p: p.write_bytes(pickle.dumps({"w": [1, 2]})), r"not an ONNX model but a pickle\nhint: .*my_module:build"),
        (lambda p: p.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(50)), r"not an ONNX model but a PNG picture"),
        (lambda p: p.write_text('{"nodes": []}'), r"not an ONNX model but JSON text"),
        (lambda p: p.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), r"a pointer of Git LFS"),
        (lambda p: p.write_bytes(b"hello, this is no model"), r"not an ONNX model"),
        (lambda p: p.write_bytes(b""), r"it has no graph with outputs"),
    ],
    ids=["zip", "pickle", "png", "json", "lfs", "text", "empty"],
)
def test_a_file_of_another_kind_is_told_apart(tmp_path, write, message):
    path = tmp_path / "model.onnx"
    write(path)
    with pytest.raises(ModelError, match=message) as caught:
        read_onnx(path)
    assert caught.value.where == str(path)
    assert caught.value.hint


def test_a_truncated_file_is_damaged(build, save, rng):
    path = save(build([node("MatMul", ["x", "w"], ["y"])], {"x": [1, 50]}, {"y": None}, {"w": rng.normal(size=(50, 50)).astype("float32")}))
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ModelError, match="not an ONNX model"):
        read_onnx(path)


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(ModelError, match="no such model file"):
        read_onnx(tmp_path / "nothing.onnx")


def test_a_graph_without_outputs_is_refused(build, save):
    with pytest.raises(ModelError, match="no graph with outputs"):
        read_onnx(save(build([node("Relu", ["x"], ["y"])], {"x": [1]}, {})))


def test_an_output_that_nothing_computes_is_refused(build, save):
    with pytest.raises(ModelError, match="output 'z' is computed by no node"):
        read_onnx(save(build([node("Relu", ["x"], ["y"])], {"x": [1]}, {"z": [1]})))


def test_a_graph_that_does_not_hang_together_is_refused_without_a_word_of_the_reader(build, save, caplog, capfd):
    with pytest.raises(ModelError, match=r"Add 'sum' reads 'nowhere', which is computed by no node\nhint: the graph is broken"):
        read_onnx(save(build([node("Add", ["x", "nowhere"], ["y"], name="sum")], {"x": [1]}, {"y": [1]})))
    with pytest.raises(ModelError, match="something in the graph depends on itself"):
        read_onnx(save(build([node("Add", ["x", "b"], ["y"]), node("Relu", ["y"], ["b"])], {"x": [1]}, {"y": [1]})))
    with pytest.raises(ModelError, match="the graph cannot be read: Output 'y' is redeclared"):
        read_onnx(save(build([node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])], {"x": [1]}, {"y": [1]})))
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


def test_nodes_that_are_out_of_order_are_put_in_order(build, save):
    model = read_onnx(save(build([node("Neg", ["b"], ["y"]), node("Relu", ["x"], ["b"])], {"x": [1]}, {"y": [1]})))
    assert [each.op_type for each in model.graph] == ["Relu", "Neg"]


def test_graphs_for_training_are_refused(build, save):
    norm = node("BatchNormalization", ["x", "a", "a", "a", "a"], ["y", "m", "v"], name="bn", training_mode=1)
    proto = build([norm], {"x": [1, 1]}, {"y": [1, 1]}, {"a": np.ones(1, np.float32)}, opset=15)
    with pytest.raises(ModelError, match=r"exported in training mode: BatchNormalization 'bn'\nhint: call model.eval\(\)"):
        read_onnx(save(proto))
    step = node("Adam", ["x"], ["y"], domain="ai.onnx.preview.training", name="step")
    with pytest.raises(ModelError, match="a graph for training: node 'step'"):
        read_onnx(save(build([step], {"x": [1]}, {"y": [1]}, domains=["ai.onnx.preview.training"])))


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".pkl", ".bin", ".ckpt"])
def test_checkpoints_are_not_loaded(tmp_path, suffix):
    with pytest.raises(ModelError, match=r"are pickles or hold weights without a network[\s\S]*hint: name a function that builds the module.*my_module:build"):
        refuse_checkpoint(tmp_path / f"model{suffix}")


def test_a_lone_safetensors_file_needs_its_folder(tmp_path):
    with pytest.raises(ModelError, match=r"weights without a network[\s\S]*config.json"):
        refuse_checkpoint(tmp_path / "model.safetensors")


def test_custom_operators_are_named_and_functions_of_the_model_are_not(build):
    nodes = [node("Twist", ["x"], ["a"], domain="mine"), node("Twice", ["a"], ["b"], domain="mine"), node("Gelu", ["b"], ["y"], domain="com.microsoft")]
    proto = build(nodes, {"x": [1]}, {"y": [1]}, domains=["mine", "com.microsoft"])
    proto.functions.append(helper.make_function("mine", "Twice", ["i"], ["o"], [node("Add", ["i", "i"], ["o"])], [helper.make_opsetid("", 13)]))
    assert custom_operators(ir.from_proto(proto)) == ("mine.Twist",)
