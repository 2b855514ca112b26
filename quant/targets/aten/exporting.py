"""The twin of a graph as an exported program, its ONNX names kept and its symbolic dimensions left open where torch can."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch
from torch import fx
from torch.fx.traceback import preserve_node_meta

from quant.errors import TargetError
from quant.graph.model import signature
from quant.targets import Shapes
from quant.twin.make import make_twin
from quant.twin.operators import from_numpy
from quant.twin.twin import Twin

INTERFACE = "interface.json"
"""Name of the record in an artifact's file that tells its inputs and outputs."""
PRODUCTS = frozenset(
    {
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "convolution",
        "matmul",
        "mm",
        "bmm",
        "addmm",
        "linear",
        "einsum",
    }
)
"""Names of ATen's products."""
LOOKUPS = frozenset({"embedding", "index_select", "select"})
"""Names of its ways to take rows of a table; what else they take are places."""
FORMATS = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.float64: "fp64", torch.int8: "int8", torch.uint8: "int8"}
"""Type that a product multiplies -> format."""
NODE = "onnx"
"""Key of a node's own metadata that holds the name of the ONNX node that it is of; exported programs keep it on disk."""
_KEPT = frozenset({"val", "custom"})
_TRIED = (3, 16, 64, 256)
"""Lengths to try for a dimension of which nothing is known; each further dimension is one longer, so that none are equal by chance."""


@dataclass(frozen=True)
class Interface:
    """What goes in and comes out.

    Args:
        inputs: Names, in order.
        outputs: Names, in order.
        types: Input -> NumPy type.
        fixed: Input -> axis -> (name of the dimension, length that it had to be fixed at).
        products: ONNX node -> (the variable of the TorchScript module that it makes, types that it multiplies): TorchScript itself keeps
            the names of variables, but neither those of nodes nor types.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: Mapping[str, str]
    fixed: Mapping[str, Mapping[int, tuple[str, int]]] = field(default_factory=dict)
    products: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def text(self) -> str:
        """As JSON."""
        fixed = {name: {str(axis): list(pair) for axis, pair in axes.items()} for name, axes in self.fixed.items()}
        told = {"inputs": self.inputs, "outputs": self.outputs, "types": dict(self.types), "fixed": fixed, "products": dict(self.products)}
        return json.dumps(told, sort_keys=True)

    @classmethod
    def parse(cls, text: str) -> Interface:
        """From JSON.

        Example:
            >>> told = Interface(("x",), ("y",), {"x": "float32"}, {"x": {0: ("batch", 3)}})
            >>> Interface.parse(told.text()) == told
            True
        """
        read = json.loads(text)
        fixed = {name: {int(axis): (str(pair[0]), int(pair[1])) for axis, pair in axes.items()} for name, axes in read["fixed"].items()}
        products = {name: (str(pair[0]), str(pair[1])) for name, pair in read["products"].items()}
        return cls(tuple(read["inputs"]), tuple(read["outputs"]), read["types"], fixed, products)


def export_program(model: ir.Model, shapes: Mapping[str, Shapes] | None = None) -> tuple[torch.export.ExportedProgram, Interface]:
    """`model` as an exported program.

    Args:
        model: The graph, in ONNX operators that the twin knows.
        shapes: Shapes that the data give to the inputs, where they are known.

    Raises:
        ModelError: An operator that the twin does not compute.
        TargetError: torch cannot export the graph.
    """
    twin = make_twin(model, check=None)
    for node in twin.module.graph.nodes:
        if node.meta.get("onnx_node"):
            node.meta["custom"] = {NODE: node.meta["onnx_node"]}
    example, symbols = _example(model, twin, shapes or {})
    program = _exported(_Interpreted(twin.module).eval(), example, [set(axes) for axes in symbols.values()])
    for node in program.graph.nodes:  # paths of source files, and numbers that count on over a process
        node.meta = {key: value for key, value in node.meta.items() if key in _KEPT}
        if "custom" in node.meta:
            node.meta["custom"] = {NODE: str(node.meta["custom"].get(NODE, ""))}
    specs = {spec.name: spec.dtype for spec in signature(model).inputs}
    return program, Interface(twin.inputs, twin.outputs, specs, _fixed(program, symbols))


class _Interpreted(torch.nn.Module):
    """The twin run node by node, so that what torch records is tagged with the ONNX node that it belongs to."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__()
        self.twin = module

    def forward(self, *inputs: torch.Tensor) -> Any:
        return fx.Interpreter(self.twin).run(*inputs)


