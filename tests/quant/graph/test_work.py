"""Products, elements and crossings, counted by hand."""

import onnx_ir as ir
import pytest

from quant.core.costs import Crossing
from quant.graph.model import write_model
from quant.graph.work import model_work
from quant.targets import TARGETS


@pytest.fixture
def work(zoo, tmp_path):
    def of(proto, target=None):
        dialect = None if target is None else TARGETS.make(target).dialect
        return model_work(write_model(ir.from_proto(proto), tmp_path), zoo.feed(proto), dialect=dialect, samples=3)

    return of


def rows(found):
    return {row.layer: (row.products, row.weights, row.read, row.written) for row in found.layers}


def test_products_of_each_operator_are_counted_as_they_are_computed(zoo, work):
    # `N` is 3: zoo.ROWS.
    assert rows(work(zoo.ZOO["matmul"]())) == {"matmul_y": (3 * 8 * 16, 128, 48, 24)}
    assert rows(work(zoo.ZOO["gemm transB"]()))["gemm_y"][0] == 3 * 8 * 16
    assert rows(work(zoo.ZOO["conv"]())) == {"conv_y": (3 * 8 * 64 * 27, 216, 3 * 192, 3 * 512)}
    assert rows(work(zoo.ZOO["depthwise conv"]()))["conv_y"][0] == 3 * 8 * 36 * 9
    # 4 channels of 5 x 5 each give 3 channels of 3 x 3.
    assert rows(work(zoo.ZOO["transposed conv"]()))["convtranspose_t"][0] == 3 * 4 * 25 * 27


def test_a_product_of_two_activations_reads_both_and_has_no_weight(zoo, work):
    nodes = [zoo.node("MatMul", "a b", "y", "scores")]
    found = work(zoo.model(nodes, {"a": ["N", 5, 7], "b": ["N", 7, 2]}, {"y": None}))
    assert rows(found) == {"scores": (3 * 5 * 7 * 2, 0, 3 * 35 + 3 * 14, 3 * 10)}
    assert found.crossings == (
        Crossing(tensor="a", maker=None, readers=("scores",), open=False, elements=105),
        Crossing(tensor="b", maker=None, readers=("scores",), open=False, elements=42),
        Crossing(tensor="y", maker="scores", readers=(), open=True, elements=30),
    )


def chain(zoo):
    nodes = [
        zoo.node("Conv", "x w1", "a", "one"),
        zoo.node("Relu", "a", "r"),
        zoo.node("Conv", "r w2", "b", "two"),
        zoo.node("Conv", "r w3", "c", "three"),
        zoo.node("Add", "b c", "s"),
        zoo.node("Conv", "s w4", "d", "four"),
        zoo.node("Softmax", "d", "p", axis=1),
        zoo.node("Conv", "p w5", "y", "five"),
    ]
    weights = {"w1": zoo.draw(4, 3, 1, 1)} | {f"w{n}": zoo.draw(4, 4, 1, 1, seed=n) for n in range(2, 6)}
    return zoo.model(nodes, {"x": ["N", 3, 2, 2]}, {"y": None}, weights)


def test_a_tensor_crosses_once_for_all_its_readers_past_what_runs_on_codes(zoo, work):
    found = {c.tensor: (c.maker, c.readers, c.open, c.also) for c in work(chain(zoo)).crossings}
    assert found == {
        "x": (None, ("one",), False, ()),
        "a": ("one", ("two", "three"), False, ("r",)),
        "b": ("two", (), True, ()),
        "c": ("three", (), True, ()),
        "s": (None, ("four",), False, ()),
        "d": ("four", (), True, ()),
        "p": (None, ("five",), False, ()),
        "y": ("five", (), True, ()),
    }


def test_a_sum_that_the_target_runs_on_codes_is_made_by_what_is_added_last(zoo, work):
    found = {c.tensor: (c.maker, c.readers, c.open) for c in work(chain(zoo), "onnxruntime").crossings}
    assert found["s"] == ("three", ("four",), False)
    assert "b" not in found


def test_every_graph_of_the_zoo_can_be_counted(zoo, work, animal):
    found = work(zoo.ZOO[animal](), "onnxruntime")
    assert all(row.written > 0 and row.read > 0 for row in found.layers)
    names = {row.layer for row in found.layers}
    assert all({*c.readers, *([c.maker] if c.maker else [])} <= names and c.elements > 0 for c in found.crossings)
