"""Sustained load: several threads ask one session for a while; every output is held to that of a single thread, and memory is watched."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from quant.errors import QuantError

Array = npt.NDArray[Any]
Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]

_STATUS, _STATM = Path("/proc/self/status"), Path("/proc/self/statm")
_EVERY_S = 0.02


def resident_bytes() -> int:
    """Bytes that this process holds now; 0 where the system does not tell."""
    return int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") if _STATM.exists() else 0


def peak_bytes() -> int:
    """The most bytes that this process has held since it was started; 0 where the system does not tell."""
    if not _STATUS.exists():
        return 0
    lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


class Sustained:
    """A load of requests that come round again and again.

    Args:
        run: Answers one request; called from several threads at once.
        feeds: The requests.
    """

    def __init__(self, run: Run, feeds: Sequence[Mapping[str, Array]]) -> None:
        self._run, self._feeds = run, feeds
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._expected: list[dict[str, Array]] = []
        self._answered, self._different, self._first, self._error = 0, 0, "", ""

    def result(self, *, seconds: float, threads: int) -> dict[str, Any]:
        """Ask for so many seconds from so many threads; what came of it, as `quant.validation.fresh.Load` has it."""
        self._expected = [self._copied(feed) for feed in self._feeds]
        again = [self._copied(feed) for feed in self._feeds]
        repeatable = not any(_first_difference(one, other) for one, other in zip(self._expected, again, strict=True))
        with ThreadPoolExecutor(threads) as pool:
            start = time.monotonic()
            workers = [pool.submit(self._ask, number) for number in range(threads)]
            rss = [(0.0, resident_bytes())]
            while (since := time.monotonic() - start) < seconds and not self._stop.wait(min(_EVERY_S, seconds - since)):
                rss.append((time.monotonic() - start, resident_bytes()))
            self._stop.set()
            for worker in workers:
                worker.result()
        return {
            "requests": self._answered,
            "seconds": time.monotonic() - start,
            "different": self._different,
            "first_different": self._first,
            "error": self._error,
            "repeatable": repeatable,
            "rss": rss,
        }

    def _copied(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        return {name: np.array(array) for name, array in self._run(feed).items()}

    def _ask(self, number: int) -> None:
        try:
            self._go_on(number)
        finally:
            self._stop.set()

    def _go_on(self, number: int) -> None:
        while not self._stop.is_set():
            which = number % len(self._feeds)
            try:
                off = _first_difference(self._expected[which], self._run(self._feeds[which]))
            except QuantError as error:
                with self._lock:
                    self._error = self._error or " ".join(error.what.split())
                return
            with self._lock:
                self._answered += 1
                if off:
                    self._different += 1
                    self._first = self._first or f"output {off!r} of request {which}"
            number += 1


def _first_difference(expected: Mapping[str, Array], found: Mapping[str, Array]) -> str:
    """The first output that is not the same bit for bit; empty when all are."""
    for name, array in expected.items():
        if name not in found or found[name].dtype != array.dtype or found[name].shape != array.shape or found[name].tobytes() != array.tobytes():
            return name
    return ""
