"""The sensitivity profile: (layer, format) -> what that costs the outputs, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Literal

from quant.core.documents import Document
from quant.core.registry import did_you_mean
from quant.core.shown import Cell, Chart, Series, Shown, Table
from quant.errors import PlanError

Part = Literal["both", "weight", "activation"]
ALL_LAYERS = "*"
"""Stands for a layer where all of them are in a format at once."""


class Effect(Document):
    """What one layer in one format does to the outputs, all others in FP32.

    Args:
        layer: Name of the layer.
        format: The format.
        part: Whether weights and activations are in it, or only one of them.
        value: The measure of the profile; 0 is FP32, and smaller is better.
        standard_error: Of `value`, over samples and whatever else was drawn.
    """

    layer: str
    format: str
    part: Part = "both"
    value: float
    standard_error: float


class SensitivityProfile(Document, Shown):
    """What each layer does to the outputs in each format.

    Args:
        measure: What effects are: `output_error` (mean over samples of the squared error of the outputs, as a share of the mean of their
            square), `kl` (mean KL divergence of the softmax of the outputs from FP32's, in nats), both joined by a plus where
            outputs differ, or `local_error` (squared error of the layer's own output as a share of its square, which tells nothing of outputs).
        estimator: What was asked to find them.
        effects: One for each layer, format and part that could be told.
        samples: Number of feeds that they were found on.
        reference: What an effect of 1 is: the mean square of the FP32 outputs, each feed's summed up; 1 where effects are absolute.
        joint: All layers in one format at once (`layer` is `*`), for formats that it was found for.
        estimators: Format -> estimator, where another one than `estimator` had to find it.
        notes: What is to be said of how effects were found.
        keys: What the profile was made from -> its digest.
    """

    measure: str
    estimator: str
    effects: tuple[Effect, ...]
    samples: int
    reference: float = 1.0
    joint: tuple[Effect, ...] = ()
    estimators: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()
    keys: Mapping[str, str] = {}

    @cached_property
    def _found(self) -> dict[tuple[str, str, str], Effect]:
        return {(found.layer, found.format, found.part): found for found in (*self.effects, *self.joint)}

    @property
    def found_by(self) -> str:
        """The estimator, and for which formats another one had to find effects, in words.

        Example:
            >>> SensitivityProfile(measure="kl", estimator="sketch", effects=(), samples=8, estimators={"int8": "exact"}).found_by
            'sketch (int8: exact)'
        """
        others = ", ".join(f"{name}: {kind}" for name, kind in self.estimators.items() if kind != self.estimator)
        return f"{self.estimator} ({others})" if others else self.estimator

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers that it tells of, in their order."""
        return tuple(dict.fromkeys(found.layer for found in self.effects))

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats that it tells of."""
        return tuple(dict.fromkeys(found.format for found in self.effects))

    def as_table(self) -> Table:
        """Every effect, the largest first."""
        rows = [(e.layer, e.format, e.part, e.value, e.standard_error) for e in sorted(self.effects, key=lambda e: (-e.value, e.layer, e.format, e.part))]
        facts: dict[str, Cell] = {"measure": self.measure, "by": self.found_by, "samples": self.samples, "layers": len(self.layers)}
        return Table("Sensitivity profile", ("layer", "format", "part", "effect", "standard error"), rows, facts)

    def as_chart(self) -> Chart:
        """The effect of each layer in each format, the most sensitive layer first; bars are one standard error long."""
        whole = [e for e in self.effects if e.part == "both"]
        worst: dict[str, float] = {}
        for found in whole:
            worst[found.layer] = max(worst.get(found.layer, 0.0), found.value)
        order = {layer: place for place, layer in enumerate(sorted(worst, key=lambda layer: -worst[layer]))}
        series = []
        for number_format in self.formats:
            mine = sorted((e for e in whole if e.format == number_format), key=lambda e: order[e.layer])
            errors = [e.standard_error for e in mine]
            series.append(Series(number_format, [e.value for e in mine], [e.layer for e in mine], errors, errors))
        return Chart(f"What each layer does to the outputs, all others in FP32 ({self.measure})", self.measure.replace("_", " "), "", series, "bars")

    def knows(self, layer: str, number_format: str, part: Part = "both") -> bool:
        """Whether there is such an effect; FP32 has none on any layer, and that is known."""
        return number_format == "fp32" or (layer, number_format, part) in self._found

    def effect(self, layer: str, number_format: str, part: Part = "both") -> Effect:
        """The effect of `layer` in a format; nothing for FP32.

        Raises:
            PlanError: It was not measured.

        Example:
            >>> found = Effect(layer="fc", format="int8", value=0.02, standard_error=0.001)
            >>> profile = SensitivityProfile(measure="output_error", estimator="exact", effects=(found,), samples=8)
            >>> profile.effect("fc", "int8").value, profile.effect("fc", "fp32").value
            (0.02, 0.0)
        """
        if number_format == "fp32":
            return Effect(layer=layer, format="fp32", part=part, value=0.0, standard_error=0.0)
        found = self._found.get((layer, number_format, part))
        if found is None:
            known = self.layers
            hint = did_you_mean(layer, known) if layer not in known else f"it was measured in {', '.join(self._formats_of(layer))}; profile it again"
            what = number_format if part == "both" else f"{number_format} ({part} alone)"
            raise PlanError(f"the sensitivity profile has nothing of layer {layer!r} in {what}", hint=hint)
        return found

    def _formats_of(self, layer: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(found.format for found in self.effects if found.layer == layer))

    def predicted(self, choices: Mapping[str, str]) -> tuple[float, float]:
        """(value, standard error) of the measure when layers run in the formats of `choices`: to first order, effects add up.

        Standard errors are added up too, which is never too little: the effects were all found on the same samples.

        Args:
            choices: Layer -> format; layers that are not named stay in FP32.

        Raises:
            PlanError: An effect was not measured.

        Example:
            >>> effects = tuple(Effect(layer=n, format="int8", value=v, standard_error=0.01) for n, v in (("a", 0.25), ("b", 0.5)))
            >>> profile = SensitivityProfile(measure="kl", estimator="exact", effects=effects, samples=8)
            >>> profile.predicted({"a": "int8", "b": "int8"}), profile.predicted({"a": "fp32", "b": "int8"})
            ((0.75, 0.02), (0.5, 0.01))
        """
        found = [self.effect(layer, number_format) for layer, number_format in choices.items()]
        return sum(f.value for f in found), sum(f.standard_error for f in found)
