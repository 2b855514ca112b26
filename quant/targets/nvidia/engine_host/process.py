"""What the toolkit's building process does: one engine, one log and one list of layers for each compute capability.

A process of its own, because TensorRT keeps the first logger it is given for as long as the process lives, writes to standard
output past any logger, and may end the process when a graph surprises it.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .building import ON_THIS_GPU, RefusedError, build_engine, make_log
from .layers import EngineLayer, layers_in_log, to_json
from .loading import inspect, load_engine


def build_all(request: Mapping[str, Any]) -> dict[str, Any]:
    """Build what `request` asks for.

    Args:
        request: `module` (name of TensorRT's Python module), `model` (path), `engines` (capability -> paths `engine`, `log` and `layers`),
            `profile` (input -> [least, usual, largest shape]), `settings` (see `building.Settings`).

    Returns:
        `version`, and `errors`: capability -> what TensorRT said when it refused, empty when it built.
    """
    trt: Any = importlib.import_module(request["module"])
    log = make_log(trt)
    errors: dict[str, list[str]] = {}
    for capability, files in request["engines"].items():
        log.lines.clear()
        try:
            built = build_engine(trt, log, Path(request["model"]), capability=capability, profile=request["profile"], settings=request["settings"])
            layers = layers_of(trt, log, built, capability=capability)
        except RefusedError as refused:
            errors[capability] = list(refused.messages)
        else:
            Path(files["engine"]).write_bytes(built)
            Path(files["layers"]).write_text(to_json(layers), encoding="utf-8")
            errors[capability] = []
        Path(files["log"]).write_text(log.text(), encoding="utf-8")
        sys.stdout.write(f"built {capability}\n")
        sys.stdout.flush()
    return {"version": str(trt.__version__), "errors": errors}


def layers_of(trt: Any, log: Any, built: bytes, *, capability: str) -> tuple[EngineLayer, ...]:
    """The list of layers: of an engine for this machine's GPU from the engine inspector, else from the build log."""
    if capability != ON_THIS_GPU:
        return layers_in_log(log.text())
    _runtime, engine = load_engine(trt, log, built)
    return inspect(trt, engine)


def main(request_file: str) -> None:
    """Answer the request in a file with `result.json` beside it."""
    path = Path(request_file)
    answer = build_all(json.loads(path.read_text(encoding="utf-8")))
    path.with_name("result.json").write_text(json.dumps(answer), encoding="utf-8")
