"""The folder that a GPU host needs to build an engine, to audit it, and to hold its outputs to the reference."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from quant.core.files import write_text
from quant.targets import Shapes
from quant.targets.nvidia import noise
from quant.targets.nvidia.engine_host import command
from quant.targets.nvidia.engine_host.comparing import pack
from quant.targets.nvidia.formats import formats_in
from quant.targets.nvidia.products import expected_precisions

_HERE = Path(__file__).parent
_FLAGS = {
    "version_compatible": "--versionCompatible",
    "exclude_lean_runtime": "--excludeLeanRuntime",
    "weight_streaming": "--allowWeightStreaming",
    "refit": "--refit",
    "strip_plan": "--stripWeights",
}
_VALUES = {
    "workspace_mib": "--memPoolSize=workspace:{}",
    "builder_optimization_level": "--builderOptimizationLevel={}",
    "max_aux_streams": "--maxAuxStreams={}",
    "timing_cache": "--timingCacheFile={}",
}
_LEVELS = {"ampere_plus": "ampere+", "same_compute_capability": "sameComputeCapability"}
_README = """This folder holds {title}, for a machine with an NVIDIA GPU.

    pip install tensorrt numpy
    python build_engine.py

builds the engine ({engine}), reads from it what every layer runs in ({layers}) and holds that to {expected}, runs the
inputs of {reference} and holds the outputs to those within {tolerances}, takes times as trtexec does, and writes
{result}. It ends with 0 when all is as it should be, with 1 when a layer or an output is not, and with 2 when it could not be
found out. TensorRT 10 and 11 both do. {trtexec} builds the same engine with trtexec, and compares nothing.

An engine belongs to the version of TensorRT and the kind of GPU that it was built with.
"""
_TRTEXEC = "trtexec.sh"


def write_build_folder(folder: Path, model: ir.Model, *, title: str, profile: Mapping[str, Shapes], build: Mapping[str, Any], cuda_graph: bool) -> None:
    """Write, beside the model, all that building takes but TensorRT.

    Args:
        folder: Where `model.onnx` is.
        model: The graph in it.
        title: What it is, in a few words.
        profile: Shapes of the inputs that have dynamic dimensions.
        build: How to build (see `engine_host.building.Settings`).
        cuda_graph: Whether inferences are launched as a CUDA graph.
    """
    write_text(folder / "build_engine.py", (_HERE / "build_engine.py").read_text(encoding="utf-8"))
    host = folder / "engine_host"
    host.mkdir(exist_ok=True)
    for source in sorted((_HERE / "engine_host").glob("*.py")):
        write_text(host / source.name, source.read_text(encoding="utf-8"))
    settings = {"formats": sorted(formats_in(model)), "build": dict(build), "cuda_graph": cuda_graph}
    profiles = {name: {"min": s.least, "opt": s.usual, "max": s.largest} for name, s in profile.items()}
    for name, content in ((command.SETTINGS_FILE, settings), (command.PROFILES_FILE, profiles), (command.EXPECTED_FILE, expected_precisions(model))):
        write_text(folder / name, json.dumps(content, indent=1, sort_keys=True) + "\n")
    write_text(folder / _TRTEXEC, trtexec_script(profile, build))
    names = {"engine": command.ENGINE_FILE, "layers": command.LAYERS_FILE, "expected": command.EXPECTED_FILE, "reference": command.REFERENCE_FILE}
    names |= {"tolerances": command.TOLERANCES_FILE, "result": command.RESULT_FILE, "trtexec": _TRTEXEC}
    write_text(folder / "README.txt", _README.format(title=title, **names))


def trtexec_script(profile: Mapping[str, Shapes], build: Mapping[str, Any]) -> str:
    """A shell script that builds the same engine with NVIDIA's trtexec (10.12 or newer)."""
    words = [f"--onnx={command.MODEL_FILE}", "--stronglyTyped", f"--saveEngine={command.ENGINE_FILE}"]
    for end, shapes in (("min", "least"), ("opt", "usual"), ("max", "largest")):
        if profile:
            words.append(f"--{end}Shapes=" + ",".join(f"{name}:{'x'.join(map(str, getattr(s, shapes)))}" for name, s in profile.items()))
    words += [flag for name, flag in _FLAGS.items() if build.get(name)]
    words += [text.format(build[name]) for name, text in _VALUES.items() if build.get(name) is not None]
    if (level := build.get("hardware_compatibility_level")) in _LEVELS:
        words.append(f"--hardwareCompatibilityLevel={_LEVELS[level]}")
    if not build.get("tf32"):
        words.append("--noTF32")
    words += ["--profilingVerbosity=detailed", f"--exportLayerInfo={command.LAYERS_FILE}"]
    return '#!/bin/sh\ncd "$(dirname "$0")" || exit\nexec trtexec ' + " \\\n  ".join(map(shlex.quote, words)) + ' "$@"\n'


def write_reference(folder: Path, feeds: Sequence[noise.Feed], *, tf32: bool) -> None:
    """Write inputs of the run's data, what the graph makes of them, and how far an engine's outputs may be from that."""
    path = folder / command.MODEL_FILE
    samples = noise.reference(path, feeds)
    np.savez(folder / command.REFERENCE_FILE, allow_pickle=False, **pack(samples))
    allowed = noise.tolerances(path, samples, tf32=tf32)
    document = {
        "derived": " ".join((noise.__doc__ or "").split()),
        "draws": noise.DRAWS,
        "outputs": {name: {"rms": found.rms, "largest": found.largest} for name, found in allowed.items()},
    }
    write_text(folder / command.TOLERANCES_FILE, json.dumps(document, indent=1, sort_keys=True) + "\n")
