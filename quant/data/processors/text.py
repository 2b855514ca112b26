"""Texts to token ids, with a `tokenizer.json`."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from quant.core import registry
from quant.core.digest import digest_of
from quant.data.processors import PROCESSORS, Setting, Traits, shorten
from quant.data.record import Record, content_of, is_missing
from quant.data.samples import Feed
from quant.data.tokenizer import load_tokenizer
from quant.errors import DataError
from quant.recipe.schema import Source

InputName = Literal["input_ids", "attention_mask", "token_type_ids"]
_NAMES: tuple[InputName, ...] = ("input_ids", "attention_mask", "token_type_ids")


@PROCESSORS.add
class Text:
    """Tokenizes a column, or several: then each is one feed (a pair of texts whose embeddings are compared).

    The ids are int64 and become int32 where the model takes that. `token_type_ids`, and without padding `attention_mask`, are
    left out where the model does not take them.
    """

    kind: ClassVar[str] = "text"

    class Options(registry.Options):
        """How texts become ids.

        Args:
            column: The column of the text; several give one feed each.
            second: A second text of the same feed (for a cross-encoder).
            tokenizer: A `tokenizer.json`, or a GGUF file that holds one; that of the model when not given.
            max_length: Longer texts are cut to so many tokens (special tokens included); by the tokenizer's own rule when not given.
            padding: `none`; `longest` of a batch; or `max_length`.
            inputs: Names of what is made. A mapping gives the model's names for them.
        """

        column: str | tuple[str, ...] = "text"
        second: str | None = None
        tokenizer: str | Source | None = None
        max_length: int | None = None
        padding: Literal["none", "longest", "max_length"] = "none"
        inputs: tuple[InputName, ...] | dict[InputName, str] = _NAMES

    def __init__(self, options: Options) -> None:
        self.options = options
        self._first = (options.column,) if isinstance(options.column, str) else options.column
        names = options.inputs
        self._names: dict[InputName, str] = dict(names) if isinstance(names, dict) else {name: name for name in names}
        self._tokenizer: Any = None
        self._file_digest = ""
        self._pad: dict[str, int] = {}

    def open(self, setting: Setting) -> None:
        """Load the tokenizer."""
        setting.need(self.columns)
        if self.options.padding == "max_length" and self.options.max_length is None:
            raise DataError("padding to max_length needs a max_length", where=setting.where)
        if self.options.max_length is not None and self.options.max_length < 1:
            raise DataError(f"max_length is {self.options.max_length}", where=setting.where, hint="at least 1")
        tokenizer, self._file_digest = load_tokenizer(self.options.tokenizer, setting)
        self._pad = _pad_values(tokenizer)
        tokenizer.no_padding()
        if self.options.max_length is not None:
            tokenizer.enable_truncation(self.options.max_length)
        self._tokenizer = tokenizer

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of texts."""
        return self._first if self.options.second is None else (*self._first, self.options.second)

    @property
    def traits(self) -> Traits:
        """Mask and types are optional; ids fit any integer type; `padding: longest` fills up in the batch."""
        pads = {self._names[name]: value for name, value in self._pad.items() if name in self._names} if self.options.padding == "longest" else {}
        # A model that fills up but takes no mask would read the filling as text: then the mask is not silently left out.
        kept = {"input_ids"} if self.options.padding == "none" else {"input_ids", "attention_mask"}
        optional = frozenset(name for key, name in self._names.items() if key not in kept)
        return Traits(pad_values=pads, optional=optional, integers_fit=True)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over the options and the tokenizer's file."""
        options = self.options.model_dump(mode="json", exclude={"tokenizer"})
        return digest_of([self.kind, options, self._file_digest])

    def feeds(self, record: Record) -> tuple[Feed, ...]:
        """One feed for each column: int64 `[tokens]` arrays."""
        return tuple(self._feed(record, column) for column in self._first)

    def _feed(self, record: Record, column: str) -> Feed:
        second = () if self.options.second is None else (_text(record, self.options.second),)
        # One text at a time: only the batch call of the library starts threads.
        encoded = self._tokenizer.encode(_text(record, column), *second)
        made = {"input_ids": encoded.ids, "attention_mask": encoded.attention_mask, "token_type_ids": encoded.type_ids}
        if not encoded.ids:
            raise DataError(f"{column!r} gives no token", where=record.place, hint="leave such rows out with `data.where`")
        length = self.options.max_length if self.options.padding == "max_length" else None
        return {name: _filled(made[key], length, self._pad[key]) for key, name in self._names.items()}

    def content(self, record: Record) -> bytes:
        """SHA-256 over the texts."""
        return content_of(record, self.columns)

    def display(self, record: Record) -> str:
        """The text, shortened."""
        return shorten(" | ".join(str(record.value(column)) for column in self.columns))


def _text(record: Record, column: str) -> str:
    value = record.value(column)
    if is_missing(value):
        raise DataError(f"{column!r} is empty", where=record.place, hint="leave such rows out with `data.where`")
    return str(value)


def _filled(values: list[int], length: int | None, pad: int) -> np.ndarray[Any, Any]:
    return np.asarray(values + [pad] * ((length or 0) - len(values)), np.int64)


def _pad_values(tokenizer: Any) -> dict[str, int]:
    """What fills up a text: by the tokenizer's own rule, else its usual padding token, else 0 (under the mask anyway)."""
    rule = tokenizer.padding or {}
    known = [found for token in ("[PAD]", "<pad>", "<|endoftext|>") if (found := tokenizer.token_to_id(token)) is not None]
    return {"input_ids": rule.get("pad_id", known[0] if known else 0), "attention_mask": 0, "token_type_ids": rule.get("pad_type_id", 0)}
