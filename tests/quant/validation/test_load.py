"""Sustained load: what is not as from one thread, what leaks and what ends a thread are found; a sound engine passes, for a while and for a minute."""

import itertools
import threading

import numpy as np
import pytest

from quant.errors import ModelError
from quant.validation.load import Sustained, peak_bytes, resident_bytes
from quant.validation.memory import growth

FEEDS = [{"x": np.float32([number])} for number in range(3)]


def doubled(feed):
    return {"y": feed["x"] * 2}


def test_an_engine_that_gives_the_same_passes():
    told = Sustained(doubled, FEEDS).result(seconds=0.2, threads=3)
    assert (told["different"], told["error"], told["repeatable"]) == (0, "", True)
    assert told["requests"] > 100
    assert told["rss"][0][1] > 0


def test_an_output_that_several_threads_disturb_is_found():
    inside = threading.Semaphore(1)

    def disturbed(feed):
        alone = inside.acquire(blocking=False)
        try:
            return {"y": feed["x"] * (2 if alone else np.float32(2.0000002))}
        finally:
            if alone:
                threading.Event().wait(0.001)
                inside.release()

    told = Sustained(disturbed, FEEDS).result(seconds=0.3, threads=4)
    assert told["repeatable"]
    assert told["different"] > 0
    assert told["first_different"].startswith("output 'y' of request ")


def test_an_engine_that_drifts_is_not_repeatable():
    counter = itertools.count()
    told = Sustained(lambda feed: {"y": feed["x"] + next(counter)}, FEEDS).result(seconds=0.05, threads=1)
    assert not told["repeatable"]


def test_a_request_that_is_refused_ends_the_load_and_is_told():
    calls = itertools.count()

    def refusing(feed):
        if next(calls) > 20:
            raise ModelError("no more memory\nfor this")
        return doubled(feed)

    told = Sustained(refusing, FEEDS).result(seconds=30, threads=2)
    assert told["error"] == "no more memory for this"
    assert told["seconds"] < 10


def test_a_bug_in_an_engine_is_not_swallowed():
    calls = itertools.count()

    def broken(feed):
        if next(calls) > 10:
            raise ZeroDivisionError
        return doubled(feed)

    with pytest.raises(ZeroDivisionError):
        Sustained(broken, FEEDS).result(seconds=30, threads=2)


def test_a_leak_is_found_in_real_memory():
    kept = []

    def leaking(feed):
        kept.append(np.ones(64 << 10, np.uint8))
        threading.Event().wait(0.002)
        return doubled(feed)

    told = Sustained(leaking, FEEDS).result(seconds=0.9, threads=2)
    found = growth(told["rss"], threads=2)
    assert not found.is_flat
    assert found.slope > 1 << 20
    assert peak_bytes() >= resident_bytes() - (64 << 20)


@pytest.mark.parametrize(
    ("rss", "flat"),
    [
        ([(t / 10, 50_000_000) for t in range(31)], True),
        ([(t / 10, 50_000_000 + (20_000_000 if t > 5 else 0)) for t in range(31)], True),  # grown at the start, then settled
        ([(t / 10, 50_000_000 + 400_000 * (t % 2)) for t in range(31)], True),
        ([(t / 10, 50_000_000 + 200_000 * t) for t in range(31)], False),
    ],
)
def test_memory_is_flat_when_it_settles(rss, flat):
    assert growth(rss, threads=4).is_flat is flat


def test_memory_that_nobody_tells_is_no_growth():
    assert growth([(t / 10, 0) for t in range(31)], threads=4) is None
    assert growth([(0.0, 5)], threads=4) is None


def under_load(delivered, seconds):
    found = delivered.validate(load_s=seconds, load_threads=4)
    [load] = [check for check in found.checks if check.check == "load"]
    assert load.status == "ok", load
    return load.said


@pytest.mark.slow
def test_four_threads_for_three_seconds(delivered, record_property):
    record_property("figure", under_load(delivered, 3))


@pytest.mark.benchmark
def test_four_threads_for_a_minute(delivered):
    print(under_load(delivered, 60))
