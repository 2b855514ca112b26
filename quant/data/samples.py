"""Samples: what a model is fed, one at a time.

A sample is made of one or more *feeds*, each of which is one run of the model: one for most data, two for a pair of texts
whose embeddings are compared, T for a sequence that a stateful model reads step by step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Feed = Mapping[str, Array]
"""Input name -> array *without* the batch axis (for inputs that have one)."""


@dataclass(frozen=True)
class Sample:
    """One sample.

    Args:
        index: Its position in the source, for messages.
        feeds: One or more feeds.
        label: A class (int), a number, a text, an array `[len(feeds), ...]` for sequences, or None.
    """

    index: int
    feeds: tuple[Feed, ...]
    label: int | float | str | npt.NDArray[np.generic] | None = None


class Samples(Protocol):
    """The samples of one role: made when they are asked for, the same each time."""

    @property
    def role(self) -> str:
        """`train`, `calibration`, `search` or `evaluation`."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over the content of the samples and over how they are processed."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, position: int, /) -> Sample: ...

    def __iter__(self) -> Iterator[Sample]: ...
