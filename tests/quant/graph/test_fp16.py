"""FP16: what stays in FP32 and why, masks, small constants, and finite outputs."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from quant.graph.fp16 import keep_reasons, to_half, write_fp16
from quant.graph.runtime import Runtime


def cast(proto, magnitudes=None, limit=65504.0):
    model = ir.from_proto(proto)
    keep = keep_reasons(model, magnitudes or {}, limit=limit)
    reasons = {node.name: reason for node, reason in keep.items()}
    write_fp16(model, keep=keep)
    return model, reasons


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("mask", [-3.4e38, -1e9, -np.inf])
@pytest.mark.parametrize("as_node", [False, True])
def test_masks_are_clamped_and_masked_rows_stay_finite(zoo, mask, as_node, optimize):
    value = np.float32(mask)
    held = {} if as_node else {"floor": value}
    made = [helper.make_node("Constant", [], ["floor"], value=numpy_helper.from_array(value))] if as_node else []
    nodes = [*made, zoo.node("Where", "keep s floor", "m"), zoo.node("Softmax", "m", "p", axis=-1), zoo.node("MatMul", "p w", "y")]
    proto = zoo.model(nodes, {"s": [2, 4], "keep": [2, 4]}, {"y": [2, 3]}, {"w": zoo.draw(4, 3), **held}, types={"keep": TensorProto.BOOL})
    model, _ = cast(proto)
    keep = np.array([[True, True, False, False], [False] * 4])  # the second row is masked altogether
    s = np.float32([[0.5, -0.25, 3, 4], [1, 1, 1, 1]])
    found = Runtime(model, optimize=optimize).run({"s": s, "keep": keep})["y"]
    p = np.exp([[0.5, -0.25]])
    np.testing.assert_allclose(found[0], (p / p.sum() @ zoo.draw(4, 3)[:2])[0], atol=2e-3)
    np.testing.assert_allclose(found[1], zoo.draw(4, 3).mean(axis=0), atol=2e-3)


def test_a_small_constant_that_guards_a_division_stays_above_zero(zoo):
    nodes = [zoo.node("ReduceMean", "x", "v", keepdims=1), zoo.node("Add", "v eps", "e"), zoo.node("Div", "x e", "y")]
    model, _ = cast(zoo.model(nodes, {"x": [1, 4]}, {"y": None}, {"eps": np.float32(1e-12)}))
    assert Runtime(model).run({"x": np.zeros((1, 4), np.float32)})["y"].tolist() == [[0.0] * 4]


def test_constants_are_rounded_to_half_and_kept_in_range():
    given = np.float32([-np.inf, -3.4e38, -1e9, -65504, -1e-12, -0.0, 0, 1e-12, 1 / 3, 65504, 1e9])
    expected = np.float32([-3e4, -3e4, -3e4, -65504, -(2.0**-24), -0.0, 0, 2.0**-24, np.float16(1 / 3), 65504, 3e4]).astype(np.float16)
    assert to_half(given).tobytes() == expected.tobytes()


def test_what_overflows_by_measurement_stays_in_fp32_with_the_tensor_and_the_value(zoo, quantize):
    proto = zoo.model(
        [zoo.node("MatMul", "x w", "big", "grows"), zoo.node("MatMul", "big v", "y", "shrinks"), zoo.node("MatMul", "x u", "z", "plain")],
        {"x": ["N", 4]}, {"y": None, "z": None}, {"w": np.full((4, 4), 2e4, np.float32), "v": np.full((4, 2), 1e-5, np.float32), "u": zoo.draw(4, 2)},
    )  # fmt: skip
    feed = {"x": np.ones((1, 4), np.float32)}
    model, plan = quantize(proto, "fp16", [feed])
    assert {c.layer: c.format for c in plan.layers} == {"grows": "fp32", "shrinks": "fp32", "plain": "fp16"}
    assert plan.layers[0].reason == "overflow: tensor 'big' reaches 8e+04, FP16 ends at 65504"
    np.testing.assert_allclose(Runtime(model).run(feed)["y"], [[3.2, 3.2]], rtol=1e-6)


@pytest.mark.parametrize("companion", [0.5, -3.4e38])
def test_a_weight_beyond_fp16_keeps_its_layer_in_fp32_even_beside_a_mask(zoo, companion):
    w = np.float32([[7e4, companion]])
    _, reasons = cast(zoo.model([zoo.node("Mul", "x w", "y", "m")], {"x": ["N", 2]}, {"y": None}, {"w": w}))
    assert reasons == {"m": "overflow: weight 'w' has values beyond 65504"}


def test_operators_without_an_fp16_form_read_and_give_fp32(zoo):
    nodes = [
        zoo.node("Shape", "x", "s"),
        zoo.node("ConstantOfShape", "s", "fill", value=helper.make_tensor("v", 1, [1], [0.5])),
        zoo.node("MatMul", "x w", "h"),
        zoo.node("Add", "h fill", "a"),
        zoo.node("Cast", "h", "i", to=TensorProto.INT64),
        zoo.node("Cast", "i", "f", to=TensorProto.FLOAT),
        zoo.node("Add", "a f", "b"),
        zoo.node("Range", "start stop step", "r"),
        zoo.node("Add", "b r", "c"),
        zoo.node("Unsqueeze", "c axes", "image"),
        zoo.node("Resize", "image - scales", "big", mode="nearest"),
        zoo.node("Where", "flag big zero", "y"),
    ]
    weights = {
        "w": zoo.draw(4, 4),
        "start": np.float32(0),
        "stop": np.float32(4),
        "step": np.float32(1),
        "axes": np.int64([0, 1]),
        "scales": np.float32([1, 1, 2, 2]),
        "flag": np.array(True),
        "zero": np.float32(0),
    }
    proto = zoo.model(nodes, {"x": [3, 4]}, {"y": None}, weights)
    model, reasons = cast(proto)
    assert {"range_r", "resize_big", "cast_i", "cast_f"} <= set(reasons)
    feed = zoo.feed(proto, 0)
    expected = Runtime(ir.from_proto(proto)).run(feed)["y"]
    for optimize in (False, True):
        np.testing.assert_allclose(Runtime(model, optimize=optimize).run(feed)["y"], expected, atol=2 * 2.0**-11 * np.abs(expected).max() + 0.01)


def test_inputs_and_outputs_stay_fp32_and_nothing_is_cast_twice(zoo):
    model, _ = cast(zoo.ZOO["relu"]())
    assert {v.dtype for v in (*model.graph.inputs, *model.graph.outputs)} == {ir.DataType.FLOAT}
    assert [node.op_type for node in model.graph].count("Cast") == 2


def test_sequences_stay_as_they_are(zoo):
    nodes = [zoo.node("MatMul", "x w", "h"), zoo.node("SplitToSequence", "h", "parts", axis=0), zoo.node("ConcatFromSequence", "parts", "y", axis=0)]
    proto = zoo.model(nodes, {"x": [3, 4]}, {"y": None}, {"w": zoo.draw(4, 4)})
    model, reasons = cast(proto)
    assert set(reasons) == {"splittosequence_parts", "concatfromsequence_y"}
    feed = zoo.feed(proto, 0)
    np.testing.assert_allclose(Runtime(model).run(feed)["y"], feed["x"] @ zoo.draw(4, 4), atol=5e-3)
