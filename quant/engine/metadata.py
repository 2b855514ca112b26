"""What metrics take from the model itself: the alphabet of a recognizer, kept in the metadata of its ONNX file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaluators.text import FROM_METADATA, TextOptions
from quant.core.registry import did_you_mean
from quant.engine.bind import Bound
from quant.errors import ModelError
from quant.graph.model import read_model


def with_metadata(bound: Bound, path: Path) -> Bound:
    """The recipe with metrics that know what they were to take from the metadata of the model in `path`.

    Raises:
        ModelError: The model has no such metadata.
    """
    waiting = {title for title, metric in bound.metrics.items() if _waits(metric)}
    if not waiting:
        return bound
    found = read_model(path).metadata_props
    made = {title: _completed(bound, title, metric, found) if title in waiting else metric for title, metric in bound.metrics.items()}
    return replace(bound, metrics=made)


def _waits(metric: Any) -> bool:
    options = getattr(metric, "options", None)
    return isinstance(options, TextOptions) and options.alphabet == FROM_METADATA


def _completed(bound: Bound, title: str, metric: Any, metadata: Mapping[str, str]) -> Any:
    key = metric.options.metadata_key
    text = metadata.get(key)
    if not text:
        number = list(bound.metrics).index(title)
        known = did_you_mean(key, tuple(metadata)) if metadata else "it has none at all"
        hint = f"{known}; or write the symbols in the recipe, as `alphabet`"
        raise ModelError(f"metric {title}: the model's metadata have no {key!r}", where=bound.loaded.where(("evaluation", "metrics", number)), hint=hint)
    return type(metric)(metric.options.model_copy(update={"alphabet": text}))
