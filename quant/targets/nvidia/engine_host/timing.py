"""Times of an engine, taken and summed up as NVIDIA's trtexec does, so that the numbers can be laid side by side."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

WARM_UP_MS = 200.0
LEAST_SECONDS = 3.0
LEAST_ITERATIONS = 10
PERCENTILES = (90, 95, 99)
_BOUND_BY_ENQUEUE = 0.8


class Clock(Protocol):
    """What is timed: one inference, and what the GPU says of it."""

    def enqueue(self) -> None:
        """Put one inference into the stream, between two events."""
        ...

    def finish(self) -> float:
        """Wait for it; gives the time between the events, ms."""
        ...


@dataclass(frozen=True)
class Summary:
    """Times in ms.

    Args:
        least: The smallest.
        most: The largest.
        mean: Their mean.
        median: Their median.
        percentiles: Percent -> time.
        variation: Standard deviation over the mean.
    """

    least: float
    most: float
    mean: float
    median: float
    percentiles: dict[int, float]
    variation: float


@dataclass(frozen=True)
class Times:
    """Times of many inferences, one after the other.

    Args:
        compute: On the GPU, between an event before the inference and one behind it.
        enqueue: On the host, for putting the inference into the stream.
        iterations: Number of inferences.
        seconds: Duration of all of them.
    """

    compute: Summary
    enqueue: Summary
    iterations: int
    seconds: float

    @property
    def bound_by_enqueue(self) -> bool:
        """Whether the host is hardly faster than the GPU, so that the GPU waits: a CUDA graph would help."""
        return self.enqueue.median > _BOUND_BY_ENQUEUE * self.compute.median

    def as_document(self) -> dict[str, Any]:
        """Everything, for JSON; times in ms."""
        rate = self.iterations / self.seconds
        return {**asdict(self), "inferences_per_second": rate, "bound_by_enqueue": self.bound_by_enqueue}


def percentile(ascending: Sequence[float], percent: float) -> float:
    """The time that `percent` of `ascending` do not exceed, by trtexec's choice of the index, which it computes in single precision.

    Example:
        >>> percentile(list(range(1, 11)), 90), percentile([1.0, 2.0, 3.0], 90)
        (9, 3.0)
    """
    count = len(ascending)
    left_out = _single(_single(1 - _single(percent / 100)) * count)
    return ascending[max(count - 1 - int(left_out), 0)]


def _single(value: float) -> float:
    return ctypes.c_float(value).value


def summarize(times: Sequence[float]) -> Summary:
    """What there is to say of `times`, of which there is at least one.

    Example:
        >>> found = summarize([2.0, 1.0, 4.0, 3.0])
        >>> found.median, found.mean, found.percentiles[99]
        (2.5, 2.5, 4.0)
    """
    ascending = sorted(times)
    mean = statistics.fmean(ascending)
    return Summary(
        least=ascending[0],
        most=ascending[-1],
        mean=mean,
        median=statistics.median(ascending),
        percentiles={p: percentile(ascending, p) for p in PERCENTILES},
        variation=statistics.pstdev(ascending) / mean if mean else 0.0,
    )


def take_times(clock: Clock, *, now: Callable[[], float] = time.perf_counter) -> Times:
    """Warm up, then time one inference after the other, for long enough and often enough.

    Args:
        clock: What is timed.
        now: Seconds by the host's clock.
    """
    start = now()
    while (now() - start) * 1e3 < WARM_UP_MS:
        clock.enqueue()
        clock.finish()
    compute: list[float] = []
    enqueue: list[float] = []
    start = now()
    while (elapsed := now() - start) < LEAST_SECONDS or len(compute) < LEAST_ITERATIONS:
        before = now()
        clock.enqueue()
        enqueue.append((now() - before) * 1e3)
        compute.append(clock.finish())
    return Times(summarize(compute), summarize(enqueue), len(compute), elapsed)
