"""From what a processor makes to what a model takes: names settled, spare inputs left out, types that may change changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quant.core.signature import Signature, TensorSpec
from quant.data.processors import Traits
from quant.data.record import ONLY_INPUT
from quant.data.samples import Feed


@dataclass(frozen=True)
class Adaptation:
    """How feeds are changed on their way into a model.

    Args:
        names: The processor's name -> the model's; None: left out. Other names stay.
        dtypes: The model's name -> the type that its array is converted to.
    """

    names: Mapping[str, str | None] = field(default_factory=dict)
    dtypes: Mapping[str, np.dtype[Any]] = field(default_factory=dict)

    def apply(self, feed: Feed) -> Feed:
        """`feed` as the model takes it."""
        if not self.names and not self.dtypes:
            return feed
        named = {new: array for name, array in feed.items() if (new := self.names.get(name, name)) is not None}
        return {name: array.astype(self.dtypes[name], copy=False) if name in self.dtypes else array for name, array in named.items()}


def data_inputs(signature: Signature, state_inputs: Collection[str]) -> tuple[TensorSpec, ...]:
    """The inputs that data must feed: all but those that a state feeds."""
    return tuple(spec for spec in signature.inputs if spec.name not in state_inputs)


def adaptation(feed: Feed, inputs: Collection[TensorSpec], traits: Traits) -> Adaptation:
    """How feeds like `feed` are brought to a model with these data inputs. What cannot be settled is left for the checks."""
    taken = {spec.name: spec for spec in inputs}
    names: dict[str, str | None] = {name: None for name in feed if name in traits.optional and name not in taken}
    if ONLY_INPUT in feed and len(taken) == 1:
        names[ONLY_INPUT] = next(iter(taken))
    dtypes = {}
    for name, array in feed.items():
        spec = taken.get(names.get(name, name) or "")
        wanted = numpy_dtype(spec.dtype) if spec else None
        if spec is not None and wanted is not None and array.dtype != wanted and traits.may_cast(array.dtype, wanted):
            dtypes[spec.name] = wanted
    return Adaptation(names, dtypes)


def numpy_dtype(name: str) -> np.dtype[Any] | None:
    """The NumPy type called `name`; None when NumPy has none (`bfloat16`)."""
    try:
        return np.dtype(name)
    except TypeError:
        return None
