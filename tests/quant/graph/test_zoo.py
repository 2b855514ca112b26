"""Every scheme on every graph of the zoo: a sound graph, that means the same to three evaluators, close to FP32."""

import numpy as np
import onnx_ir as ir
import pytest

from quant.graph.layers import find_layers
from quant.graph.runtime import Runtime
from quant.targets import TARGETS

FEEDS = 4
CLOSE_DB = {"int8": 30.0, "int8-dynamic": 30.0, "fp16": 60.0}
"""8 bits over +-4 standard deviations: 10 log10(12 (255/8)^2) = 41 dB for one tensor, less 3 dB for each of a handful of tensors
with noise of their own. FP16: half a unit of the last of 11 bits, 10 log10(3 * 2^22) = 71 dB, less 3 dB for each likewise."""


@pytest.fixture(params=list(CLOSE_DB))
def case(request, animal, zoo, quantize):
    proto = zoo.ZOO[animal]()
    feeds = [zoo.feed(proto, seed) for seed in range(FEEDS)]
    return request.param, proto, feeds, *quantize(proto, request.param, feeds)


def largest_step(before, after, feed):
    """The largest change that one code more or less can make: the largest scale, times the largest number that it may meet."""
    weights = [v.const_value.numpy() for v in ir.from_proto(before).graph.initializers.values() if v.dtype == ir.DataType.FLOAT]
    scales = [v.const_value.numpy() for name, v in ir.from_proto(after).graph.initializers.items() if "_scale" in name]
    largest = max((float(np.abs(a).max()) for a in (*weights, *feed.values()) if a.dtype == np.float32), default=1.0)
    return max((float(a.max()) for a in scales), default=0.0) * max(1.0, largest)


def test_the_rewritten_graph_is_sound_and_all_evaluators_agree_on_it(case, check_sound, reference, decibels):
    kind, before, feeds, model, plan = case
    after = ir.to_proto(model)
    check_sound(before, after)
    plain, optimized = Runtime(model, optimize=False), Runtime(model)
    for feed in feeds[:2]:
        expected, exact = reference(after, feed), reference(before, feed)
        step = largest_step(before, after, feed)
        for found in (plain.run(feed), optimized.run(feed)):
            for name, array in expected.items():
                assert np.isfinite(array).all()
                if kind == "fp16":
                    assert decibels(array, found[name]) > CLOSE_DB[kind]
                else:
                    np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=step + 1e-5 * np.abs(array).max())
        if plan.quantized:
            assert min(decibels(exact[name], expected[name]) for name in expected) > CLOSE_DB[kind]


def test_the_same_graph_gives_the_same_bytes(case, quantize):
    kind, before, feeds, model, plan = case
    again, plan_again = quantize(before, kind, feeds)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == ir.to_proto(again).SerializeToString(deterministic=True)
    assert plan == plan_again


def test_the_engine_computes_in_integers_what_the_plan_says(case, tmp_path):
    kind, before, _feeds, model, plan = case
    target = TARGETS.make("onnxruntime")
    outputs = {layer.name: layer.node.outputs[0].name for layer in find_layers(ir.from_proto(before))}
    artifact = target.export(model, tmp_path, scheme=kind)
    audit = target.audit(artifact, tmp_path, plan, outputs)
    assert [row.layer for row in audit.rows] == [choice.layer for choice in plan.layers]
    if kind == "fp16":
        assert {row.runs for row in audit.rows} == {"fp32"}  # this engine has no FP16 kernels for a CPU
    else:
        assert audit.disagreements == ()
