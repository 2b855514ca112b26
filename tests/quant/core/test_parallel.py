"""Work on several threads gives its results in order."""

from __future__ import annotations

import threading
import time

import pytest

from quant.core.parallel import ordered_map, worker_count


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(workers):
    def slower_first(i):
        time.sleep(0.002 * (5 - i % 5))
        return i * i

    assert list(ordered_map(slower_first, range(12), workers=workers)) == [i * i for i in range(12)]


def test_several_workers_run_at_once():
    together = threading.Barrier(2, timeout=10)
    assert len(list(ordered_map(lambda _: together.wait(), range(4), workers=2))) == 4


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_comes_through_at_its_place(workers):
    results = ordered_map(lambda i: 1 // (i - 2), range(6), workers=workers)
    assert [next(results), next(results)] == [-1, -1]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_items_are_taken_as_they_are_needed():
    taken = []
    results = ordered_map(lambda i: i, (taken.append(i) or i for i in range(100)), workers=2)
    assert next(results) == 0
    assert len(taken) <= 4


def test_the_number_of_workers_can_be_set(monkeypatch):
    monkeypatch.setenv("QUANT_THREADS", "3")
    assert worker_count() == 3
    monkeypatch.setenv("QUANT_THREADS", "0")
    assert worker_count() == 1
    monkeypatch.setenv("QUANT_THREADS", "many")
    assert worker_count() >= 1
