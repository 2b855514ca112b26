"""Effects that can be reckoned by hand, and estimators against one another."""

import dataclasses
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from quant.core.formats import INT8
from quant.data.samples import Sample
from quant.errors import ModelError, PlanError, RecipeError
from quant.graph.model import read_model, signature
from quant.schemes import SCHEMES
from quant.sensitivity.measuring.outputs import OutputMeasure, choose_measures, compare
from quant.sensitivity.measuring.sums import BEYOND, Shares

SPEC = importlib.util.spec_from_file_location("profiling_estimators", Path(__file__).with_name("profiling.py"))
profiling = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(profiling)
zoo = profiling.zoo
R = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def _drawn_anew(monkeypatch):
    """Every test draws the same, whichever ran before it."""
    monkeypatch.setattr(sys.modules[__name__], "R", np.random.default_rng(3))


PLAIN = dataclasses.replace(
    profiling.DIALECT, activations=INT8, operands=INT8, left_operands=None, chained=frozenset(), transparent=frozenset(), melting=frozenset(), gemm=False
)
"""Q/DQ in front of layers and nowhere else, symmetric."""
INT8_ONLY = {"int8": SCHEMES.make("int8", {"correct_bias": False})}


def fake(x, scale):
    """Symmetric INT8 in float64."""
    return np.clip(np.rint(x / scale), -128, 127) * scale


def two_layers(samples=40, width=6, outputs=1):
    """A linear network of two products, its samples, and (weights, inputs) in float64."""
    a, b = R.normal(size=(width, 5)).astype(np.float32), R.normal(size=(5, outputs)).astype(np.float32)
    x = R.normal(size=(samples, width)).astype(np.float32)
    proto = zoo.model([zoo.node("MatMul", "x a", "h"), zoo.node("MatMul", "h b", "y")], {"x": ["N", width]}, {"y": ["N", outputs]}, {"a": a, "b": b})
    return proto, profiling.Feeds(Sample(i, ({"x": row},)) for i, row in enumerate(x)), (a.astype(np.float64), b.astype(np.float64), x.astype(np.float64))


def by_hand(a, b, x):
    """(layer, part) -> squared output errors of each sample, and the squared outputs, in float64."""

    def weight(w):
        return fake(w, np.abs(w).max(axis=0) / 127)

    def activation(v):
        return fake(v, np.abs(v).max() / 127)

    h, y = x @ a, x @ a @ b
    made = {
        ("matmul_h", "both"): activation(x) @ weight(a) @ b,
        ("matmul_h", "weight"): x @ weight(a) @ b,
        ("matmul_h", "activation"): activation(x) @ a @ b,
        ("matmul_y", "both"): activation(h) @ weight(b),
        ("matmul_y", "weight"): h @ weight(b),
        ("matmul_y", "activation"): activation(h) @ b,
    }
    return {key: ((found - y) ** 2).sum(axis=1) for key, found in made.items()}, (y**2).sum(axis=1)


@pytest.mark.parametrize(("kind", "rtol"), [("exact", 2e-3), ("sketch", 0.03)])
def test_effects_on_two_linear_layers_are_those_that_are_reckoned_by_hand(kind, rtol, tmp_path):
    """One output: a random sign times an error, squared, is the squared error. The sketch leaves out the product of both roundings, of 1/127 each."""
    proto, samples, arrays = two_layers()
    found = profiling.profiled(proto, tmp_path, kind, schemes=INT8_ONLY, samples=samples, dialect=PLAIN, batch=7)
    errors, signals = by_hand(*arrays)
    assert found.measure == "output_error"
    assert found.samples == 40
    assert found.reference == pytest.approx(signals.mean(), rel=1e-5)
    for (layer, part), wanted in errors.items():
        effect = found.effect(layer, "int8", part)
        value = wanted.mean() / signals.mean()
        assert effect.value == pytest.approx(value, rel=rtol)
        spread = np.sqrt(((wanted - value * signals) ** 2).sum() * 40 / 39) / signals.sum()
        assert effect.standard_error == pytest.approx(spread, rel=3 * rtol)


