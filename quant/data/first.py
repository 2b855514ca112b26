"""The first samples of a role."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from quant.data.samples import Sample, Samples


@dataclass(frozen=True)
class FirstSamples:
    """The first `most` of `samples`, padded as all of them are.

    Args:
        samples: The samples of a role.
        most: How many of them, at most.
    """

    samples: Samples
    most: int

    @property
    def role(self) -> str:
        """The role of all."""
        return self.samples.role

    @property
    def digest(self) -> str:
        """The digest of all."""
        return self.samples.digest

    @property
    def pad_values(self) -> Mapping[str, int | float]:
        """Input -> what it is padded with in a batch."""
        return getattr(self.samples, "pad_values", {})

    def __len__(self) -> int:
        return min(self.most, len(self.samples))

    def __getitem__(self, position: int, /) -> Sample:
        return self.samples[position]

    def __iter__(self) -> Iterator[Sample]:
        return islice(iter(self.samples), self.most)
