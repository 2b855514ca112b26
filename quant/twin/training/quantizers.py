"""Quantizers as torch modules: what stands in the twin where the graph has QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

import torch

from quant.core.formats import Grid, fake_quantize


class FakeQuantizer(torch.nn.Module):
    """Writes a tensor in a grid and reads it again; its scale can be learned.

    What is learned is the logarithm of the scale against where it started, so that a scale stays positive, and one learning rate fits
    scales of any size. Zero points stay.

    Args:
        grid: The grid.
        scale: Where the scale starts, float32, `[]` or `[n]` along `axis`.
        zero_point: Codes as whole numbers, in its shape.
        axis: The axis that scales lie along.
        learn: Whether the scale is learned.

    Example:
        >>> from quant.core.formats import INT8
        >>> fake = FakeQuantizer(INT8, torch.tensor(0.5), torch.tensor(0.0), axis=None, learn=True)
        >>> fake(torch.tensor([0.3, 1.0, 999.0])).tolist()
        [0.5, 1.0, 63.5]
    """

    start: torch.Tensor
    zero_point: torch.Tensor

    def __init__(self, grid: Grid, scale: torch.Tensor, zero_point: torch.Tensor, *, axis: int | None, learn: bool) -> None:
        super().__init__()
        self.grid, self.axis = grid, axis
        self.register_buffer("start", scale)
        self.register_buffer("zero_point", zero_point)
        self.growth = torch.nn.Parameter(torch.zeros_like(scale), requires_grad=learn)

    @property
    def scale(self) -> torch.Tensor:
        """The scale as it is now."""
        return self.start * torch.exp(self.growth)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """`values` as their codes stand for them."""
        return fake_quantize(values, self.grid, self.scale, self.zero_point, axis=self.axis)


class _RoundToSteps(torch.autograd.Function):
    """To the nearest multiple of a step, computed in float64 as the codes are; the gradient passes straight through."""

    @staticmethod
    def forward(_ctx: object, values: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        return (torch.round(values.double() / step) * step).to(values.dtype)

    @staticmethod
    def backward(_ctx: object, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0], None


class FakeBias(torch.nn.Module):
    """Rounds a bias to steps of (weight scale x input scale), as engines that add it to a sum of products in integers want it.

    Args:
        weight: Quantizer of the weight.
        source: Quantizer of what it multiplies.
    """

    def __init__(self, weight: FakeQuantizer, source: FakeQuantizer) -> None:
        super().__init__()
        self._of = (weight, source)  # in a tuple: torch would take them for modules of this one

    def forward(self, bias: torch.Tensor) -> torch.Tensor:
        """`bias` as its codes stand for it."""
        with torch.no_grad():
            weight, source = (quantizer.scale.double() for quantizer in self._of)
            step = (weight * source).float().double()
        result: torch.Tensor = _RoundToSteps.apply(bias, step)  # type: ignore[no-untyped-call]
        return result
