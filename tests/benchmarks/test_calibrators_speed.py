"""How long a range takes; prints one line a calibrator and shape, and holds each to 3 ms a tensor."""

from __future__ import annotations

import time

import numpy as np
import pytest
from scipy.special import erf

from calibrators import CALIBRATORS
from quant.core.formats import GRIDS
from quant.core.statistics import TensorStatistics

pytestmark = pytest.mark.benchmark

COUNT = 1 << 20
LIMIT_MS = 3.0


def shapes():
    r = np.random.default_rng(0)
    normal = r.normal(size=COUNT)
    logits = np.exp(3 * r.normal(size=(COUNT // 128, 128)))
    return {
        "gaussian": normal,
        "softmax": logits / logits.sum(axis=1, keepdims=True),
        "gelu": normal * (1 + erf(normal / np.sqrt(2))) / 2,
        "student t": r.standard_t(3, COUNT),
        "log-normal": np.exp(3 * normal),
    }


@pytest.mark.parametrize("grid", GRIDS.values(), ids=lambda g: g.name)
@pytest.mark.parametrize("kind", CALIBRATORS.kinds())
def test_a_range_takes_at_most_three_milliseconds(kind, grid):
    calibrator = CALIBRATORS.make(kind)
    for name, values in shapes().items():
        seen = TensorStatistics.of(values.astype(np.float32))
        taken = []
        for _ in range(9):  # fresh statistics each time, so that the cached bins are paid for
            fresh = TensorStatistics(seen.count, seen.minimum, seen.maximum, seen.codes, seen.counts)
            start = time.perf_counter()
            calibrator.range(fresh, grid)
            taken.append(1e3 * (time.perf_counter() - start))
        print(f"{kind:11} {grid.name:6} {name:11} {seen.codes.size:6} bins  median {sorted(taken)[4]:5.2f} ms")
        assert min(taken) <= LIMIT_MS
