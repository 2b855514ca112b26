"""`build_engine.py`: builds the engine on this machine, audits it, compares its outputs with the reference, and times it."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .building import ON_THIS_GPU, RefusedError, build_engine, make_log
from .capabilities import lacking
from .cuda import Cuda, CudaError
from .kernels import kernel_of, read_product
from .layers import EngineLayer, to_json
from .process import layers_of

AGREES, DIFFERS, IMPOSSIBLE = 0, 1, 2
"""Exit codes: everything is as it should be; a layer or an output is not; it could not be found out."""
ENGINE_FILE, LAYERS_FILE, LOG_FILE, RESULT_FILE = "model.engine", "layers.json", "build.log", "result.json"
MODEL_FILE, SETTINGS_FILE, PROFILES_FILE, EXPECTED_FILE = "model.onnx", "settings.json", "profiles.json", "expected_precisions.json"
REFERENCE_FILE, TOLERANCES_FILE = "reference.npz", "tolerances.json"
_UNKNOWN = "unknown"


def main(arguments: Sequence[str], *, folder: Path) -> int:
    """Do what `arguments` ask with the model in `folder`; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=_exit_codes())
    parser.add_argument("--module", default="tensorrt", help="Python module of TensorRT (tensorrt_rtx has the same form)")
    parser.add_argument("--compute-capability", default=ON_THIS_GPU, help="build for GPUs that are not here (sm89; TensorRT-RTX only): nothing is run")
    parser.add_argument("--no-run", action="store_true", help="build and audit; run nothing")
    asked = parser.parse_args(list(arguments))
    try:
        trt: Any = importlib.import_module(asked.module)
        return _everything(trt, folder, capability=asked.compute_capability, run=not asked.no_run and asked.compute_capability == ON_THIS_GPU)
    except ImportError as error:
        return _impossible(f"{error}; pip install {asked.module.replace('_', '-')}")
    except (CudaError, RefusedError) as error:
        return _impossible(str(error))


def _exit_codes() -> str:
    return f"exit codes: {AGREES} all as it should be, {DIFFERS} a layer or an output is not, {IMPOSSIBLE} it could not be found out"


def _impossible(why: str) -> int:
    sys.stderr.write(f"error: {why}\n")
    return IMPOSSIBLE


def _everything(trt: Any, folder: Path, *, capability: str, run: bool) -> int:
    settings, profile = _read(folder / SETTINGS_FILE), _read(folder / PROFILES_FILE)
    cuda = Cuda() if capability == ON_THIS_GPU else None
    gpu = cuda.capability() if cuda is not None else capability
    if lacks := lacking(gpu, settings["formats"]):
        raise RefusedError([f"this model needs {' and '.join(lacks)}, which GPUs of compute capability {gpu} do not have"])
    _say(f"building for {gpu} with TensorRT {trt.__version__} ...")
    log = make_log(trt)
    three = {name: [shapes[end] for end in ("min", "opt", "max")] for name, shapes in profile.items()}
    try:
        plan = build_engine(trt, log, folder / MODEL_FILE, capability=capability, profile=three, settings=_located(settings["build"], folder))
        layers = layers_of(trt, log, plan, capability=capability)
    finally:
        (folder / LOG_FILE).write_text(log.text(), encoding="utf-8")
    (folder / ENGINE_FILE).write_bytes(plan)
    (folder / LAYERS_FILE).write_text(to_json(layers), encoding="utf-8")
    found: dict[str, Any] = {"version": str(trt.__version__), "gpu": gpu, "audit": audited(layers, _read(folder / EXPECTED_FILE))}
    _show_audit(found["audit"])
    if run and cuda is not None and (folder / REFERENCE_FILE).is_file():
        found |= _run(trt, log, plan, cuda=cuda, folder=folder, settings=settings)
    else:
        _say("outputs: not compared, " + ("there is no reference" if run else "the engine was not run"))
    (folder / RESULT_FILE).write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    wrong = any(not row["agrees"] and row["runs"] != _UNKNOWN for row in found["audit"]) or any(not row["agrees"] for row in found.get("outputs", ()))
    return DIFFERS if wrong else AGREES


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _located(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """`settings` with files within `folder`, where they are not elsewhere."""
    file = settings.get("timing_cache")
    return {**settings, "timing_cache": str(folder / file) if file else None}


def audited(layers: Sequence[EngineLayer], expected: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the kernel of each expected layer runs in: `layer`, `planned`, `runs`, `kernel`, `agrees`."""
    rows = []
    for row in expected:
        kernel, runs = kernel_of(layers, read_product(row))
        rows.append({"layer": row["layer"], "planned": row["planned"], "runs": runs, "kernel": kernel, "agrees": runs == row["planned"]})
    return rows


def _run(trt: Any, log: Any, plan: bytes, *, cuda: Cuda, folder: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Compare the outputs with the reference, and take times."""
    import numpy as np  # noqa: PLC0415 - building alone takes none

    from .comparing import Distance, compare, unpack  # noqa: PLC0415 - as above
    from .running import Engine  # noqa: PLC0415 - as above

    with np.load(folder / REFERENCE_FILE, allow_pickle=False) as arrays:
        samples = unpack(arrays)
    stripped = folder / MODEL_FILE if settings["build"].get("strip_plan") else None
    engine = Engine(trt, log, plan, cuda=cuda, cuda_graph=settings["cuda_graph"], weights_from=stripped)
    allowed = {name: Distance(row["rms"], row["largest"]) for name, row in _read(folder / TOLERANCES_FILE)["outputs"].items()}
    compared = compare(engine.run, samples, allowed)
    rows = [
        {
            "output": c.output,
            "rms": c.found.rms,
            "rms_allowed": c.allowed.rms,
            "largest": c.found.largest,
            "largest_allowed": c.allowed.largest,
            "agrees": c.agrees,
        }
        for c in compared
    ]
    _say(_table(("output", "RMS apart", "allowed", "most apart", "allowed", ""), [_output_row(row) for row in rows]))
    times = engine.time(samples[0][0])
    shown = times.compute
    rest = ", ".join(f"{p} % {t:.4g} ms" for p, t in shown.percentiles.items())
    _say(f"GPU compute: median {shown.median:.4g} ms, mean {shown.mean:.4g} ms, {rest}; {times.iterations} inferences in {times.seconds:.3g} s")
    if times.bound_by_enqueue:
        _say(f"the host takes {times.enqueue.median:.4g} ms to enqueue each: the GPU waits for it" + ("" if settings["cuda_graph"] else "; use a CUDA graph"))
    return {"outputs": rows, "times": times.as_document()}


def _output_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    numbers = (row["rms"], row["rms_allowed"], row["largest"], row["largest_allowed"])
    return (row["output"], *(f"{n:.3g}" for n in numbers), "agrees" if row["agrees"] else "DIFFERS")


def _show_audit(rows: Sequence[Mapping[str, Any]]) -> None:
    wrong = [row for row in rows if not row["agrees"]]
    _say(f"layers: {len(rows) - len(wrong)} of {len(rows)} run as planned")
    if wrong:
        _say(_table(("layer", "planned", "runs", "kernel"), [tuple(str(row[key]) for key in ("layer", "planned", "runs", "kernel")) for row in wrong]))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
