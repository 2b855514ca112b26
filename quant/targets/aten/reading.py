"""Exported programs and TorchScript read from disk: to be run, and to be audited."""

from __future__ import annotations

import pickle
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from quant.errors import TargetError
from quant.targets.aten.exporting import FORMATS, INTERFACE, LOOKUPS, NODE, PRODUCTS, Interface, multiplied


def load(path: Path) -> tuple[Callable[..., Any], Interface]:
    """A module to call, and what goes in and comes out.

    Raises:
        TargetError: The file is missing, damaged, or of another version of PyTorch.
    """
    if path.suffix == ".pt":
        return _script(path)
    program, interface = _program(path)
    return program.module(), interface


def _program(path: Path) -> tuple[torch.export.ExportedProgram, Interface]:
    extra = {INTERFACE: ""}
    try:
        program: torch.export.ExportedProgram = torch.export.load(path, extra_files=extra)
    except (RuntimeError, OSError, ValueError, KeyError, AssertionError, zipfile.BadZipFile, pickle.UnpicklingError) as error:
        raise _unreadable(path, error) from error
    return program, Interface.parse(extra[INTERFACE])


def _script(path: Path) -> tuple[torch.jit.ScriptModule, Interface]:
    extra: dict[str, Any] = {INTERFACE: ""}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            module: torch.jit.ScriptModule = torch.jit.load(str(path), map_location="cpu", _extra_files=extra)  # type: ignore[no-untyped-call]
        except (RuntimeError, ValueError, OSError) as error:
            raise _unreadable(path, error) from error
    return module, Interface.parse(extra[INTERFACE] if isinstance(extra[INTERFACE], str) else extra[INTERFACE].decode())


def _unreadable(path: Path, error: Exception) -> TargetError:
    said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return TargetError(f"PyTorch {torch.__version__} cannot load the artifact: {said}", where=str(path), hint="write it again with this version of PyTorch")


def kernels(path: Path) -> Mapping[str, tuple[str, str]]:
    """ONNX node -> (operation, format) that computes it in the artifact at `path`."""
    if path.suffix == ".pt":
        return _script_kernels(path)
    found: dict[str, tuple[str, str]] = {}
    for node in _program(path)[0].graph.nodes:
        name, types = node.meta.get("custom", {}).get(NODE), multiplied(node)
        if name and types is not None:
            found[name] = _described(str(getattr(node.target, "_opname", node.target)), types)
    return found


def _script_kernels(path: Path) -> dict[str, tuple[str, str]]:
    module, interface = _script(path)
    # A variable `v_7` goes by `v_7.1` where the name is written more than once.
    made = {output.debugName().split(".")[0]: node.kind().removeprefix("aten::") for node in module.graph.nodes() for output in node.outputs()}
    found: dict[str, tuple[str, str]] = {}
    for name, (variable, types) in interface.products.items():
        operation = made.get(variable)
        if operation in PRODUCTS | LOOKUPS:
            found[name] = _described(str(operation), [getattr(torch, t) for t in types.split()])
    return found


def _described(operation: str, types: list[torch.dtype]) -> tuple[str, str]:
    formats = {FORMATS.get(t, "unknown") for t in types}
    return f"aten.{operation} ({' x '.join(str(t).removeprefix('torch.') for t in types)})", formats.pop() if len(formats) == 1 else "unknown"
