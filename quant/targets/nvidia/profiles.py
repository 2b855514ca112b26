"""Optimization profiles: the shapes that an engine is built for."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from quant.errors import TargetError
from quant.targets import Shapes
from quant.targets.nvidia.options import Profile


def resolve_profile(model: ir.Model, given: Mapping[str, Profile], shapes: Mapping[str, Shapes]) -> dict[str, Shapes]:
    """Shapes of every input that has dynamic dimensions: the recipe's, else those of the data.

    Args:
        model: The graph.
        given: Input -> shapes, as the recipe has them.
        shapes: Input -> shapes, as the data have them.

    Raises:
        TargetError: An input has dynamic dimensions without shapes, or shapes do not fit, or belong to no input.
    """
    inputs = {str(v.name): v for v in model.graph.inputs if v.name not in model.graph.initializers}
    if unknown := sorted(set(given) - set(inputs)):
        raise TargetError(f"`profiles` names {unknown[0]!r}, which is no input of the model", hint=f"inputs: {', '.join(inputs)}")
    told = {name: Shapes(p.min, p.opt, p.max) for name, p in given.items()}
    profile: dict[str, Shapes] = {}
    for name, value in inputs.items():
        if value.shape is not None and all(isinstance(d, int) for d in value.shape):
            continue
        chosen = told.get(name) or shapes.get(name)
        if chosen is None:
            what = f"input {name!r} has the dynamic shape {value.shape} and no profile"
            raise TargetError(what, hint=f"give the target `profiles: {{{name}: {{min: [...], opt: [...], max: [...]}}}}`")
        if value.shape is not None and not _fits(value.shape, chosen):
            raise TargetError(f"the profile {list(map(list, chosen))} does not fit input {name!r} of shape {value.shape}")
        profile[name] = chosen
    return profile


def _fits(shape: ir.Shape, chosen: Shapes) -> bool:
    return all(len(s) == len(shape) and all(not isinstance(d, int) or d == n for d, n in zip(shape, s, strict=True)) for s in chosen)
