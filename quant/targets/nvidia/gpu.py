"""What this machine has for building and running engines of TensorRT: found out without importing TensorRT."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from quant.errors import TargetError
from quant.targets.nvidia.engine_host.building import RefusedError, make_log
from quant.targets.nvidia.engine_host.cuda import Cuda, CudaError
from quant.targets.nvidia.engine_host.running import Engine, EngineError

Array = npt.NDArray[Any]


def missing(module: str) -> str | None:
    """Why no engine can be built on this machine; None when it can."""
    if importlib.util.find_spec(module) is None:
        return "TensorRT is not installed here"
    try:
        Cuda().devices()
    except CudaError as error:
        return f"there is no GPU here that can be used: {error}"
    return None


class GpuSession:
    """An engine, on this machine's GPU.

    Args:
        module: TensorRT's Python module.
        path: The engine.
        cuda_graph: Whether inferences are launched as a CUDA graph.
        weights_from: The ONNX file to take weights from, for an engine without them.

    Raises:
        TargetError: TensorRT does not load it.
    """

    def __init__(self, module: str, path: Path, *, cuda_graph: bool, weights_from: Path | None) -> None:
        trt: Any = importlib.import_module(module)
        try:
            self._engine = Engine(trt, make_log(trt), path.read_bytes(), cuda=Cuda(), cuda_graph=cuda_graph, weights_from=weights_from)
        except (RefusedError, EngineError, CudaError) as error:
            raise TargetError(str(error), where=str(path)) from error
        self.outputs = self._engine.outputs

    def run(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs for one batch.

        Raises:
            TargetError: The engine is not built for these shapes, or does not run.
        """
        try:
            return self._engine.run(feed)
        except (EngineError, CudaError) as error:
            raise TargetError(str(error)) from error
