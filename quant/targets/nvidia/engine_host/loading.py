"""Loading an engine on this machine's GPU, and reading what it is made of."""

from __future__ import annotations

from typing import Any

from .building import RefusedError
from .layers import EngineLayer, layers_in_inspection


def last_words(log: Any) -> str:
    """The last error in `log`."""
    errors = [message for severity, message in log.lines if "ERROR" in severity]
    return errors[-1] if errors else "it gave no reason"


def load_engine(trt: Any, log: Any, plan: bytes) -> tuple[Any, Any]:
    """The runtime and the engine that it loads from `plan`; the runtime must live as long as the engine.

    Raises:
        RefusedError: It is no engine for this GPU and this version of TensorRT.
    """
    runtime = trt.Runtime(log)
    runtime.engine_host_code_allowed = True  # a version compatible engine brings a runtime of its own; it was built here, or is trusted as a program is
    engine = runtime.deserialize_cuda_engine(plan)
    if engine is None:
        raise RefusedError([f"TensorRT does not load the engine: {last_words(log)}"])
    return runtime, engine


def inspect(trt: Any, engine: Any) -> tuple[EngineLayer, ...]:
    """What the engine inspector tells of the layers of `engine`."""
    inspector = engine.create_engine_inspector()
    return layers_in_inspection(inspector.get_engine_information(trt.LayerInformationFormat.JSON))
