"""A placed graph as a module: same tensors, same values, and back into the graph."""

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
import torch
from onnx.reference import ReferenceEvaluator

from quant.core.formats.narrowed import narrowed
from quant.graph.qdq import freeze_qdq
from quant.targets import TARGETS
from quant.twin.training.trainable import Trainable, trainable_weights

DIALECTS = {kind: TARGETS.make(kind).dialect for kind in TARGETS if TARGETS.make(kind).dialect.integer}


def three_bits(dialect):
    left = dialect.left_operands
    parts = {name: narrowed(getattr(dialect, name), 3) for name in ("activations", "operands", "weights")}
    return replace(dialect, **parts, left_operands=None if left is None else narrowed(left, 3))


def moved(trainable, seed=0):
    """Every weight and scale moved a little, as training would."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in trainable.weights.values():
            weight.mul_(1 + 0.1 * torch.randn(weight.shape, generator=random))
        for growth in trainable.scales:
            growth.add_(0.1 * torch.randn(growth.shape, generator=random))


def compared(model, trainable, placed, feed):
    with torch.no_grad():
        twin = {name: value.numpy() for name, value in trainable.twin.run(feed).items()}
    trainable.write_back(model)
    freeze_qdq(model, placed)
    return dict(zip(trainable.twin.outputs, ReferenceEvaluator(ir.to_proto(model)).run(None, feed), strict=True)), twin


@pytest.mark.parametrize("bits", [8, 3])
@pytest.mark.parametrize("graph", ["residual with relu", "attention", "gemm with factors"])
def test_the_graph_that_is_written_computes_what_the_module_does_with_trained_weights_and_scales(zoo, placed_in, tmp_path, graph, bits):
    """ONNX's reference evaluator and the twin sum in other orders, so a value near a tie may fall to the next code: few do, by one step."""
    import onnx

    onnx.save(zoo.ZOO[graph](), tmp_path / "m.onnx")
    dialect = DIALECTS["onnxruntime"] if bits == 8 else three_bits(DIALECTS["onnxruntime"])
    model, placed = placed_in(tmp_path / "m.onnx", dialect)
    feed = zoo.feed(zoo.ZOO[graph](), 3)
    trainable = Trainable(model, placed, learn_scales=True, check=[feed])
    moved(trainable)
    expected, found = compared(model, trainable, placed, feed)
    for name, array in expected.items():
        step = np.abs(array).max() / 100 if bits == 8 else np.abs(array).max() / 4
        assert np.abs(found[name] - array).max() <= step, name
        assert np.mean(np.abs(found[name] - array) > 1e-4 * np.abs(array).max()) < 0.05, name


@pytest.mark.parametrize("target", DIALECTS)
def test_quantizers_stand_at_exactly_the_tensors_of_the_dialect(zoo, placed_in, tmp_path, target):
    import onnx

    proto = zoo.ZOO["residual with relu"]()
    onnx.save(proto, tmp_path / "m.onnx")
    model, placed = placed_in(tmp_path / "m.onnx", DIALECTS[target])
    trainable = Trainable(model, placed, learn_scales=True, check=[zoo.feed(proto)])
    calls = [node for node in trainable.twin.module.graph.nodes if node.op == "call_module"]
    pairs = [*placed.activations.values(), *(w.quantizer for w in placed.weights)]
    assert {str(node.meta["onnx_value"]) for node in calls if "onnx_value" in node.meta} >= {pair.made for pair in pairs}
    assert len(calls) == len(pairs) + sum(w.bias is not None for w in placed.weights)
    assert not [n for n in trainable.twin.module.graph.nodes if getattr(n.target, "__name__", "") in {"quantize", "dequantize"}]


def test_scales_that_must_be_equal_are_one_parameter(zoo, placed_in, tmp_path):
    import onnx

    nodes = [zoo.node("Conv", "x w", "c"), zoo.node("MaxPool", "c", "m", kernel_shape=[2, 2]), zoo.node("Conv", "m v", "y")]
    proto = zoo.model(nodes, {"x": ["N", 2, 6, 6]}, {"y": None}, {"w": zoo.draw(4, 2, 1, 1), "v": zoo.draw(3, 4, 1, 1)})
    onnx.save(proto, tmp_path / "m.onnx")
    model, placed = placed_in(tmp_path / "m.onnx")
    trainable = Trainable(model, placed, learn_scales=True, check=[zoo.feed(proto)])
    assert trainable.quantizers[placed.activations["c"].scale] is trainable.quantizers[placed.activations["m"].scale]
    moved(trainable)
    trainable.write_back(model)
    one, two = (model.graph.initializers[placed.activations[n].scale].const_value.numpy() for n in ("c", "m"))
    assert one == two
    assert trainable.ranges()["c"] == trainable.ranges()["m"]


def test_ranges_that_were_learned_give_the_learned_scale_again(perceptron, placed_in):
    model, placed = placed_in(perceptron[0])
    trainable = Trainable(model, placed, learn_scales=True, check=None)
    moved(trainable)
    for tensor, (low, high) in trainable.ranges().items():
        pair = placed.activations[tensor]
        params = pair.grid.params(low, high)
        assert params.scale == trainable.quantizers[pair.scale].scale.detach().numpy()
        assert params.zero_point == int(trainable.quantizers[pair.scale].zero_point)


def test_weights_of_layers_and_vectors_behind_them_are_trained_and_nothing_else(zoo, placed_in, tmp_path):
    import onnx

    nodes = [
        zoo.node("Gather", "table i", "e"),
        zoo.node("Mul", "e before", "s"),
        zoo.node("MatMul", "s w", "m"),
        zoo.node("Add", "m bias", "a"),
        zoo.node("Add", "a mask", "k"),
        zoo.node("LayerNormalization", "k gain shift", "y", axis=-1),
    ]
    weights = {
        "table": zoo.draw(9, 4),
        "before": zoo.draw(4),
        "w": zoo.draw(4, 5),
        "bias": zoo.draw(5),
        "mask": zoo.draw(2, 5),
        "gain": zoo.draw(5),
        "shift": zoo.draw(5),
    }
    proto = zoo.model(nodes, {"i": ["N", 2]}, {"y": None}, weights, types={"i": 7})
    onnx.save(proto, tmp_path / "m.onnx")
    model, placed = placed_in(tmp_path / "m.onnx")
    assert {w.layer for w in placed.weights} == {"matmul_m"}
    assert set(trainable_weights(model)) == {placed.weights[0].quantizer.source, "bias", "gain", "shift"}
