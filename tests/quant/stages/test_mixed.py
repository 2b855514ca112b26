"""A plan with INT4 and INT8 layers, on engines that show both."""

import numpy as np
import pytest

from calibrators import CALIBRATORS
from quant.core.documents import LayerChoice, PrecisionPlan
from quant.graph.layers import find_layers
from quant.graph.model import read_model
from quant.graph.runtime import Runtime
from quant.schemes import SCHEMES
from quant.stages.calibrate import calibrate
from quant.stages.mixed import apply_mixed
from quant.targets import TARGETS, Shapes

FORMATS = {"MatMul_ma": "int4", "MatMul_mb": "int8", "MatMul_mc": "fp32", "MatMul_my": "int4"}


@pytest.fixture
def chain(save, node):
    """Four products, each with a bias, and a Tanh between each two."""
    r = np.random.default_rng(0)
    nodes, last = [], "x"
    for name in "abcy":
        nodes += [node("MatMul", f"{last} w{name}", f"m{name}"), node("Add", f"m{name} bias", name), node("Tanh", name, f"r{name}")]
        last = f"r{name}"
    weights = {f"w{name}": (r.normal(size=(128, 128)) / 8).astype(np.float32) for name in "abcy"} | {"bias": r.normal(size=128).astype(np.float32)}
    return save(nodes[:-1], {"x": ["N", 128]}, {"y": ["N", 128]}, weights)


@pytest.mark.parametrize("kind", ["onnxruntime", "openvino", "tensorrt-rtx"])
def test_every_layer_runs_in_the_format_that_the_plan_gives_it(chain, samples, kind, tmp_path):
    target = TARGETS.make(kind)
    if not target.available().available:
        pytest.skip(target.available().reason)
    path, feeding = chain
    schemes = {"int4": SCHEMES.make("int4"), "int8": SCHEMES.make("int8")}
    model = read_model(path)
    plan = PrecisionPlan(
        scheme="mixed", base="int4", layers=tuple(LayerChoice(layer=x.name, op=x.op, format=FORMATS[x.name], reason="test") for x in find_layers(model))
    )
    assert (plan.quantized, [c.layer for c in plan.exclusions]) == (("MatMul_ma", "MatMul_mb", "MatMul_my"), ["MatMul_mc"])
    needs = [scheme.needs(model, plan.part(name), target.dialect) for name, scheme in schemes.items()]
    tensors = {name for need in needs for name in need.ranges}
    moments = {name: size for need in needs for name, size in need.moments.items()}
    assert (sorted(moments), "ra" in tensors) == (["rc", "x"], True)
    r = np.random.default_rng(1)
    rows = samples([[{"x": r.normal(size=128).astype(np.float32)}] for _ in range(200)])
    means = set().union(*(need.means for need in needs))
    table = calibrate(path, rows, tensors, feeding, magnitudes=True, digest="", means=means, moments=moments)
    quantized, done, _ = apply_mixed(path, schemes, plan=plan, table=table, calibrator=CALIBRATORS.make("minmax"), dialect=target.dialect)
    body = target.dialect.body
    assert {c.layer: c.format for c in done.layers} == {**FORMATS, "MatMul_mc": body}
    shapes = {"shapes": {"x": Shapes((1, 128), (8, 128), (8, 128))}} if target.ahead_of_time else {}
    artifact = target.export(quantized, tmp_path / "out", scheme="mixed", **shapes)
    outputs = {layer.name: layer.node.outputs[0].name for layer in find_layers(read_model(path))}
    assert target.audit(artifact, tmp_path / "out", done, outputs).disagreements == ()
    feed = {"x": np.stack([feeds[0]["x"] for feeds in rows.feeds[:32]])}
    exact, found = Runtime(path).run(feed)["y"], target.session(artifact, tmp_path / "out", threads=1).run(feed)["y"]
    # Two layers in blocks of 128 at most, whose normal weights reach 2.7 times their spread: a step of 2.7/7, and noise of 1/12 of its square.
    assert np.mean(np.square(found - exact)) <= 2 * 1.5 * (2.7 / 7) ** 2 / 12 * np.mean(np.square(exact))
