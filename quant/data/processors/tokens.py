"""Long texts to windows of tokens, for language models: the next token is the label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from quant.core import registry
from quant.core.digest import digest_of
from quant.core.progress import tracked
from quant.data.processors import PROCESSORS, Setting, Traits, shorten
from quant.data.record import Record, Rows, content_of, is_missing
from quant.data.samples import Feed
from quant.data.tokenizer import load_tokenizer
from quant.errors import DataError
from quant.recipe.schema import Source

IDS, NEXT = "token_ids", "next_token"
"""Columns of a window: what the model reads, and what it is to foretell at each step."""


@PROCESSORS.add
class Tokens:
    """Cuts the text of each row into windows of so many tokens; a window is a sample, and its label the next token of each step.

    Windows follow one another without a gap, so that every token but the first of a text is foretold once. What is left at the end of a text
    is dropped, unless it is as long as `shortest`. A window does not depend on other rows, nor on their order.

    The ids are int64 and become int32 where the model takes that. `attention_mask` (ones) and `position_ids` (0, 1, 2, ...) are left out
    where the model does not take them.
    """

    kind: ClassVar[str] = "tokens"

    class Options(registry.Options):
        """How texts become windows.

        Args:
            column: The column of the text.
            length: Tokens that the model reads in a window.
            shortest: The rest of a text is kept as a shorter window when it has at least so many; only whole windows when not given.
            start: A token that every window begins with (`<s>`, say), for a model that was trained so; it takes the place of one token.
            tokenizer: A `tokenizer.json`, or a GGUF file that holds one; that of the model when not given.
            input: Name of the model's input.
        """

        column: str = "text"
        length: int = Field(512, ge=2)
        shortest: int | None = Field(None, ge=1)
        start: str | None = None
        tokenizer: str | Source | None = None
        input: str = "input_ids"

    def __init__(self, options: Options) -> None:
        self.options = options
        self._tokenizer: Any = None
        self._file_digest = ""
        self._start: tuple[int, ...] = ()

    def open(self, setting: Setting) -> None:
        """Load the tokenizer."""
        setting.need(self.columns)
        if self._least > self.options.length:
            raise DataError(f"shortest is {self._least}, more than length ({self.options.length})", where=setting.where)
        tokenizer, self._file_digest = load_tokenizer(self.options.tokenizer, setting)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        if self.options.start is not None:
            found = tokenizer.token_to_id(self.options.start)
            if found is None:
                raise DataError(f"the tokenizer has no token {self.options.start!r}", where=setting.where, hint="leave `start` out, or name one that it has")
            self._start = (int(found),)

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of the text."""
        return (self.options.column,)

    @property
    def traits(self) -> Traits:
        """Mask and positions are optional; ids fit any integer type; the label is the next token."""
        return Traits(optional=frozenset({"attention_mask", "position_ids"}), integers_fit=True, label_column=NEXT)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over the options and the tokenizer's file."""
        return digest_of([self.kind, self.options.model_dump(mode="json", exclude={"tokenizer"}), self._file_digest])

    def cut(self, rows: Rows) -> Rows:
        """The windows of all texts, in their order.

        Raises:
            DataError: Not one text is as long as a window.
        """
        pieces: list[_Piece] = []
        longest = 0
        for number in tracked(range(len(rows)), f"tokens of {rows.name}"):
            ids = self._ids(rows[number])
            longest = max(longest, len(ids))
            pieces += [_Piece(number, window, after) for window, after in self._windows(ids)]
        if not pieces:
            least = self._least + 1 - len(self._start)
            what = f"no text of {rows.name} is long enough: a window takes {least} tokens, and the longest text has {longest}"
            raise DataError(what, hint="set a smaller `length`, or `shortest`")

        def get(index: int) -> Mapping[str, Any]:
            piece = pieces[index]
            return {**rows.get(piece.row), IDS: piece.ids, NEXT: piece.after}

        return Rows(f"windows of {rows.name},", (*rows.columns, IDS, NEXT), len(pieces), get, rows.folder)

    @property
    def _least(self) -> int:
        """Tokens of the shortest window."""
        return self.options.shortest or self.options.length

    def _ids(self, record: Record) -> npt.NDArray[np.int64]:
        value = record.value(self.options.column)
        text = "" if is_missing(value) else str(value)
        return np.asarray(self._tokenizer.encode(text, add_special_tokens=False).ids, np.int64)

    def _windows(self, ids: npt.NDArray[np.int64]) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """(what is read, what comes next at each step) of every window."""
        whole = np.concatenate([np.asarray(self._start, np.int64), ids])
        found = []
        for start in range(0, len(whole) - 1, self.options.length):
            after = whole[start + 1 : start + 1 + self.options.length]
            if len(after) < self._least:
                break
            read = whole[start : start + len(after)].copy()
            read[: len(self._start)] = self._start
            found.append((read, after))
        return found

    def feeds(self, record: Record) -> tuple[Feed, ...]:
        """One feed of int64 `[tokens]` arrays."""
        ids = np.asarray(record.value(IDS), np.int64)
        return ({self.options.input: ids, "attention_mask": np.ones_like(ids), "position_ids": np.arange(len(ids))},)

    def content(self, record: Record) -> bytes:
        """SHA-256 over the tokens that are read."""
        return content_of(record, (IDS,))

    def display(self, record: Record) -> str:
        """The text of the window, shortened."""
        return shorten(self._tokenizer.decode(record.value(IDS).tolist()))


@dataclass(frozen=True)
class _Piece:
    """A window: the row that it is from, `[tokens]` ids, and `[tokens]` ids that come next."""

    row: int
    ids: npt.NDArray[np.int64]
    after: npt.NDArray[np.int64]
