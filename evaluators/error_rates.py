"""Error rates of read text: characters (`cer`) and words (`wer`), and the share of lines without any error (`exact-match`)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from evaluators import METRICS
from evaluators.examples import Example
from evaluators.outputs import Floats, Outputs, check_text
from evaluators.text import TextOptions, edit_distance, normalized, read_text
from evaluators.weights import weighted_mean, weighted_sum
from quant.core.protocols import Direction, Records
from quant.errors import DataError


class _Text:
    """What text metrics have in common."""

    Options: ClassVar[type[TextOptions]] = TextOptions

    def __init__(self, options: TextOptions) -> None:
        self.options = options

    @classmethod
    def example(cls) -> Example:
        """CTC scores of six different lines."""
        lines = ["cab", "a bad cab", "bb", "abcd dab", "d", "da d a"]
        return {"alphabet": "abcd "}, [({"scores": _scores(line)},) for line in lines], lines

    def check_label(self, label: object) -> None:
        """Accept a text."""
        check_text(label)

    def read(self, outputs: Outputs, label: str) -> tuple[str | None, str]:
        """The text that was read (None: the scores are NaN) and the one that should have been, both normalized."""
        found = read_text(outputs, self.options)
        return None if found is None else normalized(found, self.options), normalized(label, self.options)


class _ErrorRate(_Text):
    """Edits over reference length, both summed over all samples; records are `[edits, length]`."""

    direction: ClassVar[Direction] = "lower"
    unit: ClassVar[str] = "rate"
    proportion: ClassVar[bool] = False

    def split(self, text: str) -> list[str]:
        """The pieces that are counted."""
        return list(text)

    def record(self, outputs: Outputs, label: Any) -> Records:
        """One row: edits, and the length of the reference."""
        found, wanted = self.read(outputs, label)
        pieces = self.split(wanted)
        return np.array([[np.nan if found is None else edit_distance(self.split(found), pieces), len(pieces)]], dtype=np.float64)

    def value(self, records: Records) -> float:
        """Edits per piece of reference.

        Raises:
            DataError: All references are empty.
        """
        length = float(records[:, 1].sum())
        if length == 0:
            raise DataError(f"the references of all {len(records)} samples are empty")
        return float(records[:, 0].sum()) / length

    def weighted(self, records: Records, weights: Floats) -> Floats:
        """`value` under row weights; NaN where no reference has weight."""
        edits, length = (weighted_sum(column, weights) for column in records.T)
        return np.where(length > 0, edits / np.where(length > 0, length, 1), np.nan)


@METRICS.add
class CharacterErrorRate(_ErrorRate):
    """Character error rate: edits over characters of the reference."""

    kind: ClassVar[str] = "cer"


@METRICS.add
class WordErrorRate(_ErrorRate):
    """Word error rate: edits over words of the reference."""

    kind: ClassVar[str] = "wer"

    def split(self, text: str) -> list[str]:
        """The words."""
        return text.split()


@METRICS.add
class ExactMatch(_Text):
    """The share of samples whose text is read without an error; records are `[exact]`."""

    kind: ClassVar[str] = "exact-match"
    direction: ClassVar[Direction] = "higher"
    unit: ClassVar[str] = "share"
    proportion: ClassVar[bool] = True

    def record(self, outputs: Outputs, label: Any) -> Records:
        """One row: 1 when the texts are equal, else 0."""
        found, wanted = self.read(outputs, label)
        return np.array([[np.nan if found is None else float(found == wanted)]])

    def value(self, records: Records) -> float:
        """The share."""
        return float(records[:, 0].mean())

    def weighted(self, records: Records, weights: Floats) -> Floats:
        """`value` under row weights."""
        return weighted_mean(records[:, 0], weights)


def _scores(line: str) -> Floats:
    """Scores that read `line`: each symbol twice, then a blank."""
    steps = [step for symbol in line for step in ("abcd ".index(symbol) + 1,) * 2 + (0,)]
    return np.asarray(np.eye(6)[steps])
