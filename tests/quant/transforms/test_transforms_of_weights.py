"""Equalization, AdaRound and bias correction on small graphs, against arithmetic by hand and by NumPy."""

import importlib.util
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from quant.core.formats import Range
from quant.graph.channels import free_channels, tops_before, tops_behind
from quant.graph.layers import find_layers
from quant.graph.model import constant
from quant.graph.patches import cut_rows, matrices, same_rows
from quant.graph.runtime import Runtime
from quant.graph.static import static_needs, write_static
from quant.schemes import SCHEMES
from quant.targets import TARGETS
from quant.transforms import TRANSFORMS, Seen, Setting

SPEC = importlib.util.spec_from_file_location("zoo", Path(__file__).parents[1] / "graph" / "zoo.py")
zoo = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(zoo)
DIALECT = TARGETS.make("onnxruntime").dialect
node, draw = zoo.node, zoo.draw


def setting(model, *, per_channel=True):
    plan = SCHEMES.make("int8").plan(model, find_layers(model), DIALECT)
    return Setting(plan, DIALECT, per_channel)


def _never(*_):
    pytest.fail("a transform of weights runs no model")


def seen(model, fed, ranges=None):
    """What a transform sees of one feed; without ranges, what layers multiply is not rounded."""
    probed = ir.from_proto(ir.to_proto(model))
    present = {v.name for v in probed.graph.outputs}
    probed.graph.outputs.extend(v for n in probed.graph for v in n.outputs if v.name not in present)
    values = Runtime(probed, optimize=False).run(fed) | fed

    def inputs(layers):
        alike = {}
        for layer in layers:
            alike.setdefault(same_rows(layer), []).append(layer)
        for key, found in alike.items():
            yield found, cut_rows(found[0], values[key[0]], 10**6)

    return Seen({}, inputs, ranges or {}, quantized=_never, means=_never)


def applied(kind, proto, *, fed=None, ranges=None, per_channel=True, **options):
    model = ir.from_proto(proto)
    change = TRANSFORMS.make(kind, options).apply(model, setting(model, per_channel=per_channel), seen(model, fed or zoo.feed(proto), ranges))
    return model, change


def layers_of(model):
    return {layer.name: layer for layer in find_layers(model)}


PAIR = zoo.model(
    [node("Gemm", "x w b", "h", "first"), node("Relu", "h", "r"), node("Gemm", "r v", "y", "second")],
    {"x": ["N", 2]},
    {"y": None},
    {"w": np.float32([[8, 0.5], [-2, 0.25]]), "b": np.float32([4, 1]), "v": np.float32([[0.5, -0.25], [2, 1]])},
)


def test_two_layers_meet_at_the_root_of_their_products():
    model, change = applied("equalization", PAIR)
    found = layers_of(model)
    # Channels have tops 8 and 0.5 before, 0.5 and 2 behind, as shares 1 and 1/16, 1/4 and 1: factors 2 and 1/4.
    assert constant(found["first"].node.inputs[1]).tolist() == [[4, 2], [-1, 1]]
    assert constant(found["first"].node.inputs[2]).tolist() == [2, 4]
    assert constant(found["second"].node.inputs[1]).tolist() == [[1, -0.5], [0.5, 0.25]]
    assert change.layers == {"first": "channels evened out with second, by factors 0.25 to 2"}


def test_a_factor_goes_no_further_than_it_may():
    model, _ = applied("equalization", PAIR, largest=1.5)
    assert constant(layers_of(model)["first"].node.inputs[2]).tolist() == [np.float32(4 / 1.5), 1.5]


DEPTHWISE = zoo.model(
    [
        node("Conv", "x w1 b1", "c1", "expand"),
        node("Relu", "c1", "r1"),
        node("Conv", "r1 w2 b2", "c2", "depthwise", group=8, pads=[1, 1, 1, 1]),
        node("LeakyRelu", "c2", "r2", alpha=0.1),
        node("AveragePool", "r2", "p", kernel_shape=[2, 2]),
        node("Conv", "p w3", "c3", "project"),
        node("Relu", "c3", "y"),
    ],
    {"x": ["N", 4, 8, 8]},
    {"y": None},
    {
        "w1": zoo.uneven(draw(8, 4, 1, 1), 0),
        "b1": draw(8),
        "w2": zoo.uneven(draw(8, 1, 3, 3), 0)[::-1].copy(),
        "b2": draw(8, seed=2),
        "w3": draw(5, 8, 1, 1, seed=3),
    },
)


