"""Span: some neighbours among the samples of a role, as samples of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from quant.data.samples import Sample, Samples


@dataclass(frozen=True)
class Span:
    """The samples from `start` up to, and without, `end`; positions in it count from 0.

    Args:
        samples: All of the role.
        start: Position of the first.
        end: Position behind the last.
    """

    samples: Samples
    start: int
    end: int

    @property
    def role(self) -> str:
        """That of all."""
        return self.samples.role

    @property
    def digest(self) -> str:
        """That of all."""
        return self.samples.digest

    @property
    def pad_values(self) -> Mapping[str, int | float]:
        """Input -> what fills it up in a batch of feeds that differ in length."""
        found: Mapping[str, int | float] = getattr(self.samples, "pad_values", {})
        return found

    def __len__(self) -> int:
        return self.end - self.start

    def __getitem__(self, position: int, /) -> Sample:
        return self.samples[self.start + position]

    def __iter__(self) -> Iterator[Sample]:
        return (self[position] for position in range(len(self)))
