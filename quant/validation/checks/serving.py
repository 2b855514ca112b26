"""As a server will meet it: odd requests, sustained load, and the recipe's limits."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from quant.validation.check import CHECKS, OfCandidate
from quant.validation.findings import Checked, Finding, judged, skipped
from quant.validation.memory import growth
from quant.validation.subject import Subject

_ELSEWHERE = "its engine runs on other machines"
_NOT_LOADED = "a fresh process cannot run it"
_MIB = 1 << 20


@CHECKS.add
class OddRequests(OfCandidate):
    """Single, many, the shortest, the longest, all zero, extremes: nothing crashes, and nothing is not finite where FP32 is."""

    kind: ClassVar[str] = "requests"
    title: ClassVar[str] = "odd requests are answered with finite numbers"
    order: ClassVar[int] = 100

    def look(self, subject: Subject) -> Checked:
        """Compare every answer with FP32's."""
        if subject.fault:
            return skipped(_NOT_LOADED)
        fresh, found = subject.fresh, []
        for answer in fresh.served.answers:
            fp32 = fresh.fp32.get(answer.request)
            if fp32 is None:
                continue
            if answer.error:
                found.append(Finding(kind="request", where=answer.request, what=f"is refused: {answer.error}"))
            found += [
                Finding(kind="request", where=answer.request, tensor=name, what=f"output {name!r} is not finite, FP32's is")
                for name in answer.not_finite
                if name in fp32 and np.isfinite(fp32[name]).all()
            ]
        refused = [request.name for request in fresh.odd if request.name not in fresh.fp32]
        asked = ", ".join(answer.request for answer in fresh.served.answers if answer.request not in refused)
        return judged(found, asked + (f"; FP32 itself refuses {', '.join(refused)}" if refused else ""))


@CHECKS.add
class UnderLoad(OfCandidate):
    """Several threads for a while: every output is bit for bit that of one thread, and memory is flat."""

    kind: ClassVar[str] = "load"
    title: ClassVar[str] = "under load outputs stay the same and memory stays flat"
    order: ClassVar[int] = 110

    def look(self, subject: Subject) -> Checked:
        """Look at what came of the load."""
        if subject.fault:
            return skipped(_NOT_LOADED)
        load, threads = subject.fresh.served.under_load, subject.delivery.serving.threads
        if load is None:
            return skipped(_ELSEWHERE)
        found = []
        if load.error:
            found.append(Finding(kind="run", where="load", what=f"a request was refused: {load.error}"))
        if not load.repeatable:
            found.append(Finding(kind="run", where="load", what="one thread alone gives other outputs for the same request"))
        if load.different:
            what = f"{load.different} of {load.requests} answers are not those of a single thread, the first: {load.first_different}"
            found.append(Finding(kind="run", where="load", what=what))
        grown = growth(load.rss, threads=threads)
        said = f"{load.requests} requests from {threads} threads in {load.seconds:.1f} s, all as from one"
        if grown is None:
            return judged(found, f"{said}; memory could not be watched, the time was too short")
        memory = (
            f"memory {grown.grown / 1024:+.0f} KiB in {grown.seconds:.1f} s once settled ({grown.slope / 1024:+.1f} KiB/s), {grown.allowed / 1024:.0f} allowed"
        )
        if not grown.is_flat:
            found.append(Finding(kind="run", where="memory", what=memory))
        return judged(found, f"{said}; {memory}")


@CHECKS.add
class Limits(OfCandidate):
    """First inference, memory, p99, throughput and size are within the recipe's limits."""

    kind: ClassVar[str] = "limits"
    title: ClassVar[str] = "times, memory and size are within the recipe's limits"
    order: ClassVar[int] = 120

    def look(self, subject: Subject) -> Checked:
        """Hold what the fresh process measured to `limits`."""
        limits = subject.workshop.bound.loaded.recipe.limits
        size = sum((subject.folder / name).stat().st_size for name in subject.files)
        found: list[Finding] = []
        said: list[str] = []

        def hold(name: str, value: float, most: float | None, unit: str, *, least: bool = False) -> None:
            if most is None:
                return
            said.append(f"{name} {value:.4g} {unit} ({'at least' if least else 'at most'} {most:g})")
            if value < most if least else value > most:
                found.append(Finding(kind="limit", where=name, what=f"{value:.4g} {unit}, {'at least' if least else 'at most'} {most:g} is allowed"))

        hold("size_mib", size / _MIB, limits.size_mib, "MiB")
        timed = [limits.first_inference_s, limits.memory_mib, limits.p99_ms, limits.throughput_per_s]
        if all(limit is None for limit in [*timed, limits.size_mib]):
            return skipped("the recipe has no limits")
        if any(limit is not None for limit in timed):
            if subject.fault:
                return skipped(_NOT_LOADED)
            served = subject.fresh.served
            if served.latency is None:
                return judged(found, "; ".join([*said, f"times and memory say nothing here: {_ELSEWHERE}"]))
            hold("first_inference_s", served.load_s + served.first_run_s, limits.first_inference_s, "s")
            hold("memory_mib", served.peak_bytes / _MIB, limits.memory_mib, "MiB")
            hold("p99_ms", served.latency.p99_ms, limits.p99_ms, "ms")
            hold("throughput_per_s", served.latency.throughput_per_s, limits.throughput_per_s, "/s", least=True)
        return judged(found, "; ".join(said))