def test_a_depthwise_convolution_stands_in_two_sets_and_is_evened_out_from_both_sides():
    model, change = applied("equalization", DEPTHWISE, per_channel=False)
    found = layers_of(model)
    assert set(change.layers) == {"expand", "depthwise"}
    before, behind = tops_before(found["expand"]), tops_behind(found["depthwise"])
    np.testing.assert_allclose(before / before.max(), behind / behind.max(), rtol=0.03)
    spread = [np.log(tops_before(layers_of(ir.from_proto(DEPTHWISE))[name])).std() / np.log(tops_before(found[name])).std() for name in ("expand", "depthwise")]
    assert min(spread) > 2


RESIDUAL = zoo.ZOO["residual with relu"]()


def test_tensors_that_are_added_share_their_factors():
    [free, *_] = free_channels(find_layers(ir.from_proto(RESIDUAL)))
    assert [layer.name for layer in free.before] == ["conv_c1", "conv_cr"]
    assert sorted(layer.name for layer in free.behind) == ["conv_c2", "conv_cr"]


@pytest.mark.parametrize(
    "graph",
    [
        "relu6",
        "clip without an upper bound",
        "hard swish",
        "swish",
        "concat of different scales",
        "a conv in the middle that is given out",
        "a conv seen inside an if",
        "add of a number",
        "a conv read by floats too",
        "attention",
        "product of two activations",
        "gemm with a bias column",
    ],
)
def test_channels_end_at_what_takes_no_factor(graph):
    assert not [
        free for free in free_channels(find_layers(ir.from_proto(zoo.ZOO[graph]()))) if "c1" in [x.node.outputs[0].name for x in free.before] or free.rows
    ]
    if graph not in {
        "relu6",
        "clip without an upper bound",
        "hard swish",
        "swish",
        "concat of different scales",
        "add of a number",
        "a conv read by floats too",
    }:
        assert not free_channels(find_layers(ir.from_proto(zoo.ZOO[graph]())))


def test_a_convolution_and_a_product_of_its_last_axis_have_different_channels():
    proto = zoo.model(
        [node("Conv", "x w", "c"), node("Relu", "c", "r"), node("MatMul", "r v", "y")],
        {"x": ["N", 3, 6, 6]},
        {"y": None},
        {"w": draw(6, 3, 1, 1), "v": draw(6, 5)},
    )
    assert not free_channels(find_layers(ir.from_proto(proto)))


def test_a_row_that_is_added_to_a_product_is_divided_with_it():
    proto = zoo.model(
        [node("MatMul", "x w", "m", "first"), node("Add", "m b", "a"), node("Relu", "a", "r"), node("MatMul", "r v", "y", "second")],
        {"x": ["N", 5, 6]},
        {"y": None},
        {"w": zoo.uneven(draw(6, 8), 1), "b": draw(8), "v": draw(8, 3, seed=2)},
    )
    model, change = applied("equalization", proto)
    assert set(change.layers) == {"first"}
    fed = zoo.feed(proto)
    np.testing.assert_allclose(Runtime(model, optimize=False).run(fed)["y"], Runtime(ir.from_proto(proto), optimize=False).run(fed)["y"], rtol=1e-4, atol=1e-5)


CORRELATED = zoo.model([node("MatMul", "x w", "y", "layer")], {"x": ["N", 16]}, {"y": None}, {"w": draw(16, 8)})


def correlated(rows=200):
    mixed = np.random.default_rng(0).normal(size=(16, 16))
    return {"x": (np.random.default_rng(1).normal(size=(rows, 16)) @ mixed + 1).astype(np.float32)}


