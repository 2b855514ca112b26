import numpy as np
import pytest
from scipy.stats import norm

from evaluators.spending import levels, spent

FIFTHS = (0.2, 0.4, 0.6, 0.8, 1.0)


@pytest.mark.parametrize(
    ("spending", "boundaries"),
    [("obrien-fleming", (4.8769, 3.3569, 2.6803, 2.2898, 2.0310)), ("pocock", (2.4380, 2.4268, 2.4101, 2.3966, 2.3859))],
)
def test_boundaries_are_those_of_lan_and_demets_for_five_looks(spending, boundaries):
    """As `ldbounds` and the tables of Reboussin, DeMets, Kim and Lan (2000) print them, one-sided 0.025; their last digit is rounded."""
    assert -norm.ppf(levels(FIFTHS, 0.025, spending=spending)) == pytest.approx(boundaries, abs=2e-4)


@pytest.mark.parametrize("spending", ["obrien-fleming", "pocock"])
def test_one_look_has_the_whole_level_and_what_is_spent_rises_to_it(spending):
    assert levels((1.0,), 0.05, spending=spending) == pytest.approx([0.05], abs=1e-9)
    rising = [spent(spending, 0.05, t) for t in np.linspace(0.05, 1, 20)]
    assert np.all(np.diff(rising) > 0)
    assert rising[-1] == 0.05


def test_a_random_walk_crosses_the_boundary_as_often_as_promised():
    """100,000 walks; the standard error of the share is 0.07 %, of which 4 are allowed for."""
    times = np.array((0.1, 0.35, 0.5, 0.9, 1.0))
    steps = np.random.default_rng(0).normal(size=(100_000, 5)) * np.sqrt(np.diff(times, prepend=0))
    walks = np.cumsum(steps, axis=1) / np.sqrt(times)
    for spending in ("obrien-fleming", "pocock"):
        boundary = -norm.ppf(levels(tuple(times), 0.05, spending=spending))
        assert np.mean((walks > boundary).any(axis=1)) == pytest.approx(0.05, abs=4 * 0.0007)


def test_a_look_below_the_least_level_is_left_out_and_spends_nothing():
    whole = levels((0.2, 0.6, 1.0), 0.05, spending="obrien-fleming", least=0.005)
    assert whole[0] == 0
    assert whole[1:] == pytest.approx(levels((0.6, 1.0), 0.05, spending="obrien-fleming"), abs=1e-9)
