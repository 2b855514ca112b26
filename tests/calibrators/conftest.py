"""Values with the shapes that tensors of real networks have."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import erf

COUNT = 1 << 17


def layernorm(r):
    values = r.normal(size=(COUNT // 256, 256)) * np.exp(r.normal(size=256))
    values[:, 7] += 30
    values[:, 9] -= 15
    return values


def softmax(r):
    raw = np.exp(3 * r.normal(size=(COUNT // 128, 128)))
    return raw / raw.sum(axis=1, keepdims=True)


def gelu(r):
    x = r.normal(size=COUNT)
    return x * (1 + erf(x / np.sqrt(2))) / 2


SHAPES: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "gaussian": lambda r: r.normal(size=COUNT),
    "softmax": softmax,
    "gelu": gelu,
    "relu": lambda r: np.maximum(r.normal(size=COUNT), 0),
    "relu6": lambda r: np.clip(3 + 3 * r.normal(size=COUNT), 0, 6),
    "student t": lambda r: r.standard_t(3, COUNT),
    "laplace": lambda r: r.laplace(size=COUNT),
    "log-normal": lambda r: np.exp(3 * r.normal(size=COUNT)),
    "layer norm": layernorm,
    "outliers": lambda r: r.normal(size=COUNT) * np.where(np.arange(COUNT) < 2000, 1e2, 1),
    "pixels": lambda r: (r.integers(0, 256, COUNT) / 255 - 0.485) / 0.229,
    "tanh": lambda r: np.tanh(2 * r.normal(size=COUNT)),
    "negative": lambda r: -r.gamma(2.0, size=COUNT),
}


@pytest.fixture(params=SHAPES)
def values(request):
    """float32 values of one shape."""
    return SHAPES[request.param](np.random.default_rng(20)).astype(np.float32)
