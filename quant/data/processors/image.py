"""Pictures: decoded, resized, cropped, scaled."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from quant.core import registry
from quant.core.digest import digest_of
from quant.data.processors import PROCESSORS, Setting, Traits
from quant.data.record import FILE, ONLY_INPUT, Blob, Record, content_of
from quant.data.samples import Feed
from quant.errors import DataError

Size = int | tuple[int, int]


@PROCESSORS.add
class Image:
    """Decodes a picture and makes one float input of it: value = (pixel * scale - mean) / std.

    Turns as EXIF says, puts transparency on white, and reads grey, palette, CMYK and 16-bit pictures. Where the data hold a
    text instead of a picture, it is a file name relative to the table.
    """

    kind: ClassVar[str] = "image"

    class Options(registry.Options):
        """How a picture becomes an input.

        Args:
            column: The column of the picture.
            input: Name of the model's input; its only one when not given.
            color: Order of the channels.
            resize: A number: length of the shorter side; [height, width]: exactly that.
            resample: Filter of the resizing.
            crop: A number or [height, width], cut from the centre.
            scale: Factor on pixels (0..255); 1/255 for float inputs, 1 for integers, when not given.
            mean: Subtracted after scaling: a number, or one for each channel.
            std: Divided by, last: a number, or one for each channel.
            layout: Whether channels come first (`nchw`) or last (`nhwc`).
            dtype: Type of the input.
        """

        column: str = "image"
        input: str | None = None
        color: Literal["rgb", "bgr", "gray"] = "rgb"
        resize: Size | None = None
        resample: Literal["nearest", "box", "bilinear", "bicubic", "lanczos"] = "bilinear"
        crop: Size | None = None
        scale: float | None = None
        mean: float | tuple[float, ...] = 0.0
        std: float | tuple[float, ...] = 1.0
        layout: Literal["nchw", "nhwc"] = "nchw"
        dtype: Literal["float32", "float16", "uint8", "int8"] = "float32"

    def __init__(self, options: Options) -> None:
        self.options = options

    def open(self, setting: Setting) -> None:
        """Check the column and the sizes."""
        setting.need(self.columns)
        channels = 1 if self.options.color == "gray" else 3
        for name, value in (("mean", self.options.mean), ("std", self.options.std)):
            if isinstance(value, tuple) and len(value) not in {1, channels}:
                raise DataError(f"{name} has {len(value)} numbers for {channels} channels", where=setting.where)
        if np.any(np.asarray(self.options.std) == 0):
            raise DataError("std is 0", where=setting.where)
        for name, size in (("resize", self.options.resize), ("crop", self.options.crop)):
            if size is not None and min(np.atleast_1d(size)) < 1:
                raise DataError(f"{name} is {size}", where=setting.where, hint="at least 1 pixel")

    @property
    def columns(self) -> tuple[str, ...]:
        """The picture's column."""
        return (self.options.column,)

    @property
    def traits(self) -> Traits:
        """Nothing may change on the way to the model."""
        return Traits()

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over the options."""
        return digest_of([self.kind, self.options.model_dump(mode="json")])

    def feeds(self, record: Record) -> tuple[Feed, ...]:
        """One picture: `[C, H, W]`, or `[H, W, C]` for `nhwc`."""
        pixels = self._pixels(record)
        array = self._scaled(pixels)
        if self.options.layout == "nchw":
            array = np.ascontiguousarray(array.transpose(2, 0, 1))
        return ({self.options.input or ONLY_INPUT: array},)

    def _pixels(self, record: Record) -> npt.NDArray[np.uint8]:
        """uint8 `[H, W, C]`."""
        picture = _decoded(record, self.options.column)
        picture = picture.convert("L") if self.options.color == "gray" else picture
        picture = self._cropped(self._resized(picture), record)
        pixels: npt.NDArray[np.uint8] = np.asarray(picture, np.uint8)
        pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels  # noqa: PLR2004 - [H, W]
        return pixels[:, :, ::-1] if self.options.color == "bgr" else pixels

    def _resized(self, picture: Any) -> Any:
        from PIL.Image import Resampling  # noqa: PLC0415 - `import quant` stays light

        size = self.options.resize
        if size is None:
            return picture
        width, height = picture.size
        if isinstance(size, int):
            short = min(width, height)
            new = (size * width // short, size * height // short)
        else:
            new = (size[1], size[0])
        return picture if new == picture.size else picture.resize(new, Resampling[self.options.resample.upper()])

    def _cropped(self, picture: Any, record: Record) -> Any:
        if self.options.crop is None:
            return picture
        crop = self.options.crop
        height, width = (crop, crop) if isinstance(crop, int) else crop
        if picture.width < width or picture.height < height:
            what = f"the picture ({picture.height} x {picture.width}) is smaller than the crop ({height} x {width})"
            raise DataError(what, where=record.place, hint="set `resize` to at least the crop")
        left, top = round((picture.width - width) / 2), round((picture.height - height) / 2)
        return picture.crop((left, top, left + width, top + height))

    def _scaled(self, pixels: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        dtype = np.dtype(self.options.dtype)
        scale = (1.0 if dtype.kind in "iu" else 1 / 255) if self.options.scale is None else self.options.scale
        values = (pixels.astype(np.float64) * scale - np.asarray(self.options.mean)) / np.asarray(self.options.std)
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            values = np.clip(np.rint(values), limits.min, limits.max)
        array: npt.NDArray[Any] = values.astype(dtype)
        return array

    def content(self, record: Record) -> bytes:
        """SHA-256 over the picture's bytes."""
        return content_of(_with_file(record, self.options.column), self.columns)

    def display(self, record: Record) -> str:
        """The file's name."""
        return str(record.values.get(FILE, record.place))


