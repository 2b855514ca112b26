"""Small perfect predictions that metrics offer as their example (see `Metric.example`)."""

from __future__ import annotations

import numpy as np

from quant.core.protocols import MetricExample as Example

__all__ = ["Example", "classification", "numbers"]


def classification() -> Example:
    """Logits of three classes, the label's the highest."""
    labels = [i % 3 for i in range(18)]
    return {}, [({"logits": np.asarray(5 * np.eye(3)[label] + 0.01 * i, dtype=np.float32)},) for i, label in enumerate(labels)], labels


def numbers() -> Example:
    """One score a sample that equals the label."""
    labels = [0.5, -1.0, 2.0, 3.5, 0.0, 1.25, -2.5, 4.0, 5.5, -3.0]
    return {}, [({"score": np.array([label], dtype=np.float32)},) for label in labels], labels
