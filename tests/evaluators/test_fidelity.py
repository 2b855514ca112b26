import math

import numpy as np
import pytest

from evaluators.fidelity import Fidelity, FidelityMeter, fidelity
from quant.errors import DataError


def arrays(seed, *shape):
    return list(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def test_equal_outputs_are_exact():
    found = fidelity(arrays(0, 4, 3, 5), arrays(0, 4, 3, 5))
    assert (found.exact, found.sqnr_db, found.cosine_mean, found.cosine_min) == (True, None, 1, 1)
    assert (found.agreement, found.kl, found.max_abs_error, found.rows, found.samples) == (1, 0, 0, 12, 4)


def test_numbers_by_hand():
    """Cosine of (1, 0) and (1, 1) is sqrt(1/2), of (0, 2) and (0, 1) is 1; signal 1 + 4, noise 1 + 1."""
    found = fidelity([np.array([1.0, 0]), np.array([0, 2.0])], [np.array([1.0, 1]), np.array([0, 1.0])])
    assert found.sqnr_db == pytest.approx(10 * math.log10(5 / 2))
    assert found.cosine_min == pytest.approx(math.sqrt(0.5))
    assert found.cosine_mean == pytest.approx((1 + math.sqrt(0.5)) / 2)
    assert found.max_abs_error == 1


def test_kl_and_agreement_are_those_of_scipy_and_argmax():
    from scipy.special import softmax
    from scipy.stats import entropy

    ref, other = arrays(1, 20, 6), arrays(2, 20, 6)
    found = fidelity(ref, other)
    wanted = np.mean([entropy(softmax(r.astype(float)), softmax(o.astype(float))) for r, o in zip(ref, other, strict=True)])
    assert found.kl == pytest.approx(wanted, rel=1e-9)
    assert found.agreement == np.mean(np.argmax(ref, 1) == np.argmax(other, 1))


def test_a_single_column_has_no_classes():
    found = fidelity(arrays(0, 4, 1), arrays(1, 4, 1))
    assert (found.agreement, found.kl) == (None, None)


def test_rounding_to_eight_bits_has_about_the_textbook_sqnr():
    """A uniform signal over the whole range of b bits: 6.02 b dB."""
    x = np.random.default_rng(0).uniform(-1, 1, size=(50, 1000))
    step = 2 / 256
    found = fidelity(list(x), list(np.round(x / step) * step))
    assert found.sqnr_db == pytest.approx(6.0206 * 8, abs=0.1)


def test_many_small_samples_still_count_beside_a_large_one():
    meter = FidelityMeter()
    meter.add(np.array([1e8, 0]), np.array([1e8, 1]))
    for _ in range(1000):
        meter.add(np.array([1e-1, 0]), np.array([1e-1, 1e-8]))
    assert meter.result().sqnr_db == pytest.approx(10 * math.log10((1e16 + 10) / (1 + 1e-13)), rel=1e-14)


def test_it_can_be_saved_and_loaded(tmp_path):
    found = fidelity(arrays(0, 4, 3), arrays(1, 4, 3))
    found.save(tmp_path / "f.json")
    assert Fidelity.load(tmp_path / "f.json") == found


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(DataError, match=r"shape \[2\] and \[3\]"):
        fidelity([np.zeros(2)], [np.zeros(3)])
    with pytest.raises(DataError, match="1 of 3 values of the candidate's output are not finite"):
        fidelity([np.zeros(3)], [np.array([0, np.nan, 0])])
    with pytest.raises(DataError, match="2 outputs of the reference but 1"):
        fidelity([np.zeros(3)] * 2, [np.zeros(3)])
    with pytest.raises(DataError, match="no samples"):
        fidelity([], [])
