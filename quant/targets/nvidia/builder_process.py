"""Builds engines; runs as a process of its own, with nothing of the toolkit in it.

`python -P builder_process.py REQUEST.json` writes one engine and one log for each compute capability, and `result.json`
beside the request. A process of its own, because TensorRT keeps the first logger it is given for as long as the process
lives, writes to standard output past any logger, and may end the process when a graph surprises it.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

_MIB = 1 << 20


def build(request: dict[str, Any]) -> dict[str, Any]:
    """Build what `request` asks for.

    Args:
        request: `module` (name of TensorRT's Python module), `model` (path), `engines` (capability -> [engine path, log path]), `profile`
            (input -> [least, usual, largest shape]), `workspace_mib` (or null), `tf32`.

    Returns:
        `version`, and `errors`: capability -> what TensorRT said when it refused, empty when it built.
    """
    trt: Any = importlib.import_module(request["module"])
    log = _log_class(trt)()
    errors: dict[str, list[str]] = {}
    for capability, (engine_path, log_path) in request["engines"].items():
        log.lines.clear()
        found = _build_one(trt, log, request, capability)
        Path(log_path).write_text("".join(f"{severity} {message}\n" for severity, message in log.lines), encoding="utf-8")
        if isinstance(found, list):
            errors[capability] = found
        else:
            Path(engine_path).write_bytes(found)
            errors[capability] = []
        sys.stdout.write(f"built {capability}\n")
        sys.stdout.flush()
    return {"version": str(trt.__version__), "errors": errors}


def _log_class(trt: Any) -> Any:
    class Log(trt.ILogger):  # type: ignore[misc]  # the module is known only at run time
        """Keeps every message."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.lines: list[tuple[str, str]] = []

        def log(self, severity: Any, message: str) -> None:
            """Called by TensorRT."""
            self.lines.append((str(severity).rsplit(".", 1)[-1], message))

    return Log


def _build_one(trt: Any, log: Any, request: dict[str, Any], capability: str) -> bytes | list[str]:
    """The engine, or the reasons why there is none."""
    builder = trt.Builder(log)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, log)
    if not parser.parse_from_file(request["model"]):
        return [_parser_error(parser.get_error(i)) for i in range(parser.num_errors)] or ["the ONNX parser gave no reason"]
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    config.num_compute_capabilities = 1
    config.set_compute_capability(getattr(trt.ComputeCapability, capability.upper()), 0)
    if not request["tf32"]:
        config.clear_flag(trt.BuilderFlag.TF32)
    if request["workspace_mib"] is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, request["workspace_mib"] * _MIB)
    if request["profile"]:
        profile = builder.create_optimization_profile()
        for name, shapes in request["profile"].items():
            profile.set_shape(name, *map(tuple, shapes))
        config.add_optimization_profile(profile)
    engine = builder.build_serialized_network(network, config)
    if engine is None:
        return [message for severity, message in log.lines if "ERROR" in severity] or ["the builder gave no reason"]
    return bytes(engine)


def _parser_error(error: Any) -> str:
    return f"{error.node_operator()} {error.node_name()!r}: {error.desc()}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    answer = build(json.loads(path.read_text(encoding="utf-8")))
    path.with_name("result.json").write_text(json.dumps(answer), encoding="utf-8")