def _exported(module: torch.nn.Module, example: tuple[torch.Tensor, ...], open_axes: list[set[int]]) -> torch.export.ExportedProgram:
    """The program, with as many of `open_axes` (of each input) open as torch can keep."""
    dims = tuple(dict.fromkeys(sorted(axes), torch.export.Dim.AUTO) for axes in open_axes)
    batch_only = tuple(dict.fromkeys(sorted(axes & {0}), torch.export.Dim.AUTO) for axes in open_axes)
    tries = [how for how, some in (((dims,), any(dims)), ((batch_only,), any(batch_only)), (None, True)) if some]
    refusal: Exception | None = None
    with torch.no_grad(), preserve_node_meta():
        for how in tries:
            try:
                return torch.export.export(module, example, dynamic_shapes=how, strict=False)
            except (RuntimeError, ValueError) as error:  # all that torch raises for what it cannot follow
                refusal = error
    assert refusal is not None
    raise TargetError(f"torch cannot export the graph: {_first_line(refusal)}", hint="leave this model to another target") from refusal


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _example(model: ir.Model, twin: Twin, shapes: Mapping[str, Shapes]) -> tuple[tuple[torch.Tensor, ...], dict[str, dict[int, str]]]:
    """Inputs of zeros to export with, and for each input axis -> name of a dimension that is open.

    Raises:
        TargetError: The graph runs at none of the lengths that were tried.
    """
    specs = {spec.name: spec for spec in signature(model).inputs}
    symbols = {n: {a: str(d) for a, d in enumerate(specs[n].shape or ()) if not isinstance(d, int)} for n in twin.inputs}
    names = list(dict.fromkeys(d for axes in symbols.values() for d in axes.values()))
    told = {d: max(shapes[n].usual[a], 2) for n, axes in symbols.items() if n in shapes for a, d in axes.items()}
    refusal: Exception | None = None
    for least in (0,) if len(told) == len(names) else _TRIED:
        lengths = _unlike({d: told.get(d, least + i) for i, d in enumerate(names)})
        inputs = tuple(_zeros(specs[n].dtype, [d if isinstance(d, int) else lengths[str(d)] for d in specs[n].shape or ()]) for n in twin.inputs)
        try:
            with torch.no_grad():
                twin.module(*inputs)
        except (RuntimeError, IndexError, ValueError) as error:  # a length that the graph has no use for
            refusal = error
            continue
        return inputs, symbols
    assert refusal is not None
    raise TargetError(f"the graph runs at none of the lengths that were tried for {', '.join(names)}: {_first_line(refusal)}") from refusal


def _unlike(lengths: Mapping[str, int]) -> dict[str, int]:
    """Lengths of which no two are equal, each as near as can be: torch would take equal ones for one.

    Example:
        >>> _unlike({"batch": 2, "width": 2})
        {'batch': 2, 'width': 3}
    """
    given: dict[str, int] = {}
    for name, length in lengths.items():
        given[name] = next(n for n in range(length, length + len(lengths) + 1) if n not in given.values())
    return given


def _zeros(dtype: str, shape: list[int]) -> torch.Tensor:
    import numpy as np  # noqa: PLC0415 - only for the names of types

    return torch.zeros(shape, dtype=torch.bfloat16 if dtype == "bfloat16" else from_numpy(np.zeros(0, dtype)).dtype)


def _fixed(program: torch.export.ExportedProgram, symbols: Mapping[str, Mapping[int, str]]) -> dict[str, dict[int, tuple[str, int]]]:
    """Input -> axis -> (symbol, length) of each dimension that is open in the graph and not in the program."""
    held: dict[str, torch.Tensor] = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    fixed: dict[str, dict[int, tuple[str, int]]] = {}
    for (name, axes), given in zip(symbols.items(), program.graph_signature.user_inputs, strict=True):
        lengths = held[str(given)].shape
        settled = {axis: _settled(lengths[axis]) for axis in axes}
        found = {axis: (symbol, length) for axis, symbol in axes.items() if (length := settled[axis]) is not None}
        if found:
            fixed[name] = found
    return fixed


def _settled(length: int | torch.SymInt) -> int | None:
    """A length that is no longer open; None where it is."""
    return length if isinstance(length, int) else length.node.maybe_as_int()


def multiplied(node: fx.Node) -> list[torch.dtype] | None:
    """Types that an operation multiplies, or the type of the table that it takes rows of; None when it is neither."""
    name = getattr(node.target, "_opname", "") if node.op == "call_function" else ""
    if name not in PRODUCTS | LOOKUPS:
        return None
    operands = node.args[: 1 if name in LOOKUPS else 2]
    return [a.meta["val"].dtype for a in operands if isinstance(a, fx.Node) and isinstance(a.meta.get("val"), torch.Tensor)]


def save_program(program: torch.export.ExportedProgram, interface: Interface, path: Path) -> None:
    """Write a program; the same bytes each time."""
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={INTERFACE: interface.text()})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(buffer.getvalue())
