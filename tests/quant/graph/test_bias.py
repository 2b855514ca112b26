"""Bias correction: after it, rounding the weights moves no channel's mean."""

import dataclasses
import importlib.util
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch.nn import functional

from quant.core.formats import Range
from quant.graph.bias import correct_biases, correctable
from quant.graph.layers import find_layers
from quant.graph.model import constant
from quant.graph.qdq import write_qdq
from quant.schemes import SCHEMES, Evidence
from quant.targets import TARGETS

DIALECT = TARGETS.make("onnxruntime").dialect
FLOAT_BIAS = dataclasses.replace(DIALECT, integer_bias=frozenset())
R = np.random.default_rng(5)


@pytest.fixture(scope="module")
def zoo():
    spec = importlib.util.spec_from_file_location("zoo_for_bias", Path(__file__).with_name("zoo.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def dequantized(value):
    maker = value.producer()
    if maker is None:
        return constant(value).astype(np.float64), 0.0
    codes, scale = (constant(v).astype(np.float64) for v in maker.inputs[:2])
    axis = maker.attributes["axis"].as_int() if "axis" in maker.attributes else 0
    wide = scale.reshape([-1 if i == axis else 1 for i in range(codes.ndim)]) if scale.ndim else scale
    return codes * wide, scale


def quantized(proto, dialect, means, *, correct=True, per_channel=True):
    """The first layer's weight, bias and step of the bias after quantization."""
    model = ir.from_proto(proto)
    plan = SCHEMES.make("int8").plan(model, find_layers(model), dialect)
    scheme = SCHEMES.make("int8", {"correct_bias": correct, "per_channel": per_channel})
    needs = scheme.needs(model, plan, dialect)
    assert (set(means) <= needs.means) == correct
    scheme.apply(model, plan, Evidence({name: Range(-1.0, 3.0) for name in needs.ranges}, means=means), dialect)
    layer = next(n for n in model.graph if n.op_type in {"Conv", "Gemm"})
    weight, _ = dequantized(layer.inputs[1])
    bias, step = dequantized(layer.inputs[2])
    return layer, weight, bias, step


def means_of_outputs(x, weight, bias, groups):
    """Channel means of torch's convolution."""
    y = functional.conv2d(torch.from_numpy(x), torch.from_numpy(weight), torch.from_numpy(bias), groups=groups)
    return y.numpy().mean(axis=(0, 2, 3))


@pytest.mark.parametrize("dialect", [DIALECT, FLOAT_BIAS], ids=["integer bias", "float bias"])
@pytest.mark.parametrize("per_channel", [True, False], ids=["per channel", "per tensor"])
@pytest.mark.parametrize(("groups", "has_bias"), [(1, True), (4, True), (2, True), (4, False)], ids=["dense", "depthwise", "grouped", "no bias"])
def test_the_mean_of_every_channel_is_that_of_the_float_layer(zoo, groups, has_bias, per_channel, dialect):
    weight = zoo.uneven(zoo.draw(8, 4 // groups, 3, 3), 0)
    bias = R.normal(size=8).astype(np.float32)
    nodes = [zoo.node("Conv", "x w b" if has_bias else "x w", "c", group=groups), zoo.node("Relu", "c", "y")]
    proto = zoo.model(nodes, {"x": ["N", 4, 5, 5]}, {"y": None}, {"w": weight, **({"b": bias} if has_bias else {})})
    # Pictures of one colour each, so that windows of the convolution see the same mean as the whole.
    x = np.broadcast_to(R.uniform(0, 3, (16, 4, 1, 1)), (16, 4, 5, 5)).copy()
    wanted = means_of_outputs(x, weight.astype(np.float64), bias.astype(np.float64) * has_bias, groups)
    _, rounded, corrected, step = quantized(proto, dialect, {"x": x.mean(axis=(0, 2, 3))}, per_channel=per_channel)
    found = means_of_outputs(x, rounded, corrected, groups)
    # A bias in integers is rounded twice, by half a step at most: as it was, and with its correction; a float one to float32.
    assert np.all(np.abs(found - wanted) <= step + 1e-6)
    if has_bias:
        _, rounded, plain, _ = quantized(proto, dialect, {"x": x.mean(axis=(0, 2, 3))}, per_channel=per_channel, correct=False)
        assert np.abs(means_of_outputs(x, rounded, plain, groups) - wanted).max() > np.abs(found - wanted).max()


@pytest.mark.parametrize("form", ["gemm", "gemm transposed", "gemm with a factor", "product and sum"])
def test_products_of_matrices_keep_the_mean_of_every_column(zoo, form):
    weight, bias = zoo.uneven(zoo.draw(6, 5), 1), R.normal(size=5).astype(np.float32)
    factor = 2.5 if form == "gemm with a factor" else 1.0
    if form == "product and sum":
        nodes, weights = [zoo.node("MatMul", "x w", "p"), zoo.node("Add", "p b", "y")], {"w": weight, "b": bias}
    elif form == "gemm transposed":
        nodes, weights = [zoo.node("Gemm", "x w b", "y", transB=1)], {"w": np.ascontiguousarray(weight.T), "b": bias}
    else:
        nodes, weights = [zoo.node("Gemm", "x w b", "y", alpha=factor)], {"w": weight, "b": bias}
    proto = zoo.model(nodes, {"x": ["N", 6]}, {"y": None}, weights)
    x = R.uniform(0, 3, (32, 6))
    layer, rounded, corrected, step = quantized(proto, DIALECT, {"x": x.mean(axis=0)})
    matrix = rounded.T if "transB" in layer.attributes and layer.attributes["transB"].as_int() else rounded
    wanted = (x @ (factor * weight.astype(np.float64)) + bias).mean(axis=0)
    assert np.all(np.abs((x @ matrix + corrected).mean(axis=0) - wanted) <= step + 1e-6)


def test_a_layer_whose_mean_was_not_asked_for_keeps_its_bias(zoo):
    weight, bias = zoo.draw(4, 3, 1, 1), np.arange(4, dtype=np.float32)
    proto = zoo.model([zoo.node("Conv", "x w b", "y")], {"x": ["N", 3, 2, 2]}, {"y": None}, {"w": weight, "b": bias})
    _, _, with_none, step = quantized(proto, DIALECT, {})
    assert np.all(np.abs(with_none - bias) <= step + 1e-6)


def test_products_over_more_axes_and_of_two_activations_are_left_alone(zoo):
    nodes = [zoo.node("MatMul", "x w", "p"), zoo.node("MatMul", "p z", "y")]
    proto = zoo.model(nodes, {"x": ["N", 4, 6], "z": ["N", 6, 3]}, {"y": None}, {"w": zoo.draw(6, 6)})
    model = ir.from_proto(proto)
    layers = find_layers(model)
    before = correctable(layers)
    assert before == {}
    write_qdq(model, layers, {v: Range(-1, 1) for v in ("x", "z", "p", "y")}, DIALECT)
    assert correct_biases(model, before, {"x": np.zeros(4)}) == 0


def test_a_correction_is_divided_by_the_factor_of_the_bias(zoo):
    x = R.normal(1.0, 0.2, (50, 16))
    layer, weight, bias, _ = quantized(zoo.ZOO["gemm with factors"](), FLOAT_BIAS, {"x": x.mean(axis=0)})
    before = ir.from_proto(zoo.ZOO["gemm with factors"]()).graph
    alpha, beta = (before[0].attributes[name].as_float() for name in ("alpha", "beta"))
    was = [constant(before.initializers[name]).astype(np.float64) for name in ("w", "b")]
    wanted = alpha * (x @ was[0]).mean(axis=0) + beta * was[1]
    found = (x @ weight).mean(axis=0) * layer.attributes["alpha"].as_float() + layer.attributes["beta"].as_float() * bias
    np.testing.assert_allclose(found, wanted, atol=1e-5)  # FP32 of numbers of order 1


def test_a_bias_that_is_a_column_is_left_alone(zoo):
    _, _, bias, _ = quantized(zoo.ZOO["gemm with a bias column"](), FLOAT_BIAS, {"x": np.ones(16)})
    assert bias.shape == (8, 1)
