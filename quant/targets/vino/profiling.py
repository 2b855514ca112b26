"""Times of OpenVINO's kernels, from its own performance counters, and the layers that they compute."""

from __future__ import annotations

import math
import re
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quant.core.costs import KernelTime

_CONVERTS = frozenset({"FakeQuantize", "Convert", "Subgraph"})
_PART = re.compile(r"(Multiply|Subtract|Add|Convert|Round|Clamp)_\d+")
_CODES = frozenset({"i8", "u8", "i4", "u4"})
_QUANTIZER = re.compile(r"_(QuantizeLinear|DequantizeLinear)(_\d+)?$")
_EXECUTED = "EXECUTED"
_MILLISECONDS = 1e3


@dataclass(frozen=True)
class Timed:
    """What OpenVINO's counters said: kernels with their times (medians), and the quickest whole run, in milliseconds."""

    kernels: tuple[KernelTime, ...]
    total_ms: float


Feed = Mapping[str, npt.NDArray[Any]]


def profile(counting: Any, plain: Any, feeds: Sequence[Feed], computes: Mapping[str, str], *, runs: int) -> Timed:
    """Run a model on every one of `feeds`, `runs` times, after one run that does not count.

    Args:
        counting: An `openvino.CompiledModel` with performance counters.
        plain: The same model without them: counting takes time, too.
        feeds: Requests; times are means over them of medians over the runs of each.
        computes: Layer -> name of the kernel that computes it.
        runs: How often each request is run.
    """
    times: dict[str, list[list[float]]] = defaultdict(lambda: [[] for _ in feeds])
    ops: dict[str, str] = {}
    between: list[float] = []
    for at, request, ms in _runs(counting, feeds, runs):
        executed = [info for info in request.get_profiling_info() if info.status.name == _EXECUTED]
        between.append(ms - sum(info.real_time.total_seconds() for info in executed) * _MILLISECONDS)
        for info in executed:
            times[info.node_name][at].append(info.real_time.total_seconds() * _MILLISECONDS)
            ops[info.node_name] = info.node_type
    whole: list[list[float]] = [[] for _ in feeds]
    for at, _request, ms in _runs(plain, feeds, runs):
        whole[at].append(ms)
    # What else runs on the machine only adds to a run, and adds to nearly every one: the quickest tells most. A kernel is short enough for a median,
    # and so is what lies between kernels of one run.
    told = _kernels(counting.get_runtime_model(), times, ops, computes, len(feeds))
    most = sum(kernel.ms for kernel in told) + max(statistics.median(between), 0.0)
    return Timed(told, min(statistics.fmean(map(min, whole)), most))


def _runs(compiled: Any, feeds: Sequence[Feed], runs: int) -> Iterator[tuple[int, Any, float]]:
    """(number of the feed, the request that ran, milliseconds) of every run but the first of each feed, in which kernels are chosen and caches filled."""
    inputs = tuple(port.get_node().get_friendly_name() for port in compiled.inputs)
    request = compiled.create_infer_request()
    for number in range(runs + 1):
        for at, feed in enumerate(feeds):
            given = {i: np.asarray(feed[name], order="C") for i, name in enumerate(inputs)}
            start = time.perf_counter()
            request.infer(given, share_inputs=True)
            if number:
                yield at, request, (time.perf_counter() - start) * _MILLISECONDS


def _kernels(
    executed: Any, times: Mapping[str, Sequence[Sequence[float]]], ops: Mapping[str, str], computes: Mapping[str, str], feeds: int
) -> tuple[KernelTime, ...]:
    layers: dict[str, tuple[str, ...]] = {}
    for layer, kernel in computes.items():
        layers[kernel] = (*layers.get(kernel, ()), layer)
    ordered = executed.get_ordered_ops()
    near = _nearest(ordered, layers)
    told: list[KernelTime] = []
    for kernel in ordered:
        name = kernel.get_friendly_name()
        if name not in times:
            continue
        ms = sum(statistics.median(each) for each in times[name] if each) / feeds
        own = layers.get(name, ())
        codes, elements = _made(kernel)
        near_it, converts = near.get(name), _converted(kernel, name, ops[name])
        told.append(KernelTime(kernel=name, op=ops[name], ms=ms, layers=own, near=near_it, converts=converts, codes=codes, elements=elements))
    known = {kernel.kernel for kernel in told}
    # Kernels that OpenVINO adds when it runs (reorders of layouts, say) are no part of the graph that it shows.
    added = [name for name in times if name not in known]
    return (*told, *(KernelTime(kernel=name, op=ops[name], ms=sum(statistics.median(each) for each in times[name] if each) / feeds) for name in sorted(added)))


def _made(kernel: Any) -> tuple[bool, int]:
    """Whether a kernel makes codes, and how many elements; 0 where its shape depends on the input."""
    if kernel.get_output_size() == 0:
        return False, 0
    shape = kernel.get_output_partial_shape(0)
    elements = math.prod(shape.to_shape()) if shape.is_static else 0
    return str(kernel.get_output_element_type(0).get_type_name()) in _CODES, elements


def _converted(kernel: Any, name: str, op: str) -> str | None:
    """The tensor that a quantizer was written for, when the kernel does nothing else."""
    if op not in _CONVERTS or not _QUANTIZER.search(name):
        return None
    merged = str(kernel.get_rt_info()["originalLayersNames"].astype(str)).split(",")
    # What has no name of the model is part of how OpenVINO writes a quantizer: a Multiply or a Subtract with a number behind it.
    others = [one for one in merged if one and not _QUANTIZER.search(one) and not _PART.fullmatch(one)]
    return None if others else _QUANTIZER.sub("", name)


def _nearest(ordered: Sequence[Any], layers: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Kernel that computes no layer -> the last layer among the nearest before it."""
    steps: dict[str, tuple[int, int, str]] = {}
    found: dict[str, str] = {}
    for number, kernel in enumerate(ordered):
        name = kernel.get_friendly_name()
        if own := layers.get(name):
            steps[name] = (0, -number, own[-1])
            continue
        makers = (port.get_source_output().get_node().get_friendly_name() for port in kernel.inputs())
        before = [steps[maker] for maker in makers if maker in steps]
        if before:
            distance, at, layer = min(before)
            steps[name] = (distance + 1, at, layer)
            found[name] = layer
    return found
