"""Agreement: by hand where it can be, and against scipy's own distributions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evaluators.agreement import CONFIDENCE, ROUNDING, Agreement, AgreementMeter, allowed, allowed_count
from quant.errors import DataError


def compared(exact, reference, engine):
    meter = AgreementMeter()
    meter.add({"y": np.asarray(exact)}, {"y": np.asarray(reference)}, {"y": np.asarray(engine)})
    return meter.result()[0]


def test_powers_are_those_of_the_sums_of_squares_in_db_of_the_reference():
    found = compared([[3.0, 4.5]], [[3.0, 4.0]], [[3.0, 4.05]])
    assert found.noise_db == pytest.approx(-20.0)  # 0.25 over 25
    assert found.deviation_db == pytest.approx(-40.0)  # 0.0025 over 25
    assert found.max_abs_deviation == pytest.approx(0.05)
    assert (found.rows, found.values, found.agrees) == (1, 2, True)


def test_the_sums_over_batches_are_those_over_all_at_once():
    random = np.random.default_rng(0)
    a, b, c = (random.normal(size=(12, 3)) for _ in range(3))
    meter = AgreementMeter()
    for part in (slice(0, 5), slice(5, 12)):
        meter.add({"y": a[part]}, {"y": b[part]}, {"y": c[part]})
    (found,) = meter.result()
    whole = compared(a, b, c)
    assert (found.rows, found.values, found.agrees) == (whole.rows, whole.values, whole.agrees)
    assert found.deviation_db == pytest.approx(whole.deviation_db)
    assert whole.deviation_db == pytest.approx(10 * math.log10(((c - b) ** 2).sum() / (b**2).sum()))


@pytest.mark.parametrize("rows", [4, 16, 300])
def test_the_limit_is_that_of_two_independent_roundings(rows):
    assert allowed(2.0, 0.0, rows) == pytest.approx(2.0 * math.sqrt(2 * stats.f.ppf(CONFIDENCE, rows, rows)))
    assert allowed(0.0, 7.0, rows) == pytest.approx(7.0 * ROUNDING)


def test_so_few_rows_that_chance_would_let_anything_pass_count_as_four():
    assert allowed(1.0, 0.0, 1) == allowed(1.0, 0.0, 4)


@pytest.mark.parametrize("noisy", [0, 1, 7, 40])
def test_as_many_decisions_may_differ_as_chance_allows(noisy):
    assert allowed_count(noisy) == stats.poisson.ppf(CONFIDENCE, 2 * noisy + 1)


@settings(max_examples=50)
@given(st.integers(0, 2**31), st.integers(8, 64), st.floats(1, 10))
def test_an_engine_that_rounds_independently_agrees_and_one_ten_times_as_far_off_does_not(seed, rows, step):
    random = np.random.default_rng(seed)
    exact = random.normal(size=(rows, 5)) * 100
    reference = exact + random.uniform(-step, step, exact.shape)
    assert compared(exact, reference, exact + random.uniform(-step, step, exact.shape)).agrees
    assert not compared(exact, reference, reference + 10 * step).agrees


def test_codes_that_flip_by_one_step_are_within_the_noise_of_the_format():
    random = np.random.default_rng(1)
    exact, step = random.uniform(-1, 1, (32, 10)), 2 / 255
    reference = np.rint(exact / step) * step
    flipped = reference + step * (random.uniform(size=exact.shape) < 0.1)
    assert compared(exact, reference, flipped).agrees
    assert not compared(exact, reference, reference + 8 * step).agrees


def test_floats_without_noise_may_differ_by_the_order_of_additions_alone():
    reference = np.random.default_rng(2).normal(size=(16, 8)).astype(np.float32)
    assert compared(reference, reference, reference * np.float32(1 + 5e-5)).agrees
    assert not compared(reference, reference, reference * np.float32(1 + 2e-4)).agrees


def test_what_is_not_finite_in_the_engine_alone_does_not_agree():
    found = compared([[1.0, 2.0]], [[1.0, 2.0]], [[1.0, np.nan]])
    assert (found.not_finite, found.agrees) == (1, False)


def test_what_overflows_already_in_the_reference_is_no_fault_of_the_engine():
    found = compared([[1.0, 2.0]], [[1.0, np.inf]], [[1.0, 2.0]])
    assert (found.not_finite, found.deviation_db, found.agrees) == (0, None, True)


def test_half_floats_are_measured_and_not_counted():
    found = compared(np.float16([[1, 2]]), np.float16([[1, 2]]), np.float32([[1, 2]]))
    assert (found.differing, found.agrees) == (None, True)


def test_ids_are_counted():
    ids = np.arange(100)
    found = compared(ids, np.where(ids < 3, 0, ids), np.where(ids < 90, ids, 0))
    assert (found.noisy, found.differing) == (0.02, 0.12)
    assert found.agrees  # 13 may, where 2 of 100 differ already: Poisson of mean 5
    assert not compared(ids, ids, ids + 1).agrees
    assert compared(ids, ids, ids).agrees


def test_booleans_are_counted_too():
    yes = np.ones(50, bool)
    assert not compared(yes, yes, ~yes).agrees


def test_outputs_of_different_shapes_cannot_be_compared():
    with pytest.raises(DataError, match=r"output 'y' has shape \[2\] in plain ONNX arithmetic, \[3\] in the engine and \[2\] in FP32"):
        compared(np.zeros(2), np.zeros(2), np.zeros(3))


def test_an_output_that_the_exact_model_lacks_counts_as_without_noise():
    meter = AgreementMeter()
    meter.add({}, {"y": np.ones((4, 2))}, {"y": np.ones((4, 2))})
    assert meter.result()[0].noise_db is None


def test_the_worst_output_is_the_one_furthest_beyond_its_limit():
    meter = AgreementMeter()
    b = np.random.default_rng(3).normal(size=(16, 4))
    a = b + 0.01
    meter.add({"near": a, "far": a, "well": a}, dict.fromkeys(("near", "far", "well"), b), {"near": b + 0.1, "far": b + 1, "well": b})
    found = Agreement(agrees=False, samples=16, outputs=meter.result())
    assert found.worst is not None
    assert [o.agrees for o in found.outputs] == [False, False, True]
    assert found.worst.output == "far"
