"""Inputs for a bare graph: from a file, or drawn."""

import importlib.util
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto

from quant.engine.inputs import BATCH, fitting, inputs_from_file, random_inputs
from quant.errors import DataError

SPEC = importlib.util.spec_from_file_location("zoo", Path(__file__).parents[1] / "graph" / "zoo.py")
zoo = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(zoo)


def gemm(first="N"):
    return ir.from_proto(zoo.model([zoo.node("Gemm", "x w", "y")], {"x": [first, 4]}, {"y": None}, {"w": zoo.draw(4, 3)}))


def written(tmp_path, **arrays):
    np.savez(tmp_path / "x.npz", **arrays)
    return tmp_path / "x.npz"


X = np.arange(80, dtype=np.float32).reshape(20, 4)


def test_rows_are_cut_into_batches_as_far_as_asked(tmp_path):
    found = inputs_from_file(written(tmp_path, x=X), gemm(), most=12)
    assert [feed["x"].shape for feed in found] == [(BATCH, 4), (4, 4)]
    np.testing.assert_array_equal(np.concatenate([feed["x"] for feed in found]), X[:12])


@pytest.mark.parametrize(("batch", "sizes"), [(5, [5, 5, 5]), (1, [1] * 12)])
def test_a_fixed_batch_is_filled(tmp_path, batch, sizes):
    assert [len(feed["x"]) for feed in inputs_from_file(written(tmp_path, x=X), gemm(batch), most=12)] == sizes


def test_an_npy_goes_into_the_only_input(tmp_path):
    np.save(tmp_path / "x.npy", X)
    assert len(inputs_from_file(tmp_path / "x.npy", gemm(), most=20)) == 3


@pytest.mark.parametrize(
    ("arrays", "batch", "message"),
    [
        ({"z": X}, "N", r"no array for input 'x'\nhint: it has: z"),
        ({"x": X, "z": X}, "N", r"array 'z' is no input of the model\nhint: its inputs are: x: float32 \[N, 4\]"),
        ({"x": X[:, :3]}, "N", r"array 'x' has shape \[20, 3\], the model's input is x: float32 \[N, 4\]"),
        ({"x": X[0]}, "N", r"array 'x' has shape \[4\], the model's input is x"),
        ({"x": X + 1j}, "N", r"array 'x' is complex64, the model's input is x"),
        ({"x": X}, 3, r"20 rows cannot be cut into batches of 3, which the model is fixed to"),
        ({"x": X[:0]}, "N", r"0 rows cannot be cut"),
    ],
    ids=["missing", "surplus", "length", "rank", "type", "batch", "empty"],
)
def test_what_does_not_fit_is_told(tmp_path, arrays, batch, message):
    with pytest.raises(DataError, match=message):
        inputs_from_file(written(tmp_path, **arrays), gemm(batch), most=20)


def test_drawn_inputs_are_the_same_each_time_and_as_many_as_asked():
    first, again = (random_inputs(gemm(), rows=20) for _ in range(2))
    assert [feed["x"].shape for feed in first] == [(BATCH, 4)] * 3
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one["x"], other["x"])
    assert 0.6 < np.std([feed["x"] for feed in first]) < 1.4


def test_integers_that_choose_rows_of_a_table_are_any_of_them_and_others_are_0_or_1():
    nodes = [zoo.node("Gather", "table ids", "rows"), zoo.node("Cast", "mask", "float", to=1), zoo.node("MatMul", "float rows", "y")]
    inputs, types = {"ids": [64], "mask": ["N", 64]}, {"ids": TensorProto.INT64, "mask": TensorProto.INT64}
    model = ir.from_proto(zoo.model(nodes, inputs, {"y": None}, {"table": zoo.draw(30, 4)}, types=types))
    (feed, *_) = random_inputs(model, rows=1)
    assert feed["ids"].max() > 20
    assert 0 <= feed["ids"].min() <= feed["ids"].max() < 30
    assert set(feed["mask"].ravel()) == {0, 1}


def test_an_input_of_text_cannot_be_drawn():
    nodes = [zoo.node("Identity", "x", "y")]
    model = ir.from_proto(zoo.model(nodes, {"x": ["N"]}, {"y": None}, types={"x": TensorProto.STRING, "y": TensorProto.STRING}))
    with pytest.raises(DataError, match=r"nothing can be drawn for the input x.*\nhint: give inputs with --inputs"):
        random_inputs(model, rows=1)


def test_inputs_fit_a_graph_of_half_floats_too():
    model = gemm()
    model.graph.inputs[0].dtype = ir.DataType.FLOAT16
    assert fitting({"x": X, "more": X}, model)["x"].dtype == np.float16
    with pytest.raises(DataError, match=r"there is nothing for the input x: float16 \[N, 4\]\nhint: the inputs have: z"):
        fitting({"z": X}, model)
    with pytest.raises(DataError, match=r"the input x: float16 \[N, 4\] cannot be given int64"):
        fitting({"x": X.astype(np.int64)}, model)
