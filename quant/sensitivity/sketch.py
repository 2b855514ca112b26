"""`sketch`: all layers in all formats from a few backward passes of the twin.

A format adds D to what a layer gives (or to what it reads). To first order that adds J D to the outputs, J their Jacobian; with a
random direction r of signs, (r J D)^2 has the mean |J D|^2, the squared output error, and r J is one backward pass for all
layers. For outputs that are scores of classes r is the gradient of the logarithm of the probability of a class, drawn from the
model's own softmax: then (r J D)^2 / 2 has the mean D' F D / 2, F the Fisher information, which is the KL divergence to second order.

What a rounded activation adds is multiplied with the gradient on its way to the layer that reads it rounded, so no product is
computed for it; a rounded weight costs one product. Both add up to what the layer does, and all layers to what a plan does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from quant.core.registry import Options as PluginOptions
from quant.errors import ModelError
from quant.graph.changes import Rewritten, Unreadable, read_change
from quant.sensitivity import ESTIMATORS, Found

if TYPE_CHECKING:
    from quant.sensitivity import Subject


@ESTIMATORS.add
class Sketch:
    """Random directions through the twin."""

    kind: ClassVar[str] = "sketch"

    class Options(PluginOptions):
        """Options of `sketch`."""

        directions: int = Field(1, ge=1)
        """Backward passes for each sample; more of them make standard errors smaller, and more samples do even more."""
        precision: float = Field(0.25, ge=0)
        """Draws until half of the layers' standard errors are at most this share of what was found, in every format; 0: on all samples."""
        seed: int = Field(0, ge=0)
        """What directions are drawn from."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def estimate(self, subject: Subject) -> Found:
        """Draw directions, and take the products with what each format adds."""
        if subject.remembers:
            return Found((), 0, failed=dict.fromkeys(subject.candidates, "the model remembers from step to step, and a gradient does not pass steps"))
        changes, failed = _changes(subject)
        if not changes:
            return Found((), 0, failed=failed)
        from quant.sensitivity.drawing.draw import draw  # noqa: PLC0415 - heavy

        try:
            found = draw(subject, changes, directions=self.options.directions, precision=self.options.precision, seed=self.options.seed)
        except ModelError as error:
            return Found((), 0, failed={**failed, **dict.fromkeys(changes, f"{error.where}: {error.what}" if error.where else error.what)})
        return Found(found.effects, found.samples, found.reference, found.joint, failed)


def _changes(subject: Subject) -> tuple[dict[str, list[Rewritten]], dict[str, str]]:
    """Format -> what it changes, layer by layer; and format -> why that cannot be read."""
    found: dict[str, list[Rewritten]] = {}
    failed: dict[str, str] = {}
    for number_format, layers in subject.candidates.items():
        try:
            found[number_format] = [read_change(subject.model, subject.write(number_format, [layer], plain=True), layer) for layer in layers]
        except Unreadable as error:
            failed[number_format] = str(error)
    return found, failed
