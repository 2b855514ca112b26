"""Gates that cannot pass on as many samples as there are, said before any long work."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

from quant.core.protocols import Metric
from quant.data.slices import Members
from quant.engine.bind import Bound
from quant.report.words import count, drop, listed, plain

_BOUNDED = ("share", "rate", "correlation")
_SHOWN = 3


def too_few(bound: Bound, members: Mapping[str, Members], samples: int) -> tuple[str, ...]:
    """What should be said aloud of gates that no candidate can pass but one that is better than FP32.

    Among n samples that all agree, a share of 1 - alpha^(1/n) of all there are may still differ without one having been seen (the rule of
    three); of a metric that lives between 0 and 1 that is a drop that the gate cannot exclude. Metrics without such a scale, and limits that are shares of the
    baseline, are not known before the baseline is.

    Args:
        bound: The recipe, with a gate for each part of slices.
        members: Name of a part -> which samples are in it.
        samples: Number of evaluation samples.
    """
    found: dict[tuple[str, float, float], list[tuple[int, str]]] = {}
    for name, spec in bound.gates:
        part = spec.slices[0] if spec.slices else ""
        n = int(members[part].sum()) if part else samples
        if _has_a_scale(bound.metrics[name]) and not spec.relative and spec.max_drop > 0 and 1 - (1 - spec.confidence) ** (1 / n) > spec.max_drop:
            found.setdefault((name, spec.max_drop, spec.confidence), []).append((n, part))
    return tuple(_said(bound.metrics[name], name, limit, confidence, sorted(few)) for (name, limit, confidence), few in found.items())


def warn_of_too_few(bound: Bound, members: Mapping[str, Members], samples: int) -> None:
    """Log what `too_few` has to say."""
    for said in too_few(bound, members, samples):
        logging.getLogger("quant").warning(said)


def _has_a_scale(metric: Metric) -> bool:
    return metric.proportion or metric.unit in _BOUNDED


def _said(metric: Metric, name: str, limit: float, confidence: float, few: list[tuple[int, str]]) -> str:
    where = listed([f"{part} ({count(n, 'sample')})" if part else count(n, "sample") for n, part in few[:_SHOWN]])
    more = f" and {len(few) - _SHOWN} more" if len(few) > _SHOWN else ""
    open_to = drop(1 - (1 - confidence) ** (1 / few[0][0]), metric.unit, relative=False)
    least = math.ceil(math.log(1 - confidence) / math.log1p(-limit)) if limit < 1 else 1
    allowed = drop(limit, metric.unit, relative=False)
    return (
        f"the gate on {name} cannot pass on {where}{more} unless a candidate is better than FP32: even where all agree, a drop of {open_to} cannot be "
        f"excluded at {plain(100 * confidence)} % confidence; a limit of {allowed} takes at least {count(least, 'sample')}"
    )
