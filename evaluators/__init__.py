"""Measures on predictions, outputs and engines, and the paired gate.

One metric a file, found by walking the package: a metric registers itself in `METRICS` and is tested by the conformance
suite unasked. What is no metric stands beside them: `gate` (the verdict), `matched` and `bootstrap` (its two methods),
`fidelity` (closeness without labels), `latency` and `memory`.
"""

from __future__ import annotations

from quant.core.protocols import Metric
from quant.core.registry import Registry

METRICS: Registry[Metric] = Registry("metric", "evaluators")
"""All metrics, by the `kind` that a recipe writes."""
