"""What NVIDIA ModelOpt (`modelopt.torch.quantization`) has written into a torch module: quantizers by module, and the module without them.

Nothing of ModelOpt is imported: its quantizers are told by their class's name and read by their attributes, as version 0.47 has them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from quant.errors import ModelError

Floats = npt.NDArray[np.float32]
_PACKAGE = "modelopt"
_MATRIX = 2
_INPUT, _WEIGHT = "input_quantizer", "weight_quantizer"
_FORMATS: Mapping[Any, Literal["int8", "fp8", "int4"]] = {8: "int8", (4, 3): "fp8", 4: "int4"}


@dataclass(frozen=True)
class Quantized:
    """One module that ModelOpt quantizes.

    Args:
        format: Of its weight, and of its input unless only the weight is quantized.
        weight: The weight `[out, ...]` as the module holds it.
        largest: Magnitude that the scale of the weight is made for (ModelOpt's `amax`): `[]`, `[out]`, or `[out, blocks]`; `[0]` for blocks of
            a weight that is no matrix, which no target reads.
        block_size: Weights of a row that share a scale; 0 where a row or all share one.
        input: Magnitude that the scale of the input is made for; None where inputs stay in float.
        never_negative: Whether codes of the input start at 0.
    """

    format: Literal["int8", "fp8", "int4"]
    weight: Floats
    largest: Floats
    block_size: int
    input: float | None
    never_negative: bool = False


def read_quantizers(module: Any) -> dict[str, Quantized]:
    """Name of each submodule that ModelOpt quantizes -> how.

    Raises:
        ModelError: ModelOpt has quantized nothing, or in a way that cannot be written as it is.
    """
    found: dict[str, Quantized] = {}
    for name in _enabled(module):
        owner, _, role = name.rpartition(".")
        if role not in {_INPUT, _WEIGHT}:
            what = f"ModelOpt's quantizer {name!r} stands at what is no input and no weight of a layer"
            raise ModelError(what, hint=f"switch it off: model.{name}.disable()")
        if owner not in found and role == _WEIGHT:
            found[owner] = _quantized(module.get_submodule(owner), owner)
        elif role == _INPUT and _WEIGHT not in _roles(module, owner):
            raise ModelError(f"ModelOpt quantizes the input of {owner!r} and not its weight", hint=f"switch it off: model.{name}.disable()")
    if not found:
        raise ModelError("the model has no ModelOpt quantizers that are switched on", hint="modelopt.torch.quantization.quantize(model, config, forward_loop)")
    return found


def without_quantizers(module: Any) -> Any:
    """A copy of `module` in FP32 as it would be had ModelOpt not quantized it; what its quantizers multiply inputs by (`pre_quant_scale`) stays."""
    plain = copy.deepcopy(module).float().cpu().eval()
    for part in list(plain.modules()):
        factors = _factors(part)
        for name in [name for name, child in part.named_children() if _is_quantizer(child)]:
            delattr(part, name)
        if type(part).__module__.startswith(_PACKAGE):
            part.__dict__.pop("forward", None)  # which some of its searches leave behind
            part.__class__ = next(kind for kind in type(part).__mro__ if not kind.__module__.startswith(_PACKAGE))
        if factors is not None:
            part.register_buffer("input_factors", factors)
            part.register_forward_pre_hook(_scaled)
    return plain


def _scaled(module: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return (arguments[0] * module.input_factors, *arguments[1:])


def _factors(part: Any) -> Any:
    """What the input of a module is multiplied by before anything else; None when by nothing."""
    return getattr(getattr(part, _INPUT, None), "pre_quant_scale", None)


def _is_quantizer(child: Any) -> bool:
    return type(child).__module__.startswith(_PACKAGE) and type(child).__name__.endswith("Quantizer")


def _enabled(module: Any) -> dict[str, Any]:
    """Full name -> each quantizer that is switched on; those inside another are left to it."""
    found: dict[str, Any] = {}
    for name, part in module.named_modules():
        if _is_quantizer(part) and not any(name.startswith(f"{outer}.") for outer in found) and getattr(part, "is_enabled", True):
            found[name] = part
    return found


def _roles(module: Any, owner: str) -> set[str]:
    return {name.removeprefix(f"{owner}.") for name in _enabled(module) if name.startswith(f"{owner}.")}


def _quantized(part: Any, name: str) -> Quantized:
    """How the module called `name` is quantized.

    Raises:
        ModelError: In a way that cannot be written as it is.
    """
    weight, inputs = getattr(part, _WEIGHT), getattr(part, _INPUT, None)
    _check(weight, f"{name}.{_WEIGHT}")
    kind = _FORMATS[weight.num_bits]
    most = None
    if inputs is not None and getattr(inputs, "is_enabled", True):
        _check(inputs, f"{name}.{_INPUT}")
        if kind == "int4" or _FORMATS[inputs.num_bits] != kind:
            raise ModelError(
                f"ModelOpt quantizes the weight of {name!r} to {kind} and its input to {_FORMATS[inputs.num_bits]}", hint="use one format for both"
            )
        most = float(inputs.amax.detach())
    elif kind != "int4":
        raise ModelError(f"ModelOpt quantizes the weight of {name!r} to {kind} and not its input, which no target runs", hint="quantize inputs too, or to INT4")
    array = part.weight.detach().float().cpu().numpy()
    array = np.moveaxis(array, 1, 0) if getattr(part, "transposed", False) else array
    sizes = weight.block_sizes or {}
    block = int(sizes.get(-1) or sizes.get(array.ndim - 1) or 0)
    largest = weight.amax.detach().float().cpu().numpy()
    blocks = -(-array.shape[-1] // block) if block else 0
    if block and array.ndim != _MATRIX:
        return Quantized(kind, array, np.zeros(0, np.float32), block, None)
    if largest.size != (len(array) * blocks if block else 1) and largest.size != len(array):
        raise ModelError(f"the scales of the weight of {name!r} lie along another axis than its output channels", hint="see `axis` in ModelOpt's configuration")
    shape = (len(array), blocks) if block else () if largest.size == 1 else (len(array),)
    return Quantized(kind, array, largest.reshape(shape), block, most, most is not None and bool(getattr(inputs, "unsigned", False)))


def _check(quantizer: Any, name: str) -> None:
    """Refuse what our documents cannot say."""
    bits = getattr(quantizer, "num_bits", None)
    kinds = ("dynamic" in (getattr(quantizer, "block_sizes", None) or {}).values(), bool(getattr(quantizer, "_dynamic", False)))
    if bits not in _FORMATS:
        what = "is made of several" if bits is None else f"writes {bits} bits"
        raise ModelError(f"ModelOpt's quantizer {name!r} {what}", hint="INT8, FP8 (E4M3), and INT4 weights are read")
    if any(kinds):
        raise ModelError(f"ModelOpt's quantizer {name!r} finds its scale while running", hint="give it a fixed one, by calibration")
    if getattr(quantizer, "rotate_is_enabled", False):
        raise ModelError(f"ModelOpt's quantizer {name!r} rotates what it quantizes", hint="switch rotation off")
    if getattr(quantizer, "amax", None) is None:
        raise ModelError(f"ModelOpt's quantizer {name!r} has no scale yet", hint="calibrate the model: mtq.quantize(model, config, forward_loop)")
    if name.endswith(_INPUT) and quantizer.amax.numel() != 1:
        raise ModelError(f"ModelOpt's quantizer {name!r} has a scale for each channel", hint="inputs want one scale")
