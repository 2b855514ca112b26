"""Latency: callables timed in turns, so that what disturbs the machine disturbs all of them alike.

In each round every callable runs once on the same request, starting with another one each time. A candidate's speed is then
the median over rounds of its time over the baseline's *in that round*, with a distribution-free interval (order statistics).

Who runs after another finds its weights gone from the caches and its threads asleep: an INT8 encoder of 0.7 ms took 1.3 ms
just after its FP32 model, on one thread, and was back at 0.7 ms when it had run for 5 ms. A server that is busy with one model
does not see that. So each may run untimed before it is timed, until it has settled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from quant.core.documents import Document

Times = npt.NDArray[np.float64]
_PERCENTS = tuple(range(0, 101, 5))
_LONG = 10
"""A run of that many times the settling time needs none: what it finds amiss at its start is lost in it."""


class Latency(Document):
    """The time of one run, over all requests.

    Args:
        requests: Timed runs.
        batch_size: Items in one run.
        p50_ms: Median.
        p90_ms: 90th percentile.
        p99_ms: 99th percentile (of few requests, close to the slowest).
        mean_ms: Mean.
        throughput_per_s: Items per second at the mean time.
        ratio: Median of this time over the baseline's in the same round; below 1 is faster.
        ratio_lower: Lower end of the interval of `ratio`.
        ratio_upper: Upper end.
        confidence: Confidence of the interval, at least; less with fewer than six requests.
        quantiles_ms: Times that 0 %, 5 %, ... 100 % of requests stay below.
    """

    requests: int
    batch_size: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    mean_ms: float
    throughput_per_s: float
    ratio: float
    ratio_lower: float
    ratio_upper: float
    confidence: float
    quantiles_ms: tuple[float, ...] = ()


def measure(
    runs: Mapping[str, Callable[[int], None]],
    *,
    requests: int,
    warmup: int,
    baseline: str | None = None,
    batch_size: int = 1,
    confidence: float = 0.95,
    settle_ms: float = 0.0,
) -> dict[str, Latency]:
    """The latency of each callable.

    Args:
        runs: Name -> a callable that runs request number i (0, 1, ...; warm-up takes the same numbers).
        requests: Timed rounds, at least 1.
        warmup: Rounds before them that are not timed.
        baseline: What ratios are to; the first of `runs` when not given.
        batch_size: Items in one request, for the throughput.
        confidence: Of the interval of the ratio.
        settle_ms: Milliseconds that a callable runs its request, untimed, before each timed run of it.
    """
    times = time_in_turns(runs, requests=requests, warmup=warmup, settle_ms=settle_ms)
    base = times[next(iter(runs)) if baseline is None else baseline]
    return {name: summarize(taken, base, batch_size=batch_size, confidence=confidence) for name, taken in times.items()}


def time_in_turns(runs: Mapping[str, Callable[[int], None]], *, requests: int, warmup: int, settle_ms: float = 0.0) -> dict[str, Times]:
    """Milliseconds of each callable in each round, `[requests]`; before each it runs untimed for `settle_ms` (one whole run at least), unless 0."""
    names = list(runs)
    times = {name: np.zeros(requests) for name in names}
    for turn in range(-warmup, requests):
        request = turn % requests
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            run = runs[name]
            if turn >= 0 and settle_ms and times[name][turn - 1] < _LONG * settle_ms:
                _settle(run, request, settle_ms)
            start = time.perf_counter_ns()
            run(request)
            taken = time.perf_counter_ns() - start
            if turn >= 0:
                times[name][turn] = taken / 1e6
    return times


def _settle(run: Callable[[int], None], request: int, settle_ms: float) -> None:
    end = time.perf_counter_ns() + settle_ms * 1e6
    run(request)
    while time.perf_counter_ns() < end:
        run(request)


def summarize(times: Times, baseline: Times, *, batch_size: int = 1, confidence: float = 0.95) -> Latency:
    """The latency document of milliseconds `[requests]`, against the baseline's in the same rounds.

    Example:
        >>> found = summarize(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]), batch_size=4)
        >>> found.p50_ms, found.ratio, found.throughput_per_s
        (2.0, 0.5, 2000.0)
    """
    # A clock may not have ticked during an empty run.
    times, baseline = np.maximum(times, 1e-6), np.maximum(baseline, 1e-6)
    p50, p90, p99 = (float(v) for v in np.percentile(times, (50, 90, 99)))
    mean = float(times.mean())
    lower, upper, reached = median_interval(times / baseline, confidence)
    return Latency(
        requests=len(times),
        batch_size=batch_size,
        p50_ms=p50,
        p90_ms=p90,
        p99_ms=p99,
        mean_ms=mean,
        throughput_per_s=1000 * batch_size / mean,
        ratio=float(np.median(times / baseline)),
        ratio_lower=lower,
        ratio_upper=upper,
        confidence=reached,
        quantiles_ms=tuple(float(v) for v in np.percentile(times, _PERCENTS)),
    )


def median_interval(values: Sequence[float] | Times, confidence: float) -> tuple[float, float, float]:
    """The narrowest symmetric pair of order statistics that holds the median with at least `confidence`, and what it reaches.

    With too few values for `confidence` it is their whole range, and what is reached is less.

    Example:
        >>> low, high, reached = median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 0.95)
        >>> low, high, round(reached, 5)  # misses when all six fall on one side: 2 / 2**6
        (1.0, 6.0, 0.96875)
    """
    from scipy.special import bdtr  # noqa: PLC0415 - keeps `import evaluators` light

    ordered, n = np.sort(np.asarray(values, dtype=np.float64)), len(values)
    depth = 0
    while depth + 1 <= (n - 1) // 2 and 1 - 2 * float(bdtr(depth + 1, n, 0.5)) >= confidence:
        depth += 1
    return float(ordered[depth]), float(ordered[n - 1 - depth]), max(1 - 2 * float(bdtr(depth, n, 0.5)), 0.0)
