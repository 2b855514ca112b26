"""Inputs and outputs of a model as Triton is told of them: names, types, dimensions with and without a batch axis."""

from __future__ import annotations

from collections.abc import Sequence

from quant.core.signature import Signature, TensorSpec
from quant.errors import TargetError
from quant.targets.model_repository.text import Message, Word

_TYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "bfloat16": "BF16",
    "object": "STRING",
}


def no_batch_axis(signature: Signature) -> str:
    """Why Triton cannot put requests together into one batch; empty when it can: the first axis of all is free, and all inputs share it.

    Example:
        >>> x, y = TensorSpec("x", "float32", ("N", 4)), TensorSpec("y", "float32", ("N", 2))
        >>> no_batch_axis(Signature((x,), (y,)))
        ''
        >>> no_batch_axis(Signature((x,), (TensorSpec("y", "float32", (1, 2)),)))
        "the first axis of output 'y' has the fixed length 1"
    """
    for noun, specs in (("input", signature.inputs), ("output", signature.outputs)):
        for spec in specs:
            if not spec.shape:
                return f"{noun} {spec.name!r} has no axes" if spec.shape is not None else f"{noun} {spec.name!r} has no known number of axes"
            if isinstance(spec.shape[0], int):
                return f"the first axis of {noun} {spec.name!r} has the fixed length {spec.shape[0]}"
    firsts = {str(spec.shape[0]): spec.name for spec in signature.inputs if spec.shape}
    if len(firsts) > 1:
        one, other = list(firsts.items())[:2]
        return f"the first axes of inputs {one[1]!r} and {other[1]!r} are called {one[0]} and {other[0]}: they need not be equally long"
    return ""


def described(specs: Sequence[TensorSpec], names: Sequence[str], *, batched: bool) -> list[Message]:
    """What a configuration says of `specs`, which Triton is to call `names`; with `batched`, without the first axis.

    Raises:
        TargetError: A tensor of unknown rank, or of a type that Triton has none for.
    """
    return [_one(spec, name, batched=batched) for spec, name in zip(specs, names, strict=True)]


def triton_type(spec: TensorSpec) -> str:
    """Triton's name for the element type of `spec`.

    Raises:
        TargetError: It has none.
    """
    if spec.dtype not in _TYPES:
        raise TargetError(f"Triton has no type for {spec.dtype}", where=f"tensor {spec.name!r}", hint="cast it in the model")
    return f"TYPE_{_TYPES[spec.dtype]}"


def dims_of(spec: TensorSpec, *, batched: bool) -> list[int]:
    """Dimensions of `spec`; -1 where any length will do, the batch axis left out.

    Raises:
        TargetError: Its rank is unknown.
    """
    if spec.shape is None:
        raise TargetError("Triton must be told the number of axes, and the model does not know it", where=f"tensor {spec.name!r}")
    return [d if isinstance(d, int) else -1 for d in spec.shape[int(batched) :]]


def _one(spec: TensorSpec, name: str, *, batched: bool) -> Message:
    dims = dims_of(spec, batched=batched)
    told: dict[str, object] = {"name": name, "data_type": Word(triton_type(spec)), "dims": dims or [1]}
    if not dims:
        told["reshape"] = {}  # a configuration must name one axis at least; the model itself gets none
    return told
