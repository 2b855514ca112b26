"""Training samples in steps: shuffled by epoch, the same for the same seed, in batches of equal shapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from quant.data.batches import Batch, batches
from quant.data.samples import Sample, Samples
from quant.twin.training.material import Material

PARTS = 4
"""Parts that a step is cut into, each computed by itself: what comes out depends on them, and so they do not depend on the machine."""
_LEAST_ROWS = 4


@dataclass(frozen=True)
class Part:
    """Feeds that are computed together, and their labels.

    Args:
        batch: The feeds.
        labels: Label of each of its owners; None where there is none.
    """

    batch: Batch
    labels: tuple[Any, ...]

    @property
    def feed(self) -> dict[str, npt.NDArray[Any]]:
        """What goes into the model."""
        return self.batch.feed

    @property
    def rows(self) -> int:
        """Rows that count; those that fill a fixed batch do not."""
        return len(self.batch.owners)


class Shuffled:
    """Samples in another order.

    Args:
        samples: The samples.
    """

    def __init__(self, samples: Samples) -> None:
        self._samples = samples
        self._order = list(range(len(samples)))

    @property
    def role(self) -> str:
        """As that of the samples."""
        return self._samples.role

    @property
    def digest(self) -> str:
        """As that of the samples."""
        return self._samples.digest

    @cached_property
    def pad_values(self) -> dict[str, int | float]:
        """Inputs that are filled up to the longest of a batch, and with what."""
        return dict(getattr(self._samples, "pad_values", {}))

    def shuffle(self, seed: int, epoch: int) -> None:
        """Put the samples into the order of this epoch."""
        self._order = np.random.default_rng([seed, epoch]).permutation(len(self._samples)).tolist()

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, position: int, /) -> Sample:
        return self._samples[self._order[position]]

    def __iter__(self) -> Iterator[Sample]:
        return (self[position] for position in range(len(self)))


def parts_of(material: Material, samples: Samples, rows: int) -> Iterator[Part]:
    """The feeds of `samples` in parts of at most `rows`, with their labels.

    Raises:
        DataError: A feed does not fit the model, or holds NaN or infinity; the message names the sample.
    """
    for batch in batches(samples, material.signature.inputs, batch_size=rows, batch_axes=material.batch_axes):
        yield Part(batch, tuple(samples[position].label for position, _ in batch.owners))


def steps_of(material: Material, samples: Samples, batch_size: int) -> Iterator[list[Part]]:
    """The parts of each step: together at least `batch_size` rows, but for the last step."""
    step: list[Part] = []
    for part in parts_of(material, samples, rows_of_part(batch_size)):
        step.append(part)
        if sum(p.rows for p in step) >= batch_size:
            yield step
            step = []
    if step:
        yield step


def rows_of_part(batch_size: int) -> int:
    """Rows of a part, at most.

    Example:
        >>> rows_of_part(64), rows_of_part(8), rows_of_part(1)
        (16, 4, 4)
    """
    return max(_LEAST_ROWS, -(-batch_size // PARTS))