def test_the_sketch_is_within_its_standard_error_where_outputs_are_many(tmp_path):
    proto, samples, _ = two_layers(samples=64, width=16, outputs=12)
    exact, drawn = (
        profiling.profiled(proto, tmp_path / kind, kind, options, schemes=INT8_ONLY, samples=samples, dialect=PLAIN, batch=16)
        for kind, options in (("exact", {}), ("sketch", {"directions": 8}))
    )
    for wanted in (*exact.effects, *exact.joint):
        found = drawn.effect(wanted.layer, "int8", wanted.part)
        assert abs(found.value - wanted.value) <= 3 * found.standard_error
        assert 0 < found.standard_error < 0.3 * found.value


def test_the_sketch_ends_when_it_is_precise_enough_and_says_on_how_many_samples(tmp_path, monkeypatch):
    proto, samples, _ = two_layers(samples=256, width=16, outputs=12)

    def drawn(name, **options):
        return profiling.profiled(proto, tmp_path / name, "sketch", options, schemes=INT8_ONLY, samples=samples, dialect=PLAIN, batch=16)

    def shares(profile):
        return [e.standard_error / e.value for e in profile.effects if e.part == "both"]

    whole, rough, fine = drawn("whole", precision=0), drawn("rough", precision=0.3), drawn("fine", precision=0.1)
    assert whole.samples == 256
    assert 16 <= rough.samples < fine.samples <= 256
    assert rough.samples % 16 == 0
    assert np.median(shares(rough)) <= 0.3
    for threads in "12":
        monkeypatch.setenv("QUANT_THREADS", threads)
        assert drawn(f"on {threads}", precision=0.3) == rough


def test_samples_that_lie_across_the_first_axis_are_not_taken_for_rows(tmp_path):
    """The product reads [places, samples, channels]: its gradient cannot be cut by samples, so samples are taken together."""
    w = R.normal(size=(8, 4)).astype(np.float32)
    nodes = [zoo.node("Transpose", "x", "t", perm=[1, 0, 2]), zoo.node("MatMul", "t w", "m"), zoo.node("Transpose", "m", "y", perm=[1, 0, 2])]
    proto = zoo.model(nodes, {"x": ["N", 4, 8]}, {"y": ["N", 4, 4]}, {"w": w})
    samples = profiling.Feeds(Sample(i, ({"x": R.normal(size=(4, 8)).astype(np.float32)},)) for i in range(48))
    exact, drawn = (
        profiling.profiled(proto, tmp_path / kind, kind, options, schemes=INT8_ONLY, samples=samples, dialect=PLAIN, batch=4)
        for kind, options in (("exact", {}), ("sketch", {"directions": 16}))
    )
    wanted, found = exact.effect("matmul_m", "int8"), drawn.effect("matmul_m", "int8")
    assert abs(found.value - wanted.value) <= 3 * found.standard_error
    assert found.standard_error < 0.3 * found.value


