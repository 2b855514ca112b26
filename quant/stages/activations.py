"""activations: some rows of what layers multiply, from calibration data; few, so that all of them fit into memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.core.progress import progress
from quant.data.samples import Samples
from quant.graph.importing.clean_up import remove_unused
from quant.graph.layers import Layer
from quant.graph.model import opset, read_model
from quant.graph.patches import cut_rows, matrices, same_rows
from quant.graph.probes import add_outputs
from quant.graph.runtime import Runtime
from quant.stages.running import Array, Feeding, Outputs, run_samples
from quant.transforms import Extremes, Rows

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Cut = TypeVar("Cut")
_AXES_ARE_AN_INPUT = 18
"""The operator set from which ReduceMean takes its axes as an input."""
_INPUT_ROWS = 4096
"""Rows of what a layer multiplies, about as many as may be needed to tell how 1,536 channels move together."""
_INPUT_BYTES = 1 << 29
"""Most that rows of several layers take; those of further layers are had by further passes."""


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
    share = max(1, -(-2 * rows // _feeds(samples)))
    parts = _pass(path, samples, tensors, feeding, lambda arrays: {name: _spread(arrays[name], share) for name in tensors})
    return {name: _joined([part[name] for part in parts], rows) for name in sorted(tensors)}


def gather_inputs(path: Path, samples: Samples, layers: Collection[Layer], feeding: Feeding) -> Iterator[tuple[list[Layer], Floats]]:
    """Rows, or patches, that `layers` multiply in the FP32 model, spread evenly over `samples`.

    Args:
        path: The FP32 model.
        samples: Calibration samples.
        layers: Layers that are products (`quant.graph.patches.is_product`).
        feeding: How samples go in.

    Yields:
        Layers that multiply the same rows, and these, float32 `[groups, rows, in]`, at most 4,096 of them and the same whatever
        the number of threads. Those of one feed lie together, feeds in the order of their contents.
    """
    alike: dict[tuple[Any, ...], list[Layer]] = {}
    for layer in layers:
        alike.setdefault(same_rows(layer), []).append(layer)
    share = max(1, _INPUT_ROWS // _feeds(samples))
    for keys in _bounded({key: _INPUT_ROWS * matrices(found[0])[:, 0].nbytes for key, found in alike.items()}):

        def cut(arrays: Mapping[str, Array], keys: Sequence[tuple[Any, ...]] = keys) -> dict[tuple[Any, ...], Floats]:
            return {key: cut_rows(alike[key][0], arrays[key[0]], share) for key in keys}

        parts = _pass(path, samples, {str(key[0]) for key in keys}, feeding, cut)
        for key in keys:
            yield alike[key], np.concatenate([part.pop(key) for part in parts], axis=1)[:, :_INPUT_ROWS]


def gather_means(model: ir.Model, tensors: Mapping[str, int], folder: Path, samples: Samples, feeding: Feeding) -> dict[str, Doubles]:
    """Mean of each channel of tensors of a graph, every feed counted alike; the same whatever the number of threads.

    Args:
        model: The graph; it stays as it is.
        tensors: Name -> axis of its channels.
        folder: Where external data of the graph lie.
        samples: Calibration samples.
        feeding: How samples go in.

    Returns:
        Name -> float64 `[channels]`.
    """
    watched = model.clone()
    graph = watched.graph
    values = {str(v.name): v for node in graph for v in node.outputs}
    if not feeding.state:  # nothing behind the tensors need be computed
        graph.outputs.clear()
    means = {}
    for number, (name, axis) in enumerate(sorted(tensors.items())):
        mean = _mean(values[name], axis, opset(watched), f"quant_mean_{number}")
        graph.extend(mean)
        graph.outputs.append(mean[-1].outputs[0])
        means[f"quant_mean_{number}"] = name
    remove_unused(watched)
    parts = _taken(Runtime(watched, folder=folder, optimize=False), samples, feeding, lambda _, outputs: {means[n]: outputs[n] for n in means})
    return {name: np.mean([part[name] for part in parts], axis=0, dtype=np.float64) for name in tensors}


def _mean(value: ir.Value, axis: int, version: int, name: str) -> list[ir.Node]:
    """Nodes that give the mean of `value` over all axes but one, as `name`."""
    assert value.shape is not None, "what layers give has a rank"
    others = [a for a in range(len(value.shape)) if a != axis % len(value.shape)]
    made = ir.Value(name=name)
    if version < _AXES_ARE_AN_INPUT:
        return [ir.node("ReduceMean", [value], {"axes": others, "keepdims": 0}, outputs=[made])]
    axes = ir.node("Constant", [], {"value": ir.tensor(np.array(others, np.int64))}, outputs=[ir.Value(name=f"{name}_axes")])
    return [axes, ir.node("ReduceMean", [value, axes.outputs[0]], {"keepdims": 0}, outputs=[made])]


def _feeds(samples: Samples) -> int:
    return max(1, sum(len(sample.feeds) for sample in samples))


def _bounded(sizes: Mapping[tuple[Any, ...], int]) -> Iterator[list[tuple[Any, ...]]]:
    """The keys, in order, in groups whose sizes add up to `_INPUT_BYTES` at most, or of one."""
    group: list[tuple[Any, ...]] = []
    held = 0
    for key, size in sizes.items():
        if group and held + size > _INPUT_BYTES:
            yield group
            group, held = [], 0
        group.append(key)
        held += size
    if group:
        yield group


def _pass(path: Path, samples: Samples, tensors: Collection[str], feeding: Feeding, cut: Callable[[Mapping[str, Array]], Cut]) -> list[Cut]:
    """What `cut` takes of `tensors`, feed by feed, in the order of the feeds' contents."""
    model = read_model(path)
    inputs = {str(v.name) for v in model.graph.inputs}
    add_outputs(model, sorted(name for name in tensors if name not in inputs))
    return _taken(Runtime(model, folder=path.parent), samples, feeding, lambda feed, outputs: cut({n: feed[n] if n in inputs else outputs[n] for n in tensors}))


def _taken(runtime: Runtime, samples: Samples, feeding: Feeding, take: Callable[[Mapping[str, Array], Mapping[str, Array]], Cut]) -> list[Cut]:
    """What `take` takes of every feed and what the model gives for it, in the order of the feeds' contents."""
    found: list[tuple[bytes, Cut]] = []
    keep = {spec.name for spec in feeding.signature.outputs}
    lock = Lock()

    def collect(feed: Mapping[str, Array]) -> Outputs:
        outputs = runtime.run(feed)
        chosen = take(feed, outputs)
        with lock:
            found.append((_key(feed), chosen))
        return {name: array for name, array in outputs.items() if name in keep}

    with progress("looking at activations", len(samples)) as advance:
        for _ in run_samples(collect, samples, replace(feeding, batch_size=1)):
            advance(1)
    found.sort(key=lambda pair: pair[0])
    return [chosen for _, chosen in found]


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
