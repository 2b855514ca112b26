"""Sounds: WAV files to samples, whole or frame by frame."""

from __future__ import annotations

import io
import wave
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from quant.core import registry
from quant.core.digest import digest_of
from quant.data.processors import PROCESSORS, Setting, Traits
from quant.data.record import FILE, ONLY_INPUT, Blob, Record, content_of
from quant.data.samples import Feed
from quant.errors import DataError

_BYTES_OF_24_BIT = 3


@PROCESSORS.add
class Audio:
    """Decodes a WAV file (PCM of 8 to 32 bits) to float32 between -1 and 1; several channels become their mean.

    With `frame` the sound is cut into frames, each of which is one feed (for a model that hears step by step); `context`
    samples of what came before stand in front of each, zeros at the start. What is left at the end and fills no frame is
    dropped.
    """

    kind: ClassVar[str] = "audio"

    class Options(registry.Options):
        """How a sound becomes inputs.

        Args:
            column: The column of the sound.
            input: Name of the model's input; its only one when not given.
            rate: Samples a second that the sound must have; any when not given.
            frame: Samples of a frame; the whole sound is one feed when not given.
            context: Samples before each frame that are repeated in front of it.
            constants: Other inputs, the same for every feed: input -> integer (a rate, say), as an int64 scalar.
        """

        column: str = "audio"
        input: str | None = None
        rate: int | None = None
        frame: int | None = None
        context: int = 0
        constants: dict[str, int] = Field(default_factory=dict)

    def __init__(self, options: Options) -> None:
        self.options = options

    def open(self, setting: Setting) -> None:
        """Check the column and the sizes."""
        setting.need(self.columns)
        if (self.options.frame is not None and self.options.frame < 1) or self.options.context < 0:
            raise DataError(f"frame is {self.options.frame}, context {self.options.context}", where=setting.where, hint="a frame has at least 1 sample")

    @property
    def columns(self) -> tuple[str, ...]:
        """The sound's column."""
        return (self.options.column,)

    @property
    def traits(self) -> Traits:
        """Constants fit any integer type."""
        return Traits(integers_fit=True)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over the options."""
        return digest_of([self.kind, self.options.model_dump(mode="json")])

    def feeds(self, record: Record) -> tuple[Feed, ...]:
        """One sound `[samples]`, or frames `[context + frame]`."""
        sound = self._decoded(record)
        name = self.options.input or ONLY_INPUT
        constants = {key: np.asarray(value, np.int64) for key, value in self.options.constants.items()}
        frame, context = self.options.frame, self.options.context
        if frame is None:
            return ({name: sound, **constants},)
        if len(sound) < frame:
            raise DataError(f"the sound has {len(sound)} samples, fewer than one frame ({frame})", where=record.place)
        padded = np.concatenate([np.zeros(context, np.float32), sound])
        return tuple({name: padded[start : start + context + frame], **constants} for start in range(0, len(sound) - frame + 1, frame))

    def _decoded(self, record: Record) -> npt.NDArray[np.float32]:
        value = record.value(self.options.column)
        data = value.read() if isinstance(value, Blob) else value
        if not isinstance(data, bytes):
            hint = "the `arrays` processor takes decoded samples"
            raise DataError(f"{self.options.column!r} is no sound file but a {type(value).__name__}", where=record.place, hint=hint)
        try:
            with wave.open(io.BytesIO(data)) as file:
                rate, channels, width = file.getframerate(), file.getnchannels(), file.getsampwidth()
                pcm = file.readframes(file.getnframes())
        except (wave.Error, EOFError) as error:
            raise DataError(
                f"not a WAV file of PCM samples: {str(error) or 'it ends too early'}", where=record.place, hint="convert it to 16-bit WAV"
            ) from error
        if self.options.rate is not None and rate != self.options.rate:
            raise DataError(f"the sound has {rate} samples a second instead of {self.options.rate}", where=record.place, hint="resample it")
        samples = _samples(pcm, width)
        mono: npt.NDArray[np.float32] = samples[: len(samples) // channels * channels].reshape(-1, channels).mean(axis=1).astype(np.float32)
        return mono

    def content(self, record: Record) -> bytes:
        """SHA-256 over the file's bytes."""
        return content_of(record, self.columns)

    def display(self, record: Record) -> str:
        """The file's name."""
        return str(record.values.get(FILE, record.place))


def _samples(pcm: bytes, width: int) -> npt.NDArray[np.float64]:
    """Samples between -1 and 1; `width` is the number of bytes of each."""
    if width == 1:  # 8 bits are unsigned, by the format's definition
        return (np.frombuffer(pcm, np.uint8).astype(np.float64) - 128) / 128
    if width == _BYTES_OF_24_BIT:
        triples = np.frombuffer(pcm[: len(pcm) // 3 * 3], np.uint8).reshape(-1, 3)
        padded = np.concatenate([np.zeros((len(triples), 1), np.uint8), triples], axis=1)
        values: npt.NDArray[Any] = np.ascontiguousarray(padded).view("<i4").reshape(-1)
        return values / float(1 << 31)
    return np.frombuffer(pcm[: len(pcm) // width * width], f"<i{width}") / float(1 << (8 * width - 1))
