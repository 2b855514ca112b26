"""activations: some rows of what layers multiply, from calibration data; few, so that all of them fit into memory."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from quant.core.progress import progress
from quant.data.samples import Samples
from quant.graph.model import read_model
from quant.graph.probes import add_outputs
from quant.graph.runtime import Runtime
from quant.stages.running import Array, Feeding, Outputs, run_samples
from quant.transforms import Extremes, Rows


def gather_rows(path: Path, samples: Samples, tensors: Collection[str], feeding: Feeding, *, rows: int) -> dict[str, Rows]:
    """Some rows (along all axes but the last) of `tensors` in the FP32 model, spread evenly over half of the samples, and extremes of all rows.

    Args:
        path: The FP32 model.
        samples: Calibration samples.
        tensors: Names of the tensors.
        feeding: How samples go in.
        rows: Rows of each tensor, at most.

    Returns:
        Tensor -> its rows, the same whatever the number of threads.
    """
    model = read_model(path)
    inputs = {str(v.name) for v in model.graph.inputs}
    add_outputs(model, [name for name in tensors if name not in inputs])
    runtime = Runtime(model, folder=path.parent)
    share = max(1, -(-2 * rows // max(1, sum(len(sample.feeds) for sample in samples))))
    found: list[tuple[bytes, dict[str, tuple[Array, Extremes]]]] = []
    keep = {spec.name for spec in feeding.signature.outputs}
    lock = Lock()

    def collect(feed: Mapping[str, Array]) -> Outputs:
        outputs = runtime.run(feed)
        chosen = {name: _spread(feed[name] if name in inputs else outputs[name], share) for name in tensors}
        with lock:
            found.append((_key(feed), chosen))
        return {name: array for name, array in outputs.items() if name in keep}

    with progress("looking at activations", len(samples)) as advance:
        for _ in run_samples(collect, samples, replace(feeding, batch_size=1)):
            advance(1)
    found.sort(key=lambda pair: pair[0])
    return {name: _joined([chosen[name] for _, chosen in found], rows) for name in sorted(tensors)}


def _key(feed: Mapping[str, Array]) -> bytes:
    """What orders feeds: their content, for they come in any order."""
    content = hashlib.sha256()
    for name in sorted(feed):
        content.update(np.ascontiguousarray(feed[name]).tobytes())
    return content.digest()


def _spread(array: npt.NDArray[Any], count: int) -> tuple[npt.NDArray[np.float32], Extremes]:
    """`count` rows of `array`, evenly spaced, and the extremes of all."""
    table = array.reshape(-1, array.shape[-1]).astype(np.float32)
    positions = ((np.arange(count) + 0.5) * len(table) / count).astype(np.int64) if len(table) > count else np.arange(len(table))
    return table[positions], Extremes(table.min(axis=0), table.max(axis=0))


def _joined(parts: Sequence[tuple[npt.NDArray[np.float32], Extremes]], count: int) -> Rows:
    """Every other feed (in the order of their contents, which is none) guides, the others judge; one alone does both."""
    guides, judges = parts[::2], parts[1::2] or parts
    return Rows(np.concatenate([values for values, _ in judges])[:count], _extremes(guides), _extremes(parts))


def _extremes(parts: Sequence[tuple[npt.NDArray[np.float32], Extremes]]) -> Extremes:
    return Extremes(np.min([found.low for _, found in parts], axis=0), np.max([found.high for _, found in parts], axis=0))
