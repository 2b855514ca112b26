"""Compiling a model for the CPU, the same way wherever it is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quant.core.parallel import worker_count
from quant.errors import TargetError

GROUP = "DYNAMIC_QUANTIZATION_GROUP_SIZE"
_NOISE = ("Exception from ", "Check '", "FrontEnd API failed", "Summary:", "Model wasn't fully")


def settings(threads: int) -> dict[str, Any]:
    """What OpenVINO is told, for one request at a time on `threads` threads.

    The precision of float layers cannot be written into the artifact (the CPU plug-in does not read it there), so it is told here.
    """
    return {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        # Threads that are free to move met on one core: two took 3.1 ms for what they do in 2.6 when each has its own. With fewer
        # threads than cores, those of all processes would be bound to the same ones.
        "ENABLE_CPU_PINNING": threads > 1 and threads >= worker_count(),
    }


def compile_model(model: Any, *, threads: int, where: str = "", **more: str) -> Any:
    """An `openvino.CompiledModel` of a file or a model, with `more` settings.

    Raises:
        TargetError: OpenVINO cannot compile it.
    """
    import openvino  # noqa: PLC0415 - optional, heavy

    try:
        return openvino.Core().compile_model(model, "CPU", settings(threads) | more)
    except RuntimeError as error:
        raise TargetError(f"OpenVINO cannot compile the model: {said(error)}", where=str(model) if isinstance(model, Path) else where) from error


def said(error: RuntimeError) -> str:
    """What OpenVINO says, without the places in its source code that it says it from."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if line and not line.startswith(_NOISE)]
    return told[0].removeprefix("-- ") if told else "no reason given"