@pytest.mark.parametrize("per_channel", [True, False], ids=["per channel", "per tensor"])
def test_rounded_weights_are_next_to_what_they_were_and_are_written_as_their_codes(per_channel):
    model, change = applied("adaround", CORRELATED, fed=correlated(), per_channel=per_channel)
    assert set(change.layers) == {"layer"}
    was, now = draw(16, 8).astype(np.float64), constant(layers_of(model)["layer"].node.inputs[1])
    scale = np.abs(was).max(axis=0 if per_channel else None) / 127
    assert (np.abs(now - was) < scale * (1 + 1e-5)).all()
    np.testing.assert_allclose(now / scale, np.rint(now / scale), atol=1e-4)
    assert np.count_nonzero(np.rint(now / scale) != np.rint(was / scale)) > 10
    layers = find_layers(model)
    needs = static_needs(model, layers, DIALECT, correct_bias=False)
    write_static(model, layers, DIALECT, ranges=dict.fromkeys(needs.ranges, Range(-4, 4)), means={}, per_channel=per_channel, correct_bias=False)
    [codes] = [
        constant(n.inputs[0]) for n in model.graph if n.op_type == "DequantizeLinear" and constant(n.inputs[0]) is not None and constant(n.inputs[0]).ndim == 2
    ]
    assert np.array_equal(codes, np.rint(now / scale))


@pytest.mark.parametrize("ranges", [{}, {"x": Range(-9, 9)}], ids=["as they are", "rounded"])
def test_rounding_together_brings_outputs_closer_than_rounding_to_the_nearest(ranges):
    fed = correlated()
    model, _ = applied("adaround", CORRELATED, fed=fed, ranges=ranges)
    was, now = draw(16, 8).astype(np.float64), constant(layers_of(model)["layer"].node.inputs[1])
    scale = np.abs(was).max(axis=0) / 127
    other = correlated(300)["x"][200:]
    errors = [np.square(other @ (w - was)).sum() for w in (now, np.rint(was / scale) * scale)]
    assert errors[0] < errors[1] / 1.5


def test_a_kernel_of_a_convolution_is_rounded_for_the_patches_that_it_sees():
    proto = zoo.ZOO["grouped conv"]()
    rng = np.random.default_rng(1)
    smooth = np.cumsum(np.cumsum(rng.normal(size=(4, 8, 8, 8)), axis=2), axis=3).astype(np.float32)
    model, change = applied("adaround", proto, fed={"x": smooth})
    [layer], [before] = find_layers(model), find_layers(ir.from_proto(proto))
    assert set(change.layers) == {layer.name}
    rows, was, now = cut_rows(layer, smooth, 10**6), matrices(before), matrices(layer)
    scale = np.abs(was).max(axis=2, keepdims=True) / 127
    errors = [np.square(rows @ (w - was).transpose(0, 2, 1)).sum() for w in (now, np.rint(was / scale) * scale)]
    assert errors[0] < errors[1] / 4


BIASED = zoo.ZOO["matmul and bias of rank 3"]()


def test_the_mean_of_a_product_is_what_it_was_after_its_weight_is_rounded():
    fed = {"x": np.random.default_rng(0).normal(size=(50, 2, 16)).astype(np.float32) + 2}
    model, change = applied("bias-correction", BIASED, fed=fed)
    assert set(change.layers) == {"matmul_m"}
    weights, row = (draw(16, 8).astype(np.float64), draw(8).astype(np.float64))
    scale = np.abs(weights).max(axis=0) / 127
    rounded = np.rint(weights / scale) * scale
    corrected = constant(next(n for n in model.graph if n.op_type == "Add").inputs[1])
    rows = fed["x"].reshape(-1, 16).astype(np.float64)
    shift = (rows @ (rounded - weights)).mean(axis=0)
    assert np.abs(shift).max() > 1e-3
    np.testing.assert_allclose((rows @ rounded + corrected).mean(axis=0), (rows @ weights + row).mean(axis=0), atol=1e-6)


@pytest.mark.parametrize("graph", ["matmul and bias", "matrix product plus a computed matrix", "matrix product plus itself", "attention", "gemm"])
def test_products_without_a_row_of_three_axes_are_left_alone(graph):
    _, change = applied("bias-correction", zoo.ZOO[graph](), ranges={"x": Range(-1, 1)})
    assert not change.layers


def test_convolutions_are_left_alone_where_they_are_not_to_be_rounded():
    proto = zoo.ZOO["residual with relu"]()
    _, everything = applied("adaround", proto)
    _, products = applied("adaround", proto, convolutions=False)
    operators = {layer.name: layer.op for layer in find_layers(ir.from_proto(proto))}
    assert "Conv" in {operators[name] for name in everything.layers}
    assert products.layers == {name: done for name, done in everything.layers.items() if operators[name] != "Conv"} != {}
