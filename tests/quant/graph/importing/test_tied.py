"""Tied tables: an output layer that holds the embedding turned over reads the embedding itself."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from quant.graph.importing.clean_up import clean
from quant.graph.importing.tied import tie_tables
from quant.graph.layers import find_layers

V, H = 256, 96


@pytest.fixture
def table(rng):
    return rng.normal(size=(V, H)).astype(np.float32)


@pytest.fixture
def tied(build, table):
    """`ids` -> table -> tanh -> `logits`, as exporters write it: the output layer has a copy of its own."""

    def tied(head=None, shape=("N", "T"), extra=(), opset=13):
        nodes = [
            helper.make_node("Gather", ["table", "ids"], ["rows"], name="embed"),
            helper.make_node("Tanh", ["rows"], ["h"]),
            helper.make_node("MatMul", ["h", "head"], ["logits"], name="lm_head"),
            *extra,
        ]
        weights = {"table": table, "head": np.ascontiguousarray(table.T) if head is None else head}
        outputs = {"logits": [*shape, V], **{node.output[0]: None for node in extra}}
        return ir.from_proto(build(nodes, {"ids": list(shape)}, outputs, weights, types={"ids": TensorProto.INT64}, opset=opset))

    return tied


def size(model):
    return sum(value.const_value.nbytes for value in model.graph.initializers.values())


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 2)], ids=["one-axis", "two", "three"])
def test_one_table_is_left_and_the_logits_are_as_before(tied, table, reference, rng, shape):
    model = tied(shape=tuple("NTS"[: len(shape)]))
    ids = rng.integers(0, V, shape)
    assert tie_tables(model) == 1
    assert size(model) < table.nbytes + 100
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    (found,) = reference(model, {"ids": ids})
    assert found.shape == (*shape, V)
    np.testing.assert_allclose(found, np.tanh(table[ids].astype(np.float64)) @ table.T.astype(np.float64), rtol=0, atol=1e-4)


def test_the_output_layer_is_still_a_layer_of_the_same_name_with_the_table_as_its_weight(tied):
    model = tied()
    clean(model)
    embed, head = find_layers(model)
    assert (embed.name, head.name, head.op) == ("embed", "lm_head", "Gemm")
    assert head.node.inputs[1] is embed.node.inputs[0]
    assert (head.weight_shape, head.channel_axis) == ((V, H), 0)


def test_a_transpose_that_the_file_itself_computes_is_tied_too(build, table, reference, rng):
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["h"]),
        helper.make_node("Transpose", ["table"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["h", "turned"], ["logits"]),
    ]
    model = ir.from_proto(build(nodes, {"ids": ["N", "T"]}, {"logits": ["N", "T", V]}, {"table": table}, types={"ids": TensorProto.INT64}))
    before = reference(model, {"ids": (ids := rng.integers(0, V, (2, 4)))})
    assert [step.name for step in clean(model)] == ["name nodes", "fold constants", "tie tables", "infer types"]
    assert size(model) < table.nbytes + 100
    np.testing.assert_allclose(reference(model, {"ids": ids})[0], before[0], rtol=0, atol=1e-4)


def test_what_only_looks_alike_stays_as_it_is(tied, table):
    other = np.ascontiguousarray(table.T)
    other[0, 0] += 1e-6
    assert tie_tables(tied(head=other)) == 0
    assert tie_tables(tied(head=other[:, : V // 2])) == 0


def test_a_copy_that_something_else_reads_stays(tied):
    assert tie_tables(tied(extra=[helper.make_node("ReduceSum", ["head"], ["total"])])) == 0
