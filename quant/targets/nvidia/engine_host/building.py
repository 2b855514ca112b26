"""Building engines from an ONNX file, with TensorRT or TensorRT-RTX."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_MIB = 1 << 20
_FLAGS = ("version_compatible", "exclude_lean_runtime", "weight_streaming", "refit", "strip_plan")
"""Settings that are flags of the builder, by the same names."""

Settings = Mapping[str, Any]
"""How to build. All have defaults, those of TensorRT: `workspace_mib`, `tf32`, `builder_optimization_level`, `hardware_compatibility_level`,
`timing_cache` (a file), `max_aux_streams`, and `_FLAGS`."""
Profile = Mapping[str, Sequence[Sequence[int]]]
"""Input -> its least, usual and largest shape."""
ON_THIS_GPU = ""
"""In place of a compute capability: the GPU of this machine."""


class RefusedError(Exception):
    """TensorRT builds no engine; `messages` is what it said."""

    def __init__(self, messages: Sequence[str]) -> None:
        super().__init__("; ".join(messages))
        self.messages = tuple(messages)


def make_log(trt: Any) -> Any:
    """A logger that keeps every message in `lines`; TensorRT keeps the first one it is given for as long as the process lives."""

    class Log(trt.ILogger):  # type: ignore[misc]  # the module is known only at run time
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.lines: list[tuple[str, str]] = []

        def log(self, severity: Any, message: str) -> None:
            """Called by TensorRT."""
            self.lines.append((str(severity).rsplit(".", 1)[-1], message))

        def text(self) -> str:
            """All messages, one after the other, each behind its severity."""
            return "".join(f"{severity} {message}\n" for severity, message in self.lines)

    return Log()


def build_engine(trt: Any, log: Any, model: Path, *, capability: str, profile: Profile, settings: Settings) -> bytes:
    """The engine built from the ONNX file `model`.

    Args:
        trt: The Python module of TensorRT, or of TensorRT-RTX.
        log: What `make_log` made.
        model: The ONNX file; its external data beside it.
        capability: Compute capability to build for (`sm89`), which only TensorRT-RTX is told; or `ON_THIS_GPU`.
        profile: Shapes of the inputs that have dynamic dimensions.
        settings: How to build.

    Raises:
        RefusedError: The parser or the builder refuses the model.
    """
    builder = trt.Builder(log)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))  # version 11 has no other kind of network
    parser = trt.OnnxParser(network, log)
    if not parser.parse_from_file(str(model)):
        raise RefusedError([_parser_error(parser.get_error(i)) for i in range(parser.num_errors)] or ["the ONNX parser gave no reason"])
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if capability != ON_THIS_GPU:
        config.num_compute_capabilities = 1
        config.set_compute_capability(getattr(trt.ComputeCapability, capability.upper()), 0)
    _apply(trt, config, settings)
    if profile:
        shapes = builder.create_optimization_profile()
        for name, three in profile.items():
            shapes.set_shape(name, *map(tuple, three))
        config.add_optimization_profile(shapes)
    keep_times = _timing_cache(config, settings.get("timing_cache"))
    engine = builder.build_serialized_network(network, config)
    if engine is None:
        raise RefusedError([message for severity, message in log.lines if "ERROR" in severity] or ["the builder gave no reason"])
    keep_times()
    return bytes(engine)


def _parser_error(error: Any) -> str:
    return f"{error.node_operator()} {error.node_name()!r}: {error.desc()}"


def _apply(trt: Any, config: Any, settings: Settings) -> None:
    if not settings.get("tf32"):
        config.clear_flag(trt.BuilderFlag.TF32)  # TensorRT's default is to use it
    for name in _FLAGS:
        if settings.get(name):
            config.set_flag(getattr(trt.BuilderFlag, name.upper()))
    if settings.get("strip_plan") and not settings.get("refit"):
        config.set_flag(trt.BuilderFlag.REFIT_IDENTICAL)  # as trtexec does: the same weights are put in again
    if settings.get("workspace_mib") is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, settings["workspace_mib"] * _MIB)
    if settings.get("builder_optimization_level") is not None:
        config.builder_optimization_level = settings["builder_optimization_level"]
    if settings.get("max_aux_streams") is not None:
        config.max_aux_streams = settings["max_aux_streams"]
    if settings.get("hardware_compatibility_level") not in {None, "none"}:
        config.hardware_compatibility_level = getattr(trt.HardwareCompatibilityLevel, settings["hardware_compatibility_level"].upper())


def _timing_cache(config: Any, file: str | None) -> Callable[[], object]:
    """Let the builder use the times in `file`, if there are any for this GPU and this version; gives what writes them back."""
    if not file:
        return lambda: None
    path = Path(file)
    cache = config.create_timing_cache(path.read_bytes() if path.is_file() else b"")
    if cache is None or not config.set_timing_cache(cache, ignore_mismatch=False):
        sys.stderr.write(f"{path} is of another GPU or version of TensorRT; it is made anew\n")
        cache = config.create_timing_cache(b"")
        config.set_timing_cache(cache, ignore_mismatch=False)
    return lambda: path.write_bytes(bytes(cache.serialize()))
