"""Counts and estimates, by hand."""

import pytest
from pydantic import ValidationError

from quant.core.costs import Boundary, CostTable, Crossing, LayerCost, LayerWork, ModelWork
from quant.costs import COSTS, Setting
from quant.costs.roofline import gpus
from quant.errors import PlanError, RunError

MIB = 1 << 20
LARGE = LayerWork(layer="large", op="MatMul", products=MIB * 1024, weights=MIB, read=MIB, written=MIB)
SCORES = LayerWork(layer="scores", op="MatMul", products=1000, weights=0, read=20, written=10)
FLOW = (Crossing(tensor="t", maker="large", readers=("scores",), open=False, elements=MIB),)
WORK = ModelWork(model="", samples=1, layers=(LARGE, SCORES), crossings=FLOW, other_weights=100)


def table(kind, *formats, body="fp32", **options):
    return COSTS.make(kind, options).table(Setting(WORK, {"large": formats, "scores": formats}, body=body))


def test_bytes_are_those_of_the_weights_with_the_scales_of_blocks():
    made = table("bytes", "fp32", "int8", "int4")
    assert made.layers[0].costs == {"fp32": 4 * MIB, "int8": MIB, "int4": MIB / 2 + 4 * MIB / 32}
    assert made.layers[1].costs == {"fp32": 0, "int8": 0, "int4": 0}
    assert made.rest == 400
    assert table("bytes", "int4", body="fp16", block=128).layers[0].costs == {"int4": MIB / 2 + 2 * MIB / 128}


def test_effective_bits_are_a_mean_over_weights():
    assert table("bits", "fp32", "int8").total({"large": "int8", "scores": "fp32"}) == 8
    assert table("bits", "int4", body="fp16").total({"large": "int4", "scores": "int4"}) == 4.5


def test_bit_operations_count_both_operands():
    made = table("bitops", "fp32", "int8", "int4", body="fp16")
    assert made.layers[0].costs == {"fp32": 1024 * MIB * 32 * 32, "int8": 1024 * MIB * 64, "int4": 1024 * MIB * 4 * 16}
    # Of a product of two activations, weights alone in 4 bits change nothing.
    assert made.layers[1].costs == {"fp32": 1000 * 32 * 32, "int8": 1000 * 64, "int4": 1000 * 16 * 16}


def test_the_roofline_is_the_slower_of_moving_and_multiplying():
    made = table("roofline", "fp32", "fp16", "int8", gpu="T4")
    # T4: 320 GB/s; 8.1, 65 and 130 * 10^12 operations a second. 2^30 products are 2.147 * 10^9 operations; three times 2^20 elements are moved.
    computing = {"fp32": 2**31 / 8.1e12, "fp16": 2**31 / 65e12, "int8": 2**31 / 130e12}
    moving = {"fp32": 3 * MIB * 4 / 320e9, "fp16": 3 * MIB * 2 / 320e9, "int8": 3 * MIB / 320e9}
    assert made.layers[0].costs == pytest.approx({f: 1e3 * max(computing[f], moving[f]) for f in computing})
    assert computing["fp32"] > moving["fp32"]
    assert computing["fp16"] > moving["fp16"]
    assert made.estimated
    assert made.source == "T4: NVIDIA T4 Tensor Core GPU, data sheet, 2019"


def test_a_boundary_of_the_roofline_is_a_tensor_read_and_written():
    made = table("roofline", "fp16", "int8", "int4", gpu="L4", body="fp16")
    price = 1e3 * MIB * 3 / 300e9
    # INT4 is of weights alone: their activations are in FP16, and nothing is converted.
    assert made.boundaries[0].prices == pytest.approx({"fp16>int8": price, "int8>fp16": price, "int8>int4": price, "int4>int8": price})


def test_tf32_is_left_out_on_demand():
    fast, exact = (table("roofline", "fp32", gpu="A100", tf32=tf32).layers[0].costs["fp32"] for tf32 in (True, False))
    assert exact == pytest.approx(1e3 * 2**31 / 19.5e12)
    assert fast == pytest.approx(1e3 * 2**31 / 156e12)


def test_a_format_that_the_gpu_has_not_and_a_gpu_that_is_not_known_are_refused():
    with pytest.raises(PlanError, match="A100 does not compute in fp8\nhint: it does in fp32, tf32, fp16, int8, int4"):
        table("roofline", "fp8", gpu="A100")
    with pytest.raises(ValidationError, match="no GPU 'L40' is known; did you mean 'L40S'"):
        table("roofline", "fp8", gpu="L40")
    with pytest.raises(PlanError, match="there is no format 'int9'"):
        table("bytes", "int9")


@pytest.mark.parametrize("name", ["T4", "A10", "A100", "L4", "L40S", "H100", "H200", "RTX 4090", "RTX 5090", "B200"])
def test_every_gpu_has_a_source_and_rates_that_rise_as_bits_fall(name):
    gpu = gpus()[name]
    assert "NVIDIA" in gpu.source
    assert gpu.bandwidth >= 300e9
    rates = [gpu.rates[f] for f in ("fp32", "tf32", "fp16", "fp8", "int8", "int4") if f in gpu.rates]
    assert rates == sorted(rates)
    assert ("fp8" in gpu.rates) is (int(gpu.capability.removeprefix("sm")) >= 89)


def test_a_table_refuses_what_is_no_price_and_a_file_that_is_none(tmp_path):
    with pytest.raises(ValidationError, match="the price of t \\(fp32>int8\\) is -1"):
        CostTable(
            kind="k", unit="ms", estimated=False, source="s", layers=(), boundaries=(Boundary(tensor="t", maker=None, readers=(), prices={"fp32>int8": -1.0}),)
        )
    with pytest.raises(ValidationError, match="the cost of layer 'a' is negative"):
        CostTable(kind="k", unit="ms", estimated=False, source="s", layers=(LayerCost(layer="a", costs={"fp32": -1.0}),))
    (tmp_path / "costs.json").write_text("{}", encoding="utf-8")
    with pytest.raises(RunError, match="not a CostTable"):
        CostTable.load(tmp_path / "costs.json")