def _with_file(record: Record, column: str) -> Record:
    value = record.value(column)
    return Record(record.index, {column: Blob(record.folder / value)}, record.place, record.folder) if isinstance(value, str | Path) else record


def _decoded(record: Record, column: str) -> Any:
    """The picture of `record`, upright, as 8-bit RGB (or L where it is grey)."""
    from PIL import Image as pictures  # noqa: N813, PLC0415 - `import quant` stays light; PIL.Image is a module
    from PIL import ImageOps, UnidentifiedImageError  # noqa: PLC0415

    value = _with_file(record, column).value(column)
    if isinstance(value, np.ndarray | list):
        value = _from_array(np.asarray(value), record, column)
    elif isinstance(value, Blob | bytes):
        data = value.read() if isinstance(value, Blob) else value
        try:
            value = pictures.open(io.BytesIO(data))
            value.load()
        except (UnidentifiedImageError, OSError, SyntaxError, ValueError, EOFError, pictures.DecompressionBombError) as error:
            raise DataError(f"the picture cannot be decoded: {str(error).split(' <')[0]}", where=record.place, hint="mend it or leave it out") from error
    elif not isinstance(value, pictures.Image):
        raise DataError(f"{column!r} is no picture but a {type(value).__name__}", where=record.place)
    return _eight_bit(ImageOps.exif_transpose(value))


def _from_array(array: npt.NDArray[Any], record: Record, column: str) -> Any:
    from PIL import Image as pictures  # noqa: N813, PLC0415 - `import quant` stays light; PIL.Image is a module

    array = array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array  # noqa: PLR2004 - [H, W, 1]
    whole = array.dtype.kind in "iu" and array.size and array.min() >= 0 and array.max() <= 255  # noqa: PLR2004 - a byte
    if not whole or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in {3, 4})):  # noqa: PLR2004 - [H, W] or [H, W, C]
        what = f"{column!r} is no picture: {array.dtype.name} {list(array.shape)}"
        raise DataError(what, where=record.place, hint="8-bit pixels [height, width] or [height, width, 3]; the `arrays` processor takes anything else")
    return pictures.fromarray(array.astype(np.uint8))


def _eight_bit(picture: Any) -> Any:
    from PIL import Image as pictures  # noqa: N813, PLC0415 - `import quant` stays light; PIL.Image is a module

    if picture.mode in {"I;16", "I;16L", "I;16B", "I;16N", "I"}:
        values = np.asarray(picture).astype(np.float64)
        picture = pictures.fromarray(np.clip(np.rint(values / 257), 0, 255).astype(np.uint8))
    elif picture.mode == "F":
        picture = pictures.fromarray(np.clip(np.rint(np.asarray(picture)), 0, 255).astype(np.uint8))
    if picture.mode in {"RGBA", "LA", "PA", "RGBa", "La"} or "transparency" in picture.info:
        clear = picture.convert("RGBA")
        white = pictures.new("RGBA", clear.size, (255, 255, 255, 255))
        picture = pictures.alpha_composite(white, clear)
    return picture.convert("RGB")
