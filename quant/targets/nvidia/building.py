"""Building engines from an ONNX file: asked of a process of its own, whose every word is kept."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from quant.core.progress import progress
from quant.errors import TargetError
from quant.targets.nvidia.engine_host.building import Settings

_PROCESS = Path(__file__).with_name("builder_process.py")
_SHOWN_ERRORS = 3
Profile = Mapping[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]
"""Input -> its least, usual and largest shape."""


@dataclass(frozen=True)
class BuildFiles:
    """Where the parts of one engine go.

    Args:
        engine: The serialized engine.
        log: Everything that was said while it was built.
        layers: Its list of layers.
    """

    engine: Path
    log: Path
    layers: Path


def build_engines(module: str, model: Path, files: Mapping[str, BuildFiles], profile: Profile, settings: Settings) -> None:
    """Build one engine from the ONNX file `model` for each compute capability.

    Args:
        module: TensorRT's Python module.
        model: The ONNX file; its external data beside it.
        files: Compute capability, or `ON_THIS_GPU` -> where its engine goes.
        profile: Shapes of the inputs that have dynamic dimensions; empty when none has.
        settings: How to build.

    Raises:
        TargetError: TensorRT refuses the graph, or ends without a word.
    """
    request = {
        "module": module,
        "model": str(model),
        "engines": {capability: {"engine": str(f.engine), "log": str(f.log), "layers": str(f.layers)} for capability, f in files.items()},
        "profile": {name: [list(shape) for shape in shapes] for name, shapes in profile.items()},
        "settings": dict(settings),
    }
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "request.json"
        path.write_text(json.dumps(request), encoding="utf-8")
        said = _run(path, len(files))
        result = path.with_name("result.json")
        if not result.exists():
            raise TargetError(f"TensorRT ended while it built an engine: {_last_line(said)}")
        errors: dict[str, list[str]] = json.loads(result.read_text(encoding="utf-8"))["errors"]
    for capability, messages in errors.items():
        if messages:
            raise TargetError(f"TensorRT builds no engine for {capability or 'this GPU'}: {_shortened(messages)}")


def _run(request: Path, engines: int) -> str:
    """Run the building process to its end; gives what it wrote to standard error."""
    errors = request.with_name("stderr.txt")
    with errors.open("w", encoding="utf-8") as stderr, progress("building engines", engines) as advance:
        command = [sys.executable, "-P", str(_PROCESS), str(request)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, errors="replace") as process:  # noqa: S603 - our own file
            assert process.stdout is not None, "a pipe was asked for"
            for line in process.stdout:
                if line.startswith("built "):
                    advance(1)
    return errors.read_text(encoding="utf-8", errors="replace")


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it gave no reason"


def _shortened(messages: Sequence[str]) -> str:
    said = [" ".join(message.split()) for message in messages[:_SHOWN_ERRORS]]
    more = len(messages) - len(said)
    return "; ".join(said) + (f"; and {more} more" if more else "")
