"""Times of ONNX Runtime's kernels, from its own profiler, and the layers that they compute."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.core.costs import KernelTime
from quant.graph.runtime import Optimize, Runtime, plain_options, start_session
from quant.targets.ort.names import PREPARING, find, names_of, original

_SUFFIX = "_kernel_time"
_LAYOUT = "_nchwc"  # what a float convolution is called in ONNX Runtime's own layout, behind the name of what it makes
_MICROSECONDS, _MILLISECONDS = 1e-3, 1e3
_CODES = frozenset({"uint8", "int8"})
Feed = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Timed:
    """What ONNX Runtime's profiler said: kernels with their times (medians), and the quickest whole run, in milliseconds."""

    kernels: tuple[KernelTime, ...]
    total_ms: float


def profile(path: Path, feeds: Sequence[Feed], layers: Mapping[str, str], *, providers: list[tuple[str, dict[str, str]]], threads: int, runs: int) -> Timed:
    """Run the model in `path` on every one of `feeds`, `runs` times, after one run that does not count.

    Args:
        path: The model.
        feeds: Requests; times are means over them of medians over the runs of each.
        layers: Layer -> the tensor that it makes.
        providers: What runs it.
        threads: Threads of one run.
        runs: How often each request is run.
    """
    graph, events = _run(path, feeds, providers, threads=threads, runs=runs)
    kernels: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and str(event["name"]).endswith(_SUFFIX):
            kernels[str(event["name"]).removesuffix(_SUFFIX)].append(event)
    computes = _computes(graph, path, layers, providers)
    near = _nearest(graph, computes)
    told = [
        KernelTime(
            kernel=str(node.name),
            op=node.op_type,
            ms=_typical([event["dur"] for event in kernels[str(node.name)]], len(feeds)),
            layers=computes.get(id(node), ()),
            near=near.get(id(node)),
            converts=_converted(node),
            **_made(kernels[str(node.name)]),
        )
        for node in graph
        if str(node.name) in kernels
    ]
    whole = _whole(path, feeds, providers, threads=threads, runs=runs)
    # A machine that is busy just then makes whole runs longer, but not what lies between kernels of one run.
    return Timed(tuple(told), min(whole, sum(kernel.ms for kernel in told) + _between(events)))


def _between(events: Sequence[Mapping[str, Any]]) -> float:
    """Milliseconds of a run in which no kernel runs, median: each run less the kernels within it."""
    kernels = sorted((event["ts"], event["dur"]) for event in events if event.get("cat") == "Node" and str(event["name"]).endswith(_SUFFIX))
    starts = [start for start, _spent in kernels]
    gaps = []
    for event in events:
        if event["name"] == "model_run":
            first, last = bisect_left(starts, event["ts"]), bisect_left(starts, event["ts"] + event["dur"])
            gaps.append(event["dur"] - sum(spent for _start, spent in kernels[first:last]))
    return float(max(statistics.median(gaps), 0.0)) * _MICROSECONDS


def _whole(path: Path, feeds: Sequence[Feed], providers: list[tuple[str, dict[str, str]]], *, threads: int, runs: int) -> float:
    """Milliseconds of a whole run, without the profiler, which takes time, too.

    What else runs on the machine only adds to a run, and adds to nearly every one: the quickest tells most. A kernel is short enough for a median.
    """
    session = Runtime(path, threads=threads, providers=providers)
    spent = np.zeros((runs + 1, len(feeds)))
    for number in range(runs + 1):
        for at, feed in enumerate(feeds):
            start = time.perf_counter()
            session.run(feed)
            spent[number, at] = time.perf_counter() - start
    return float(spent[1:].min(axis=0).mean()) * _MILLISECONDS