def test_places_that_a_mask_leaves_out_count_for_nothing(tmp_path):
    """The same texts, one to a batch and padded together: effects agree, though what lies behind the mask is enormous."""
    w = R.normal(size=(3, 4)).astype(np.float32)
    table = R.normal(size=(9, 3)).astype(np.float32)
    table[0] = 3  # what fills up
    nodes = [zoo.node("Gather", "table ids", "e"), zoo.node("MatMul", "e w", "y")]
    proto = zoo.model(nodes, {"ids": ["N", "T"]}, {"y": ["N", "T", 4]}, {"table": table, "w": w}, types={"ids": 7})
    texts = [R.integers(1, 9, size=n).astype(np.int64) for n in (2, 5, 7, 3, 4, 6)]

    class Padded(profiling.Feeds):
        @property
        def pad_values(self):
            return {"ids": 0}

    plain = profiling.Feeds(Sample(i, ({"ids": t},)) for i, t in enumerate(texts))
    padded = Padded(plain)
    how = {"schemes": INT8_ONLY, "dialect": PLAIN}
    # Of 6 texts, the default's few directions leave too little to hold anything to.
    runs = [("exact", {}, plain, 1), ("exact", {}, padded, 6), ("sketch", {"directions": 256}, padded, 6)]
    profiles = [
        profiling.profiled(proto, tmp_path / str(n), kind, options, samples=samples, batch=batch, **how)
        for n, (kind, options, samples, batch) in enumerate(runs)
    ]
    alone, together, drawn = (profile.effect("matmul_y", "int8", "weight").value for profile in profiles)
    assert together == pytest.approx(alone, rel=1e-4)  # sums of FP32 in another order
    # The square of a sum with random signs has a variance of at most twice the square of its mean: three deviations of the mean of 256.
    assert drawn == pytest.approx(alone, rel=3 * np.sqrt(2 / 256))


def test_logits_are_measured_by_the_divergence_of_their_softmax(tmp_path):
    proto, samples, (a, b, x) = two_layers(samples=60, outputs=5)
    path, work, table = profiling.prepared(proto, tmp_path, INT8_ONLY, samples=samples, dialect=PLAIN, batch=20)
    chosen = choose_measures(read_model(path), signature(read_model(path)), classes={"y"})
    assert chosen == (OutputMeasure("y", "kl"),)
    exact, drawn = (
        profiling.profile(path, dataclasses.replace(work, measures=chosen), table=table, estimator=profiling.ESTIMATORS.make(kind, options))
        for kind, options in (("exact", {}), ("sketch", {"directions": 32}))
    )
    assert exact.measure == drawn.measure == "kl"
    y = x @ a @ b
    z = x @ fake(a, np.abs(a).max(axis=0) / 127) @ b
    p, q = (np.exp(v) / np.exp(v).sum(axis=1, keepdims=True) for v in (y, z))
    assert exact.effect("matmul_h", "int8", "weight").value == pytest.approx((p * np.log(p / q)).sum(axis=1).mean(), rel=0.01)
    for wanted in exact.effects:
        found = drawn.effect(wanted.layer, "int8", wanted.part)
        assert abs(found.value - wanted.value) <= 3 * found.standard_error + 0.1 * wanted.value  # beyond the second order


@pytest.mark.parametrize("kind", ["exact", "sketch"])
def test_one_sensitive_residual_add_is_found_among_many(kind, tmp_path):
    """Its sum has a channel that dwarfs the others: one step of INT8 is as wide as they are, for the layer that reads it."""
    nodes, weights, value = [], {}, "x"
    for i in range(6):
        weights[f"w{i}"] = (R.normal(size=(16, 16)) * 0.2).astype(np.float32)
        nodes += [zoo.node("MatMul", f"{value} w{i}", f"h{i}"), zoo.node("Relu", f"h{i}", f"r{i}"), zoo.node("Add", f"r{i} {value}", f"s{i}")]
        value = f"s{i}"
    bias = np.zeros(16, np.float32)
    bias[3] = 1000.0
    nodes.insert(9, zoo.node("Add", "s2 out", "big"))
    nodes[10].input[0] = "big"
    weights |= {"out": bias}
    weights["w3"][3] = 0  # what dwarfs the others is not used, but it widens the steps
    proto = zoo.model(nodes, {"x": ["N", 16]}, {value: ["N", 16]}, weights)
    samples = profiling.Feeds(Sample(i, ({"x": R.normal(size=16).astype(np.float32)},)) for i in range(24))
    found = profiling.profiled(proto, tmp_path, kind, schemes=INT8_ONLY, samples=samples, dialect=PLAIN, batch=8)
    values = {layer: found.effect(layer, "int8").value for layer in found.layers}
    worst = max(values, key=values.get)
    assert worst == "matmul_h3"
    assert values[worst] > 20 * sorted(values.values())[-2]
    assert found.effect(worst, "int8", "activation").value > 0.9 * values[worst] > 100 * found.effect(worst, "int8", "weight").value


