"""Lines of text drawn as pictures, for recognizers of printed text: labelled data without a camera."""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from quant.core import registry
from quant.core.digest import digest_of, digest_of_file
from quant.data.processors import PROCESSORS, Setting, Traits, shorten
from quant.data.record import ONLY_INPUT, Record, content_of, is_missing
from quant.data.samples import Feed
from quant.errors import DataError
from quant.recipe.schema import Source

_DRAWN_HEIGHT = 96  # drawn large and then brought to the height asked for, so that blur and rotation have pixels to work with
_MARGIN = 12


@PROCESSORS.add
class Lines:
    """Draws a text as one line, dark on light, with a font, blur, noise and rotation that follow from the text and the seed.

    The same text gives the same picture, whatever stands around it. The width follows the text; nothing is padded.
    """

    kind: ClassVar[str] = "lines"

    class Options(registry.Options):
        """How lines look.

        Args:
            column: The column of the text, which is the label, too, when the recipe names no other.
            fonts: TrueType or OpenType files, one of which is drawn for each line.
            input: Name of the model's input; its only one when not given.
            height: Height of the picture in pixels.
            rotation: Largest rotation to either side, in degrees.
            blur: Largest radius of a Gaussian blur, in pixels of the picture.
            noise: Largest standard deviation of Gaussian noise, in grey levels (0..255).
            mean: Subtracted after pixels were brought to 0..1.
            std: Divided by, last.
            seed: Another seed gives other fonts, blur, noise and rotation.
        """

        column: str = "text"
        fonts: tuple[Source | str, ...]
        input: str | None = None
        height: int = 48
        rotation: float = 1.0
        blur: float = 0.6
        noise: float = 6.0
        mean: float = 0.5
        std: float = 0.5
        seed: int = 0

    def __init__(self, options: Options) -> None:
        self.options = options
        self._fonts: list[Any] = []
        self._font_digests: list[str] = []

    def open(self, setting: Setting) -> None:
        """Load the fonts."""
        from PIL import ImageFont  # noqa: PLC0415 - `import quant` stays light

        from quant.data import sources  # noqa: PLC0415 - `import quant.data` stays light

        setting.need(self.columns)
        if not self.options.fonts or self.options.height < 1:
            raise DataError("lines need at least one font, and a height", where=setting.where)
        for font in self.options.fonts:
            path = sources.fetch(Source(source=font) if isinstance(font, str) else font, base=setting.base, where=setting.where)
            try:
                # The basic layout is part of Pillow itself; the other depends on what else is installed.
                self._fonts.append(ImageFont.truetype(str(path), int(_DRAWN_HEIGHT * 0.7), layout_engine=ImageFont.Layout.BASIC))
            except OSError as error:
                raise DataError(f"not a font: {path.name!r}: {error}", where=setting.where) from error
            self._font_digests.append(digest_of_file(path))

    @property
    def columns(self) -> tuple[str, ...]:
        """The text's column."""
        return (self.options.column,)

    @property
    def traits(self) -> Traits:
        """The text is the label."""
        return Traits(label_column=self.options.column)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over the options and the fonts."""
        return digest_of([self.kind, self.options.model_dump(mode="json", exclude={"fonts"}), self._font_digests])

    def feeds(self, record: Record) -> tuple[Feed, ...]:
        """One picture: float32 `[3, height, width]`."""
        text = record.value(self.options.column)
        if is_missing(text):
            raise DataError(f"{self.options.column!r} is empty", where=record.place, hint="leave such rows out with `data.where`")
        seed = hashlib.sha256(f"{self.options.seed}:{text}".encode()).digest()
        pixels = self._drawn(" ".join(str(text).split()), np.random.default_rng(int.from_bytes(seed, "little")))
        values = ((pixels / 255 - self.options.mean) / self.options.std).astype(np.float32)
        return ({self.options.input or ONLY_INPUT: np.repeat(values[None], 3, axis=0)},)

    def _drawn(self, text: str, random: np.random.Generator) -> npt.NDArray[np.float64]:
        """Grey levels `[height, width]`."""
        from PIL import Image, ImageDraw, ImageFilter  # noqa: PLC0415 - `import quant` stays light

        font = self._fonts[int(random.integers(len(self._fonts)))]
        paper, ink = int(random.integers(225, 256)), int(random.integers(0, 60))
        left, _, right, _ = font.getbbox(text)
        picture = Image.new("L", (int(right - left) + 2 * _MARGIN, _DRAWN_HEIGHT), paper)
        ascent, descent = font.getmetrics()
        ImageDraw.Draw(picture).text((_MARGIN - left, (_DRAWN_HEIGHT - ascent - descent) / 2), text, font=font, fill=ink)
        angle = random.uniform(-1, 1) * self.options.rotation
        # A long line at even a small angle would leave the picture: the slope is limited to an eighth of the height.
        steepest = np.degrees(np.arctan(_DRAWN_HEIGHT / 8 / picture.width))
        picture = picture.rotate(float(np.clip(angle, -steepest, steepest)), resample=Image.Resampling.BICUBIC, fillcolor=paper)
        width = max(1, round(picture.width * self.options.height / _DRAWN_HEIGHT))
        picture = picture.resize((width, self.options.height), Image.Resampling.LANCZOS)
        picture = picture.filter(ImageFilter.GaussianBlur(random.uniform(0, 1) * self.options.blur))
        noise = random.normal(0, 1, (self.options.height, width)) * random.uniform(0, 1) * self.options.noise
        return np.clip(np.rint(np.asarray(picture, np.float64) + noise), 0, 255)

    def content(self, record: Record) -> bytes:
        """SHA-256 over the text."""
        return content_of(record, self.columns)

    def display(self, record: Record) -> str:
        """The text, shortened."""
        return shorten(str(record.value(self.options.column)))
