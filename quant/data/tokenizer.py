"""Tokenizers: out of a `tokenizer.json`, or out of a GGUF file, which holds its own."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

from quant.core.digest import digest_of_file
from quant.core.quiet import quiet
from quant.data.processors import Setting
from quant.errors import DataError
from quant.recipe.schema import Source

GGUF = ".gguf"


def load_tokenizer(given: str | Source | None, setting: Setting) -> tuple[Any, str]:
    """The tokenizer (of the `tokenizers` library), and the SHA-256 (hex) of the file that it is from.

    Args:
        given: What the recipe says of it; that of the model when None.
        setting: Where the model is.

    Raises:
        DataError: There is none, or it cannot be read.
    """
    path = _path(given, setting)
    if path.suffix == GGUF:
        return _of_gguf(path), digest_of_file(path)
    from tokenizers import Tokenizer  # noqa: PLC0415 - `import quant` stays light

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the tokenizer: {error}", where=setting.where) from error
    try:
        return Tokenizer.from_str(text), digest_of_file(path)
    except Exception as error:  # the library raises bare Exception for every malformed file
        raise DataError(f"not a tokenizer: {str(error)[:200]}", where=str(path)) from error


def _path(given: str | Source | None, setting: Setting) -> Path:
    from quant.data import sources  # noqa: PLC0415 - `import quant.data` stays light

    if given is not None:
        found = sources.fetch(Source(source=given) if isinstance(given, str) else given, base=setting.base, where=setting.where)
        return found / "tokenizer.json" if found.is_dir() else found
    model = setting.model_folder
    if model is None:
        raise DataError("no tokenizer is given, and the model is no folder that holds one", where=setting.where, hint="set `tokenizer:` to a tokenizer.json")
    if model.suffix == GGUF and model.is_file():
        return model
    path = model / "tokenizer.json"
    if not path.is_file():
        hint = "set `tokenizer:` to a tokenizer.json; the `save_pretrained` of a fast tokenizer writes one"
        raise DataError(f"no tokenizer.json in the model's folder {model.name!r}", where=setting.where, hint=hint)
    return path


def _of_gguf(path: Path) -> Any:
    """The tokenizer that transformers makes of a GGUF file."""
    from tokenizers import Tokenizer  # noqa: PLC0415 - `import quant` stays light
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415 - heavy

    try:
        with quiet():
            found = PreTrainedTokenizerFast.from_pretrained(os.fspath(path.parent), gguf_file=path.name, local_files_only=True)
        return Tokenizer.from_str(found.backend_tokenizer.to_str())
    except ImportError as error:
        raise DataError("gguf is not installed", where=str(path), hint="install it again: pip install gguf") from error
    except (OSError, ValueError, KeyError, IndexError, RuntimeError, struct.error) as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(
            f"transformers cannot read the tokenizer in the GGUF file: {said}", where=str(path), hint="set `tokenizer:` to a tokenizer.json"
        ) from error
