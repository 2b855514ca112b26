"""Warm-up requests: what Triton sends to a model before it serves, so that nobody waits for what is made at the first request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from quant.core.files import write_bytes
from quant.core.signature import TensorSpec
from quant.errors import TargetError
from quant.targets.model_repository.configuration import Served
from quant.targets.model_repository.options import Warmup
from quant.targets.model_repository.tensors import dims_of, triton_type
from quant.targets.model_repository.text import Message, Word, entries

FOLDER = "warmup"
"""Where Triton looks for the data of warm-up requests, in the model's folder."""


def requests(served: Served, folder: Path) -> list[Message]:
    """The warm-up requests of a configuration; real samples are written into `folder`, the model's.

    Raises:
        TargetError: A shape is missing or does not fit, a batch is larger than Triton makes, or the samples cannot be used.
    """
    warmup, largest = served.options.warmup, served.max_batch_size()
    if warmup is None:
        return []
    if unknown := sorted(set(warmup.shapes) - {spec.name for spec in served.signature.inputs}):
        raise TargetError(f"`warmup.shapes` names {unknown[0]!r}, which is no input", hint=f"inputs: {', '.join(s.name for s in served.signature.inputs)}")
    samples = _samples(warmup.samples, served) if warmup.samples else None
    sizes = sorted(set(warmup.batch_sizes)) if largest else [0]
    if sizes[-1] > largest:
        raise TargetError(f"a warm-up request of {sizes[-1]} samples is more than max_batch_size, {largest}")
    found: list[Message] = []
    for size in sizes:
        inputs = {
            name: _from_samples(spec, samples[spec.name], size, folder) if samples is not None else _made(spec, warmup, batched=largest > 0)
            for name, spec in zip(served.inputs, served.signature.inputs, strict=True)
        }
        found.append({"name": f"{size} samples" if size else "one request", "batch_size": size, "inputs": entries(inputs), "count": warmup.count})
    return found


def _made(spec: TensorSpec, warmup: Warmup, *, batched: bool) -> Message:
    """An input of zeros or of random values."""
    dims = dims_of(spec, batched=batched)
    given = list(warmup.shapes.get(spec.name, ()))
    if given and (len(given) != len(dims) or any(d not in {-1, g} for d, g in zip(dims, given, strict=True))):
        raise TargetError(f"`warmup.shapes` gives input {spec.name!r} the shape {given}, and the model wants {dims}{' without the batch axis' * batched}")
    if -1 in dims and not given:
        raise TargetError(
            f"warm-up needs a shape for input {spec.name!r}, whose dimensions{' without the batch axis' * batched} are {dims}",
            hint=f"give `warmup: {{shapes: {{{spec.name}: [...]}}}}`, or `samples`",
        )
    data: Message = {"random_data": True} if warmup.data == "random" else {"zero_data": True}
    return {"data_type": Word(triton_type(spec)), "dims": given or dims or [1], **data}


def _from_samples(spec: TensorSpec, array: npt.NDArray[Any], size: int, folder: Path) -> Message:
    """An input with the first `size` samples, whose bytes go into a file."""
    if size > len(array):
        raise TargetError(f"a warm-up request of {size} samples needs as many, and the file has {len(array)} for input {spec.name!r}")
    chosen = array[:size] if size else array
    file = f"{spec.name}.{size}" if size else spec.name
    safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in file)
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    write_bytes(folder / FOLDER / safe, np.ascontiguousarray(chosen, dtype=chosen.dtype.newbyteorder("<")).tobytes())
    dims = list(chosen.shape[1:] if size else chosen.shape)
    return {"data_type": Word(triton_type(spec)), "dims": dims or [1], "input_data_file": safe}


def _samples(path: Path, served: Served) -> dict[str, npt.NDArray[Any]]:
    where = str(path)
    try:
        with np.load(path, allow_pickle=False) as stored:
            found = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, TypeError) as error:
        raise TargetError(f"warm-up samples cannot be read: {error}", where=where, hint="give a .npz with an array for every input") from error
    for spec in served.signature.inputs:
        if spec.name not in found:
            raise TargetError(f"warm-up samples lack input {spec.name!r}", where=where, hint=f"the file has {', '.join(sorted(found)) or 'no arrays'}")
        array = found[spec.name]
        fits = (
            spec.shape is not None
            and len(spec.shape) == array.ndim
            and all(not isinstance(d, int) or d == n for d, n in zip(spec.shape, array.shape, strict=True))
        )
        if str(array.dtype) != spec.dtype or not fits:
            raise TargetError(f"warm-up samples of input {spec.name!r} are {array.dtype}{list(array.shape)}, and the model wants {spec}", where=where)
    return found