def test_what_the_twin_cannot_express_is_measured_exactly_and_said(tmp_path):
    drawn, exact = (profiling.profiled(zoo.ZOO["an if that captures"](), tmp_path / kind, kind) for kind in ("sketch", "exact"))
    assert drawn.estimators == {"int8": "exact"}
    assert "operator If" in drawn.notes[0]
    assert drawn.effects == exact.effects


def test_parts_of_a_product_of_two_activations_are_told(tmp_path):
    found = profiling.profiled(zoo.ZOO["product of two activations"](), tmp_path, "exact")
    [layer] = found.layers
    assert found.effect(layer, "int8", "weight").value == 0
    assert found.effect(layer, "int8", "activation").value == found.effect(layer, "int8").value > 0


def test_the_local_error_is_that_of_the_layer(tmp_path):
    proto, samples, (a, _, x) = two_layers()
    found = profiling.profiled(proto, tmp_path, "local", schemes=INT8_ONLY, samples=samples, dialect=PLAIN, batch=7)
    wanted = x @ a
    made = fake(x, np.abs(x).max() / 127) @ fake(a, np.abs(a).max(axis=0) / 127)
    assert found.measure == "local_error"
    assert found.effect("matmul_h", "int8").value == pytest.approx(((made - wanted) ** 2).sum() / (wanted**2).sum(), rel=2e-3)


def test_several_outputs_count_by_their_weights():
    one = Shares([3.0, 1.0])
    one.add(np.array([[1.0, 4.0]]), np.array([[10.0, 8.0]]))
    assert one.value() == (pytest.approx(0.75 * 0.1 + 0.25 * 0.5), pytest.approx(0.2))
    lost = Shares([1.0])
    lost.add(np.array([[np.nan]]), np.array([[1.0]]))
    assert lost.value()[0] == BEYOND


def test_outputs_that_are_masked_and_infinite_are_left_out():
    wanted, found = np.array([[[1.0], [np.inf]], [[2.0], [3.0]]]), np.array([[[1.5], [0.0]], [[2.0], [9.0]]])
    error, signal = compare(OutputMeasure("y", "output_error"), found, wanted, np.array([[True, True], [True, False]]))
    assert error.tolist() == [0.25, 0]
    assert signal.tolist() == [1, 4]


def test_weights_of_outputs_are_checked(tmp_path):
    proto, samples, _ = two_layers()
    path, _, _ = profiling.prepared(proto, tmp_path, INT8_ONLY, samples=samples)
    model = read_model(path)
    with pytest.raises(RecipeError, match="'z', which is no float output"):
        choose_measures(model, signature(model), weights={"z": 1.0})
    with pytest.raises(RecipeError, match=r"the weight of output 'y' is -1\.0"):
        choose_measures(model, signature(model), weights={"y": -1.0})
    with pytest.raises(ModelError, match="no float output whose error could be measured"):
        choose_measures(model, signature(model), weights={"y": 0.0})


def test_what_was_not_measured_cannot_be_predicted(tmp_path):
    proto, samples, _ = two_layers()
    found = profiling.profiled(proto, tmp_path, "exact", schemes=INT8_ONLY, samples=samples, dialect=PLAIN)
    value, error = found.predicted({"matmul_h": "int8", "matmul_y": "fp32"})
    assert (value, error) == (found.effect("matmul_h", "int8").value, found.effect("matmul_h", "int8").standard_error)
    with pytest.raises(PlanError, match="nothing of layer 'matmul_x' in int8"):
        found.predicted({"matmul_x": "int8"})
    with pytest.raises(PlanError, match=r"nothing of layer 'matmul_h' in int4(.|\n)*measured in int8"):
        found.predicted({"matmul_h": "int4"})
