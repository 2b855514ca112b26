"""Warm-up requests: what Triton sends to a model before it serves, so that nobody waits for what is made at the first request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from quant.core.files import write_bytes
from quant.core.signature import TensorSpec
from quant.errors import TargetError
from quant.targets import Shapes
from quant.targets.model_repository.configuration import Served
from quant.targets.model_repository.options import Warmup
from quant.targets.model_repository.tensors import dims_of, triton_type
from quant.targets.model_repository.text import Message, Word, entries

FOLDER = "warmup"
"""Where Triton looks for the data of warm-up requests, in the model's folder."""

Feed = Mapping[str, npt.NDArray[Any]]


def requests(served: Served, folder: Path, *, shapes: Mapping[str, Shapes], samples: Sequence[Feed]) -> list[Message]:
    """The warm-up requests of a configuration; samples are written into `folder`, the model's.

    Args:
        served: The model.
        folder: The model's folder.
        shapes: Shapes that the data give to inputs with dynamic dimensions.
        samples: Batches of the data.

    Raises:
        TargetError: A shape is missing or does not fit, a batch is larger than Triton makes, or there are no samples.
    """
    warmup, largest = served.options.warmup, served.max_batch_size()
    if warmup is None:
        return []
    if unknown := sorted(set(warmup.shapes) - {spec.name for spec in served.signature.inputs}):
        raise TargetError(f"`warmup.shapes` names {unknown[0]!r}, which is no input", hint=f"inputs: {', '.join(s.name for s in served.signature.inputs)}")
    if warmup.data == "samples" and not samples:
        raise TargetError("warm-up is to be done with samples, and there are none", hint="give `warmup: {data: zero}`")
    sizes = sorted(set(warmup.batch_sizes)) if largest else [0]
    if sizes[-1] > largest:
        raise TargetError(f"a warm-up request of {sizes[-1]} samples is more than max_batch_size, {largest}")
    found: list[Message] = []
    for size in sizes:
        inputs: dict[str, Message] = {}
        for name, spec in zip(served.inputs, served.signature.inputs, strict=True):
            if warmup.data == "samples":
                inputs[name] = _stored(spec, _rows([feed[spec.name] for feed in samples], size), folder, batched=size > 0)
            else:
                inputs[name] = _made(spec, warmup, shapes.get(spec.name), batched=size > 0)
        found.append({"name": f"{size} samples" if size else "one request", "batch_size": size, "inputs": entries(inputs), "count": warmup.count})
    return found


def _made(spec: TensorSpec, warmup: Warmup, seen: Shapes | None, *, batched: bool) -> Message:
    """An input of zeros or of random values."""
    dims = dims_of(spec, batched=batched)
    given = list(warmup.shapes.get(spec.name) or (seen.usual[int(batched) :] if seen else ()))
    without = " without the batch axis" if batched else ""
    if given and (len(given) != len(dims) or any(d not in {-1, g} for d, g in zip(dims, given, strict=True))):
        raise TargetError(f"warm-up gives input {spec.name!r} the shape {given}, and the model wants {dims}{without}")
    if -1 in dims and not given:
        what = f"warm-up needs a shape for input {spec.name!r}, whose dimensions{without} are {dims}"
        raise TargetError(what, hint=f"give `warmup: {{shapes: {{{spec.name}: [...]}}}}`")
    data: Message = {"random_data": True} if warmup.data == "random" else {"zero_data": True}
    return {"data_type": Word(triton_type(spec)), "dims": given or dims or [1], **data}


def _rows(batches: Sequence[npt.NDArray[Any]], size: int) -> npt.NDArray[Any]:
    """`size` samples out of batches of the first one's shape, which come round again when there are too few; the first batch for 0."""
    if not size:
        return batches[0]
    alike = np.concatenate([batch for batch in batches if batch.shape[1:] == batches[0].shape[1:]])
    return alike[np.arange(size) % len(alike)]


def _stored(spec: TensorSpec, array: npt.NDArray[Any], folder: Path, *, batched: bool) -> Message:
    """An input whose bytes go into a file."""
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in spec.name) + (f".{len(array)}" if batched else "")
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    write_bytes(folder / FOLDER / name, np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes())
    dims = list(array.shape[int(batched) :])
    return {"data_type": Word(triton_type(spec)), "dims": dims or [1], "input_data_file": name}
