"""Profiles into prices, by hand."""

import pytest

from quant.core.costs import ConversionTimes, Crossing, EngineProfile, KernelTime, LayerWork, ModelWork
from quant.costs import COSTS, Setting
from quant.errors import PlanError

NAMES = ("one", "two", "three")
PRODUCTS = {"one": 100, "two": 100, "three": 300}


def kernel(name, ms, *layers, **more):
    return KernelTime(kernel=name, op=more.pop("op", "K"), ms=ms, layers=layers, **more)


def profile(scheme, total, *kernels):
    return EngineProfile(target="engine 1", scheme=scheme, machine="CPU, 1 thread", runs=5, total_ms=total, kernels=kernels)


WORK = ModelWork(
    model="m",
    samples=1,
    layers=tuple(LayerWork(layer=n, op="MatMul", products=PRODUCTS[n], weights=10, read=10, written=10) for n in NAMES),
    crossings=(
        Crossing(tensor="x", maker=None, readers=("one",), open=False, elements=500),
        Crossing(tensor="a", maker="one", readers=("two",), open=True, elements=1000, also=("a_moved",)),
        Crossing(tensor="b", maker="two", readers=("three",), open=False, elements=1000),
    ),
)
FP32 = profile("fp32", 10.0, kernel("one", 2.0, "one"), kernel("act", 0.5, near="one"), kernel("norm", 1.0, near="one"), kernel("both", 6.0, "two", "three"))
INT8 = profile(
    "int8",
    5.5,
    kernel("x_q", 0.3, converts="x", codes=True),
    kernel("one", 1.0, "one", codes=True),
    kernel("a_dq", 0.2, converts="a", codes=False),
    kernel("norm", 1.2, near="one"),
    kernel("two", 1.0, "two"),
    kernel("b_q", 0.4, converts="b", codes=True),
    kernel("three", 1.4, "three"),
)
CONVERSIONS = {"int8": ConversionTimes(enter=((1000, 0.7), (2000, 1.4)), leave=((1000, 0.9),))}


def setting(profiles=None, conversions=CONVERSIONS, formats=("fp32", "int8")):
    return Setting(WORK, dict.fromkeys(NAMES, formats), profiles=profiles or {"fp32": FP32, "int8": INT8}, conversions=conversions)


def table(**how):
    return COSTS.make("measured").table(setting(**how))


def test_kernels_belong_to_their_layers_by_products_and_what_one_format_alone_needs_to_the_layer_before():
    costs = {row.layer: row.costs for row in table().layers}
    assert costs["one"] == pytest.approx({"fp32": 2.5, "int8": 1.0})
    assert costs["two"] == pytest.approx({"fp32": 1.5, "int8": 1.0})
    assert costs["three"] == pytest.approx({"fp32": 4.5, "int8": 1.4})


def test_what_all_profiles_share_and_what_is_no_kernel_is_the_rest():
    # norm: 1.0 and 1.2; beside the kernels 0.5 ms of FP32's run, and none of INT8's.
    assert table().rest == pytest.approx(1.1 + 0.25)


def test_a_conversion_that_was_seen_is_the_price_of_its_tensor_and_one_that_was_not_is_measured_by_size():
    prices = {b.tensor: b.prices for b in table().boundaries}
    assert prices["x"] == pytest.approx({"fp32>int8": 0.3})
    # `one` hands on codes: its reader takes them as they are, others have them brought back.
    assert prices["a"] == pytest.approx({"int8>fp32": 0.2, "fp32>int8": 0.7})
    # `two` gives floats, which are quantized for `three` whatever `two` is in.
    assert prices["b"] == pytest.approx({"fp32>int8": 0.4, "int8>int8": 0.4})


def test_uniform_plans_cost_what_the_engine_takes_for_them_but_for_what_they_share():
    made = table()
    assert made.total(dict.fromkeys(NAMES, "fp32")) == pytest.approx(10.0 + 0.1 - 0.25)
    assert made.total(dict.fromkeys(NAMES, "int8")) == pytest.approx(5.5 - 0.1 + 0.25)


def test_what_the_profiler_takes_is_taken_off():
    slow = profile("fp32", 2.0, kernel("one", 2.0, "one"), kernel("two", 1.0, "two"), kernel("three", 0.1, "three"))
    made = COSTS.make("measured").table(setting(profiles={"fp32": slow}, formats=("fp32",)))
    # 0.1 of each, the shortest, and what is left (1.9 and 0.9) in proportion.
    assert {row.layer: row.costs["fp32"] for row in made.layers} == pytest.approx({"one": 1.9 * 2 / 2.8, "two": 0.9 * 2 / 2.8, "three": 0.0})
    assert made.total(dict.fromkeys(NAMES, "fp32")) == pytest.approx(2.0)


def test_a_format_of_weights_alone_has_no_boundaries():
    mask = kernel("mask", 0.0, codes=True)  # a byte that is no code
    codeless = profile("int4", 3.0, mask, *(kernel(n, 1.0, n) for n in NAMES))
    made = COSTS.make("measured").table(setting(profiles={"fp32": FP32, "int4": codeless}, conversions={}, formats=("fp32", "int4")))
    assert [b.prices for b in made.boundaries] == [{}, {}, {}]


def test_what_was_not_measured_is_refused():
    with pytest.raises(PlanError, match="no profile of the engine was taken in int8\nhint: profiled: fp32"):
        table(profiles={"fp32": FP32})
    with pytest.raises(PlanError, match="layer 'three': the profile of engine 1 shows no kernel for it in int8"):
        table(profiles={"fp32": FP32, "int8": profile("int8", 2.0, kernel("one", 1.0, "one"), kernel("two", 1.0, "two"))})
    with pytest.raises(PlanError, match="what it takes to change into int8 and back was not measured"):
        table(conversions={})
