"""Plans by rule: a format for each layer, from patterns and from what stands in the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from quant.core.documents import LayerChoice, PrecisionPlan
from quant.graph.layers import Layer, find_layers, match_layers


def choose_layers(
    scheme: str, base: str, layers: Sequence[Layer], *, include: Sequence[str], exclude: Sequence[str], obstacle: Callable[[Layer], str | None]
) -> PrecisionPlan:
    """A plan that gives `base` to every layer that is included, not excluded, in float so far, and has no obstacle; `fp32` to the others.

    Raises:
        PlanError: A pattern matches no layer.
    """
    included = match_layers(layers, include) if include else frozenset(layer.name for layer in layers)
    excluded = match_layers(layers, exclude)

    def choose(layer: Layer) -> LayerChoice:
        if layer.name in excluded:
            reason = "excluded by the recipe"
        elif layer.name not in included:
            reason = "not included by the recipe"
        elif layer.quantized_already:
            reason = "is quantized already"
        else:
            reason = obstacle(layer) or ""
        return LayerChoice(layer=layer.name, op=layer.op, format="fp32" if reason else base, reason=reason or f"{scheme} by default")

    return PrecisionPlan(scheme=scheme, base=base, layers=tuple(map(choose, layers)))


def with_more_reasons(plan: PrecisionPlan, said: Mapping[str, str]) -> PrecisionPlan:
    """`plan`, with what was `said` of a layer behind the reason for its format."""
    choices = tuple(c.model_copy(update={"reason": f"{c.reason}; {said[c.layer]}"}) if said.get(c.layer) else c for c in plan.layers)
    return plan.model_copy(update={"layers": choices})


def planned(model: ir.Model, plan: PrecisionPlan) -> tuple[Layer, ...]:
    """The layers of `model` to which `plan` gives its base format."""
    wanted = set(plan.quantized)
    return tuple(layer for layer in find_layers(model) if layer.name in wanted)
