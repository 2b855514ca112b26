"""Work on several threads with results in order: the same results whatever their number."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def worker_count() -> int:
    """Threads to use: `QUANT_THREADS` when set, else the CPUs that this process may run on."""
    asked = os.environ.get("QUANT_THREADS", "")
    return max(1, int(asked)) if asked.isdigit() else len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ordered_map(function: Callable[[A], B], items: Iterable[A], *, workers: int | None = None) -> Iterator[B]:
    """`function` of each item, in the items' order, computed on `workers` threads; few items are held at a time.

    Example:
        >>> list(ordered_map(lambda x: x * x, range(4), workers=2))
        [0, 1, 4, 9]
    """
    workers = worker_count() if workers is None else workers
    if workers <= 1:
        yield from map(function, items)
        return
    waiting: deque[Future[B]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


@contextmanager
def one_thread() -> Iterator[None]:
    """Let NumPy's linear algebra compute on one thread: how many there are would change the last bits of what it finds."""
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    with threadpool_limits(limits=1):
        yield