def _run(path: Path, feeds: Sequence[Feed], providers: list[tuple[str, dict[str, str]]], *, threads: int, runs: int) -> tuple[ir.Graph, list[dict[str, Any]]]:
    """(the graph as ONNX Runtime runs it, what its profiler wrote down)."""
    with tempfile.TemporaryDirectory() as folder:
        options = plain_options(threads=threads)
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = start_session(str(path), _written(options, Path(folder)), providers, where=str(path))
        for _ in range(runs + 1):
            for feed in feeds:
                session.run(None, {i.name: feed[i.name] for i in session.get_inputs()})
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        return ir.load(Path(folder) / "optimized.onnx").graph, events


def _written(options: Any, folder: Path) -> Any:
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "optimized.data")
    return options


def _typical(durations: Sequence[float], feeds: int) -> float:
    """Milliseconds: the mean over requests of the median over their runs but the first."""
    times = np.asarray(durations, np.float64)
    per_run = len(times) // feeds  # a kernel inside a loop runs more often than once
    rounds = times[: per_run * feeds].reshape(per_run, feeds)[1:] if per_run > 1 else times[None, :]
    return statistics.fmean(np.median(rounds, axis=0)) * _MICROSECONDS


def _made(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Whether a kernel makes codes, and how many elements, by what the profiler saw."""
    shapes = events[-1]["args"].get("output_type_shape") or []
    first = next(iter(shapes[0].items()), None) if shapes else None
    return {} if first is None else {"codes": first[0] in _CODES, "elements": int(np.prod(first[1], dtype=np.int64))}


def _converted(node: ir.Node) -> str | None:
    source = node.inputs[0] if node.op_type in PREPARING and node.inputs else None
    return None if source is None else original(str(source.name))


def _computes(graph: ir.Graph, path: Path, layers: Mapping[str, str], providers: list[tuple[str, dict[str, str]]]) -> dict[int, tuple[str, ...]]:
    """Id of a node -> the layers that it computes."""
    named: dict[str, ir.Node] = {}
    weights = graph.initializers
    for node in graph:
        if node.op_type not in PREPARING:
            for name in names_of(node, weights):
                named.setdefault(name, node)
    found: dict[int, tuple[str, ...]] = {}
    missing: dict[str, str] = {}
    for layer, output in layers.items():
        computing = find(named, layer, output)
        if computing is None:
            missing[layer] = output
        else:
            found[id(computing)] = (*found.get(id(computing), ()), layer)
    if missing:
        before = _before_layout(path, providers)
        for layer, output in missing.items():
            made = find(before, layer, output)
            for node in [named[name + _LAYOUT] for name in made or () if name + _LAYOUT in named][:1]:
                found[id(node)] = (*found.get(id(node), ()), layer)
    return found


def _before_layout(path: Path, providers: list[tuple[str, dict[str, str]]]) -> dict[str, tuple[str, ...]]:
    """Name -> names of what the node that goes by it makes, in the graph before its layout is changed, which takes names away."""
    level: Optimize = "extended"
    with tempfile.TemporaryDirectory() as folder:
        start_session(str(path), _written(plain_options(optimize=level), Path(folder)), providers, where=str(path))
        graph = ir.load(Path(folder) / "optimized.onnx").graph
        found: dict[str, tuple[str, ...]] = {}
        for node in graph:
            for name in names_of(node, graph.initializers):
                found.setdefault(name, tuple(str(v.name) for v in node.outputs))
        return found


def _nearest(graph: ir.Graph, computes: Mapping[int, tuple[str, ...]]) -> dict[int, str]:
    """Id of a node that computes no layer -> the last layer among the nearest before it."""
    steps: dict[int, tuple[int, int, str]] = {}
    found: dict[int, str] = {}
    for number, node in enumerate(graph):
        own = computes.get(id(node))
        if own:
            steps[id(node)] = (0, -number, own[-1])
            continue
        before = [steps[id(maker)] for v in node.inputs if v is not None and (maker := v.producer()) is not None and id(maker) in steps]
        if before:
            distance, at, layer = min(before)
            steps[id(node)] = (distance + 1, at, layer)
            found[id(node)] = layer
    return found
