import time

import numpy as np
import pytest

from evaluators.latency import measure, median_interval, summarize, time_in_turns


def test_every_callable_runs_in_every_round_and_each_round_starts_with_another():
    calls = []
    runs = {name: (lambda i, name=name: calls.append((name, i))) for name in "abc"}
    times = time_in_turns(runs, requests=4, warmup=2)
    assert [name for name, _ in calls] == list("bcacababcbcacababc")
    assert [i for _, i in calls][::3] == [2, 3, 0, 1, 2, 3]
    assert all(taken.shape == (4,) and (taken >= 0).all() for taken in times.values())


def test_a_callable_that_waits_longer_has_a_ratio_above_one():
    found = measure({"fp32": lambda _: time.sleep(0.001), "slow": lambda _: time.sleep(0.003)}, requests=12, warmup=1, batch_size=2)
    assert found["fp32"].ratio == found["fp32"].ratio_lower == 1
    assert found["slow"].ratio_lower > 1
    assert found["slow"].p50_ms >= 3
    assert found["slow"].throughput_per_s <= 2 / 0.003
    other = measure({"a": lambda _: None, "b": lambda _: time.sleep(0.001)}, requests=5, warmup=0, baseline="b")
    assert other["a"].ratio < 1


class Caches:
    """Callables that are slow just after another one ran: 20 ms, then 1 ms."""

    def __init__(self, fast=0.001):
        self.last, self.calls, self.fast = None, [], fast

    def __call__(self, name):
        def run(request):
            self.calls.append((name, request))
            time.sleep(self.fast if self.last == name else 0.02)
            self.last = name

        return run


def test_who_may_settle_is_not_timed_while_it_finds_what_the_one_before_took():
    caches = Caches()
    cold = time_in_turns({name: caches(name) for name in "ab"}, requests=4, warmup=0)
    assert all(taken.max() >= 20 for taken in cold.values())  # not all: who ends a round begins the next
    caches = Caches()
    warm = time_in_turns({name: caches(name) for name in "ab"}, requests=4, warmup=1, settle_ms=5)
    assert all(np.median(taken) < 10 for taken in warm.values())
    # The warm-up is not settled; then each settles on the very request that it is timed on.
    assert caches.calls[:2] == [("b", 3), ("a", 3)]
    assert set(caches.calls[2:]) == {(name, i) for name in "ab" for i in range(4)}


def test_settling_takes_as_long_as_it_is_told_and_one_run_at_least():
    caches = Caches()
    time_in_turns({"a": caches("a")}, requests=3, warmup=0, settle_ms=8)
    assert 3 * 2 <= len(caches.calls) <= 3 * 9  # the run of 20 ms settles alone; 8 ms hold at most 8 runs of 1 ms; one is timed


def test_who_runs_far_longer_than_settling_takes_is_spared_it():
    caches = Caches(fast=0.02)
    time_in_turns({"a": caches("a")}, requests=4, warmup=0, settle_ms=1)
    assert len(caches.calls) == 2 + 3  # only before the first, whose time is not known yet


def test_the_ratio_is_within_rounds_so_that_a_drifting_machine_cancels():
    drift = np.linspace(1, 10, 50)
    found = summarize(0.5 * drift, drift)
    assert (found.ratio, found.ratio_lower, found.ratio_upper) == (0.5, 0.5, 0.5)


def test_order_statistics_hold_the_median_as_often_as_they_say():
    """The textbook pair for n = 20 at 95 %: the 6th and the 15th value, 1 - 2 P(Bin(20, 1/2) <= 5) = 0.9586."""
    low, high, reached = median_interval(np.arange(1.0, 21), 0.95)
    assert (low, high) == (6, 15)
    assert reached == pytest.approx(0.95861, abs=1e-5)


def test_few_values_reach_less_and_say_so():
    assert median_interval([3.0], 0.95) == (3, 3, 0)
    assert median_interval([1.0, 2.0, 3.0], 0.95) == (1, 3, 0.75)
