"""The digits of `digits-qat.yaml`, and two small networks that are trained on them: one of convolutions, one of attention."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from quant.data.sources import fetch
from quant.errors import DataError
from quant.recipe.schema import Source

if TYPE_CHECKING:
    import torch

    from quant.data.samples import Samples

_SEED = 0
_BATCH = 64
_LEARNING_RATE = 3e-3
_WARM_UP = 0.2
_SHIFT = 2
_WEIGHT_DECAY = 1e-2
_SIDE = 28
_CLASSES = 10


def digits(source: str, *, file: str | None = None, sha256: str | None = None) -> dict[str, npt.NDArray[Any]]:
    """Handwritten digits: `image`, float32 `[n, 1, 28, 28]` from 0 (paper) to 1 (ink), and `digit`, int64 `[n]`.

    Args:
        source: A package or another source, as in a recipe; a path starts at the current folder.
        file: Folder inside the source, with a file `0.json` to `9.json` for each digit: `{"data": [784 numbers for each image]}`.
        sha256: SHA-256 that the folder must have.

    Raises:
        DataError: A file is missing, or holds no whole images.
    """
    folder = fetch(Source(source=source, file=file, sha256=sha256), base=Path.cwd(), where="digits")
    found = [_images(folder / f"{digit}.json") for digit in range(_CLASSES)]
    return {"image": np.concatenate(found), "digit": np.repeat(np.arange(_CLASSES), [len(images) for images in found])}


def _images(path: Path) -> npt.NDArray[np.float32]:
    try:
        values = np.asarray(json.loads(path.read_text(encoding="utf-8"))["data"], np.float32)
        return values.reshape(-1, 1, _SIDE, _SIDE)
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"no images of {_SIDE} x {_SIDE} numbers"
        raise DataError(what, where=str(path), hint='each digit has a file `{"data": [numbers]}`') from error


def build(train: Samples, *, network: Literal["cnn", "vit"] = "cnn", epochs: int = 12) -> torch.nn.Module:
    """A network that gives ten `logits` for an `image`, trained on `train`.

    The same samples give the same weights, bit for bit, whatever the number of cores: everything runs in one thread, from
    one seed.

    Args:
        train: Samples with one feed, `image`, and the label 0 to 9. The recipe's evaluation samples are not among them.
        network: `cnn`: two convolutions and two products, 106,000 weights; `vit`: three layers of attention over 16 patches, 105,000.
        epochs: Passes over `train`.
    """
    import torch  # noqa: PLC0415 - heavy

    samples = list(train)
    images = torch.from_numpy(np.stack([sample.feeds[0]["image"] for sample in samples]))
    labels = torch.from_numpy(np.asarray([sample.label for sample in samples], np.int64))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a sum over several threads depends on how many there are
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_SEED)
            module = _convolutions() if network == "cnn" else _attention()
            _fit(module, images, labels, epochs)
    finally:
        torch.set_num_threads(threads)
    return _named(module)


def _convolutions() -> torch.nn.Module:
    from torch import nn  # noqa: PLC0415 - heavy

    first, second = (nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)) for i, o in ((1, 16), (16, 32)))
    return nn.Sequential(first, second, nn.Flatten(), nn.Linear(32 * 49, 64), nn.ReLU(), nn.Linear(64, _CLASSES))


def _attention(width: int = 64, heads: int = 4, depth: int = 3, patch: int = 7) -> torch.nn.Module:
    import torch  # noqa: PLC0415 - heavy
    from torch import nn  # noqa: PLC0415

    class Block(nn.Module):
        """Attention, then two products; both are added to what goes in."""

        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
            self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.before(x)
            q, k, v = (part(h).unflatten(-1, (heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value))
            scores = torch.softmax(q @ k.transpose(-1, -2) / (width / heads) ** 0.5, dim=-1)
            x = x + self.out((scores @ v).transpose(1, 2).flatten(-2))
            result: torch.Tensor = x + self.down(torch.relu(self.up(self.between(x))))
            return result

    class Transformer(nn.Module):
        """Patches of the image, their places, and what attention makes of them, on average."""

        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(1, width, patch, stride=patch)
            self.places = nn.Parameter(torch.randn(1, (_SIDE // patch) ** 2, width) * 0.02)
            self.blocks = nn.Sequential(*(Block() for _ in range(depth)), nn.LayerNorm(width))
            self.head = nn.Linear(width, _CLASSES)

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            tokens = self.patches(image).flatten(2).transpose(1, 2) + self.places
            result: torch.Tensor = self.head(self.blocks(tokens).mean(dim=1))
            return result

    return Transformer()


def _fit(module: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor, epochs: int) -> None:
    """AdamW on the cross-entropy of images that are moved a little, the learning rate rising first and then falling along a half cosine."""
    import torch  # noqa: PLC0415 - heavy

    drawn = torch.Generator().manual_seed(_SEED)
    optimizer = torch.optim.AdamW(module.parameters(), lr=_LEARNING_RATE, weight_decay=_WEIGHT_DECAY)
    steps = epochs * -(-len(labels) // _BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=_LEARNING_RATE, total_steps=steps, pct_start=_WARM_UP)
    module.train()
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(labels), generator=drawn), _BATCH):
            moved = torch.roll(images[rows], torch.randint(-_SHIFT, _SHIFT + 1, (2,), generator=drawn).tolist(), dims=(2, 3))
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(module(moved), labels[rows])
            loss.backward()  # type: ignore[no-untyped-call]  # torch's own signature
            optimizer.step()
            schedule.step()
    module.eval()


def _named(network: torch.nn.Module) -> torch.nn.Module:
    """The network with names for its input (`image`) and its output (`logits`)."""
    import torch  # noqa: PLC0415 - heavy

    class Digits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": self.network(image)}

    return Digits().eval()
