"""EfficientNet-Lite0: a small ImageNet classifier without squeeze-and-excitation, made to be quantized.

The network is that of Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", in its *Lite*
form: ReLU6 instead of swish, no squeeze-and-excitation. Modules are called as in the published weights, without
leading underscores.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from quant.data.sources import fetch
from quant.errors import ModelError
from quant.recipe.schema import Source

SIDE = 224
"""Height and width of the input in pixels."""

CLASSES = 1000
"""Classes of ImageNet, in the usual order."""

_BN_EPSILON = 1e-3
_STEM = 32
_HEAD = 1280


class _Stage(NamedTuple):
    """Blocks of one width: the first one changes width and size, the others keep both."""

    blocks: int
    kernel: int
    stride: int
    expand: int
    width: int


_STAGES = (
    _Stage(blocks=1, kernel=3, stride=1, expand=1, width=16),
    _Stage(blocks=2, kernel=3, stride=2, expand=6, width=24),
    _Stage(blocks=2, kernel=5, stride=2, expand=6, width=40),
    _Stage(blocks=3, kernel=3, stride=2, expand=6, width=80),
    _Stage(blocks=3, kernel=5, stride=1, expand=6, width=112),
    _Stage(blocks=4, kernel=5, stride=2, expand=6, width=192),
    _Stage(blocks=1, kernel=3, stride=1, expand=6, width=320),
)


def build(source: str, *, file: str | None = None, sha256: str | None = None) -> nn.Module:
    """EfficientNet-Lite0 in inference mode: float32 `image` `[N, 3, 224, 224]`, RGB as (pixel - 127) / 128, to `[N, 1000]` logits.

    Args:
        source: Where the weights are, as in a recipe; a path starts at the current folder.
        file: The weights inside the source: a file of `torch.save` that holds the network's state.
        sha256: SHA-256 that the file must have.

    Raises:
        ModelError: The file holds something else than the weights of this network.
        SourceError: The file cannot be had, or has another SHA-256.
    """
    weights = fetch(Source(source=source, file=file, sha256=sha256), base=Path.cwd(), where="weights")
    network = _Network()
    # This is a pickle, and pickles are not loaded here - except through `weights_only`, whose reader knows tensors and
    # containers and calls nothing else; and it is given only what has passed `fetch`, which holds it to its SHA-256.
    try:
        state = torch.load(weights, map_location="cpu", weights_only=True)
        network.load_state_dict({re.sub(r"(^|\.)_", r"\1", name): tensor for name, tensor in state.items()})
    except (pickle.UnpicklingError, RuntimeError, AttributeError, TypeError) as error:
        what = f"not the weights of EfficientNet-Lite0: {str(error).strip().splitlines()[0]}"
        raise ModelError(what, where=str(weights), hint="a state dict of tensors, as the package of these weights has it") from error
    return network.eval()


class _Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv_stem = _SameConv(3, _STEM, 3, side=SIDE, stride=2)
        self.bn0 = nn.BatchNorm2d(_STEM, eps=_BN_EPSILON)
        blocks, width, side = [], _STEM, SIDE // 2
        for stage in _STAGES:
            for number in range(stage.blocks):
                stride = stage.stride if number == 0 else 1
                blocks.append(_Block(width, stage, side=side, stride=stride))
                width, side = stage.width, side // stride
        self.blocks = nn.ModuleList(blocks)
        self.conv_head = _SameConv(width, _HEAD, 1, side=side)
        self.bn1 = nn.BatchNorm2d(_HEAD, eps=_BN_EPSILON)
        self.fc = nn.Linear(_HEAD, CLASSES)

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        x = functional.relu6(self.bn0(self.conv_stem(image)))
        for block in self.blocks:
            x = block(x)
        x = functional.relu6(self.bn1(self.conv_head(x)))
        return {"logits": self.fc(functional.adaptive_avg_pool2d(x, 1).flatten(1))}


class _Block(nn.Module):
    """An inverted bottleneck: widen, filter each channel by itself, narrow; added to its input where the shapes are equal."""

    def __init__(self, width: int, stage: _Stage, *, side: int, stride: int) -> None:
        super().__init__()
        inner = width * stage.expand
        self._widens = stage.expand != 1
        if self._widens:
            self.expand_conv = _SameConv(width, inner, 1, side=side)
            self.bn0 = nn.BatchNorm2d(inner, eps=_BN_EPSILON)
        self.depthwise_conv = _SameConv(inner, inner, stage.kernel, side=side, stride=stride, groups=inner)
        self.bn1 = nn.BatchNorm2d(inner, eps=_BN_EPSILON)
        self.project_conv = _SameConv(inner, stage.width, 1, side=side // stride)
        self.bn2 = nn.BatchNorm2d(stage.width, eps=_BN_EPSILON)
        self._adds = stride == 1 and width == stage.width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu6(self.bn0(self.expand_conv(x))) if self._widens else x
        y = functional.relu6(self.bn1(self.depthwise_conv(y)))
        y = self.bn2(self.project_conv(y))
        return x + y if self._adds else y


class _SameConv(nn.Conv2d):
    """A convolution without bias whose output has ceil(side / stride) pixels a side.

    Where the padding is odd, the last row and column get one pixel more: the weights were trained so.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, *, side: int, stride: int = 1, groups: int = 1) -> None:
        padding = max((-(-side // stride) - 1) * stride + kernel - side, 0)
        self._odd = padding % 2
        super().__init__(inputs, outputs, kernel, stride=stride, padding=padding // 2, groups=groups, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self._odd:
            return super().forward(x)
        low = int(self.padding[0])
        high = low + 1
        return functional.conv2d(functional.pad(x, (low, high, low, high)), self.weight, stride=self.stride, groups=self.groups)
