"""A sample as HTML: its text, or the picture itself; whatever is in the data, nothing of it acts."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from quant.core.shown.table import text
from quant.data.record import Blob

_SIDE = 96
_LONGEST = 400
_PLANE = 2
_COLOURS = 3
_LEAST = 4


def sample_html(values: Mapping[str, Any], said: str) -> str:
    """A picture where one of the values is one, and the words that the sample is shown by.

    Args:
        values: Column -> value, as the source has them.
        said: A few words of its processor.

    Example:
        >>> sample_html({"review": "good <script>alert(1)</script>"}, "good <script>alert(1)</script>")
        'good &lt;script&gt;alert(1)&lt;/script&gt;'
    """
    picture = next((found for value in values.values() if (found := _picture(value)) is not None), "")
    words = text(said if len(said) <= _LONGEST else said[: _LONGEST - 1] + "…")
    return f"{picture} {words}".strip()


def _picture(value: Any) -> str | None:
    """The value drawn anew as PNG (never its own bytes, in which a browser might find more than a picture); None when it is none."""
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415 - heavy

    try:
        match value:
            case Blob() | bytes():
                with Image.open(io.BytesIO(value.read() if isinstance(value, Blob) else value)) as opened:
                    opened.thumbnail((_SIDE, _SIDE))
                    image = opened.convert("RGB")
            case Image.Image():
                image = value.convert("RGB")
            case np.ndarray() if _is_plane(value):
                image = Image.fromarray(_scaled(value))
            case _:
                return None
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError):
        return None
    if max(image.size) < _SIDE:
        factor = _SIDE // max(image.size)
        image = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    image.thumbnail((_SIDE, _SIDE))
    held = io.BytesIO()
    image.save(held, format="PNG")
    data = base64.b64encode(held.getvalue()).decode("ascii")
    return f'<img alt="" src="data:image/png;base64,{data}" style="vertical-align:middle;image-rendering:pixelated;max-height:{_SIDE}px">'


def _is_plane(array: npt.NDArray[Any]) -> bool:
    """Whether it can be a picture: some rows and columns, with one or three colours behind them."""
    colours = array.shape[_PLANE:]
    return array.dtype.kind in "fiu" and min(array.shape[:_PLANE], default=0) >= _LEAST and array.ndim >= _PLANE and colours in {(), (1,), (_COLOURS,)}


def _scaled(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    plane = np.nan_to_num(array.astype(np.float64)[..., 0] if array.ndim > _PLANE and array.shape[-1] == 1 else array.astype(np.float64))
    low, high = plane.min(), plane.max()
    scaled: npt.NDArray[np.uint8] = (255 * (plane - low) / (high - low or 1.0)).astype(np.uint8)
    return scaled
