"""The labelled recordings of `voice-activity.yaml`: sounds, and for each frame whether someone is speaking."""

from __future__ import annotations

import json
import wave
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from quant.data.record import FILE, Blob
from quant.data.sources import fetch
from quant.errors import DataError
from quant.recipe.schema import Source

_NO_SPEECH = ("<", "[", "+")  # how aligners write silence (<sil>) and noises ([NOISE], ++BREATH++)


def recordings(source: str, *, file: str | None = None, sha256: str | None = None, frame: int = 512) -> list[dict[str, Any]]:
    """One row a recording, `NAME.wav` with `NAME.json` beside it: the columns `audio`, `file` and `speech`.

    `speech` is 1 for a frame whose middle lies inside a spoken word, else 0; an incomplete frame at the end has no label.
    The JSON is that of `pocketsphinx align`: `{"w": [{"b": begin in seconds, "d": duration in seconds, "t": word}]}`.

    Args:
        source: A package or another source, as in a recipe; a path starts at the current folder.
        file: Folder inside the source.
        sha256: SHA-256 that the folder must have.
        frame: Samples in a frame.

    Raises:
        DataError: There are no recordings, or one has no alignment.
    """
    folder = fetch(Source(source=source, file=file, sha256=sha256), base=Path.cwd(), where="recordings")
    sounds = sorted(folder.glob("*.wav"))
    if not sounds:
        raise DataError("no *.wav in this folder", where=str(folder), hint="each NAME.wav has its words in NAME.json")
    return [{"audio": Blob(sound), FILE: sound.name, "speech": _speech(sound, frame)} for sound in sounds]


def _speech(sound: Path, frame: int) -> npt.NDArray[np.int64]:
    words = _words(sound.with_suffix(".json"))
    with wave.open(str(sound)) as opened:
        rate, count = opened.getframerate(), opened.getnframes() // frame
    middles = np.arange(count) * frame + frame // 2  # whole samples: seconds such as 0.05 + 0.1 are not exact
    speech = np.zeros(count, np.int64)
    for word in words:
        if not str(word["t"]).startswith(_NO_SPEECH):
            begin, end = round(word["b"] * rate), round((word["b"] + word["d"]) * rate)
            speech[(middles >= begin) & (middles < end)] = 1
    return speech


def _words(path: Path) -> list[Mapping[str, Any]]:
    try:
        found: list[Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["w"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError("no alignment of words", where=str(path), hint="each NAME.wav has its words in NAME.json, as `pocketsphinx align` writes it") from error
    return found
