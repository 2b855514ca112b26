"""What every cost model owes, whatever it prices; run over the registry."""

import pytest

from quant.core.costs import ConversionTimes, CostTable, Crossing, EngineProfile, KernelTime, LayerWork, ModelWork
from quant.costs import COSTS, Setting

FORMATS = ("fp32", "fp16", "int8", "int4")
WORK = ModelWork(
    model="digest",
    samples=2,
    layers=(
        LayerWork(layer="a", op="MatMul", products=4096, weights=256, read=64, written=64),
        LayerWork(layer="scores", op="MatMul", products=1024, weights=0, read=128, written=32),
        LayerWork(layer="table", op="Gather", products=0, weights=512, read=16, written=16),
    ),
    crossings=(
        Crossing(tensor="x", maker=None, readers=("a",), open=True, elements=64),
        Crossing(tensor="t", maker="a", readers=("scores",), open=True, elements=64),
    ),
    other_weights=10,
)
PROFILES = {
    f: EngineProfile(
        target="engine 1",
        scheme=f,
        machine="here",
        runs=3,
        total_ms=3.5 / number,
        kernels=tuple(KernelTime(kernel=layer.layer, op="Kernel", ms=1.0 / number, layers=(layer.layer,), codes=f == "int8") for layer in WORK.layers),
    )
    for number, f in enumerate(FORMATS, 1)
}
SETTING = Setting(
    WORK,
    {layer.layer: FORMATS for layer in WORK.layers},
    target="engine",
    profiles=PROFILES,
    conversions={f: ConversionTimes(enter=((10, 0.1), (1000, 1.0)), leave=((10, 0.2),)) for f in FORMATS},
)
pytestmark = pytest.mark.parametrize("kind", COSTS.kinds())


def table(kind, setting=SETTING):
    return COSTS.make(kind).table(setting)


def test_every_layer_has_a_price_in_every_format_and_the_table_says_what_it_is_of(kind):
    made = table(kind)
    assert {row.layer: tuple(row.costs) for row in made.layers} == {layer.layer: FORMATS for layer in WORK.layers}
    assert (made.kind, made.model, made.body) == (kind, "digest", "fp32")
    assert made.unit
    assert made.source
    assert COSTS.get(kind).quantity in {"time", "size", "bits", "work"}


def test_every_uniform_plan_costs_something_and_only_what_is_measured_or_counted_is_no_estimate(kind):
    made = table(kind)
    for f in FORMATS:
        assert made.total(dict.fromkeys(SETTING.formats, f)) > 0
    if COSTS.get(kind).quantity == "time":
        assert made.estimated is not COSTS.get(kind).measures


def test_fewer_bits_of_weights_and_activations_never_cost_more_unless_it_was_measured(kind):
    if COSTS.get(kind).measures:
        pytest.skip("what an engine takes has its own mind")
    for row in table(kind).layers:
        cost = row.costs
        assert cost["fp32"] >= cost["fp16"] >= cost["int8"]
        assert cost["fp32"] >= cost["int4"]  # of weights alone: what they multiply stays as it is


def test_only_the_formats_that_are_asked_for_are_priced(kind):
    few = Setting(WORK, {"a": ("fp32", "int8"), "scores": ("fp32",), "table": ("fp32",)}, profiles=PROFILES, conversions=SETTING.conversions)
    made = table(kind, few)
    assert {row.layer: tuple(row.costs) for row in made.layers} == few.formats
    names = {part for boundary in made.boundaries for key in boundary.prices for part in key.split(">")}
    assert names <= {"fp32", "int8"}


def test_the_same_table_comes_out_again_and_survives_a_file(kind, tmp_path):
    made = table(kind)
    assert made.digest == table(kind).digest
    made.save(tmp_path / "costs.json")
    assert CostTable.load(tmp_path / "costs.json") == made
