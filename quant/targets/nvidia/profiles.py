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
        TargetError: An input has dynamic dimensions without shapes, or shapes do not fit it or any of the data, or belong to no input.
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
        if name in told and name in shapes and not _meets(chosen, shapes[name]):
            what = f"the profile of input {name!r}, {list(chosen.least)} to {list(chosen.largest)}, takes none of the data"
            raise TargetError(what, hint=f"theirs are {list(shapes[name].least)} to {list(shapes[name].largest)}; prepare them as the engine is to be served")
        profile[name] = chosen
    return profile


def _meets(chosen: Shapes, seen: Shapes) -> bool:
    """Whether some lengths of the data lie within the profile, along every axis; that of the batch, the first, is the server's to choose."""
    if len(chosen.least) != len(seen.least):
        return False
    axes = list(zip(chosen.least, chosen.largest, seen.least, seen.largest, strict=True))[1:]
    return all(low <= most and least <= high for low, high, least, most in axes)


def _fits(shape: ir.Shape, chosen: Shapes) -> bool:
    return all(len(s) == len(shape) and all(not isinstance(d, int) or d == n for d, n in zip(shape, s, strict=True)) for s in chosen)
