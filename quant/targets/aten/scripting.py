"""An exported program as TorchScript: its operations, one line each, compiled as the source of a module.

Tracing would fix every dimension at the example's length; the program's own lines keep them open.
"""

from __future__ import annotations

import io
import math
import operator
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import fx

from quant.errors import TargetError
from quant.targets.aten.exporting import INTERFACE, NODE, Interface, multiplied

_INFIX: dict[Any, str] = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.floordiv: "//",
    operator.truediv: "/",
    operator.mod: "%",
    operator.eq: "==",
    operator.ne: "!=",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
}
_CALLS: dict[Any, str] = {torch.sym_max: "max", torch.sym_min: "min", torch.sym_float: "float", torch.sym_int: "int", max: "max", min: "min", abs: "abs"}
_ASSERTIONS = frozenset({"_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range_for_size", "sym_constrain_range"})


def to_script(program: torch.export.ExportedProgram, interface: Interface) -> tuple[torch.jit.ScriptModule, Interface]:
    """`program` as a TorchScript module with the same inputs and outputs, and where its layers are in it.

    Raises:
        TargetError: An operation that TorchScript has no form of.
    """
    # Not `torch.jit.script` of some module: that numbers its classes over a whole process, and the number is written to the file.
    compiler: Any = torch._C  # noqa: SLF001 - nothing public makes a module of a name that one chooses
    bare = compiler.ScriptModule("Program", compiler.CompilationUnit(), True)  # noqa: FBT003
    signature = program.graph_signature
    stored = {**signature.inputs_to_parameters, **signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
    names: dict[str, str] = {}
    for number, (given, path) in enumerate(stored.items()):
        value = program.state_dict.get(path)
        tensor = value if value is not None else program.constants[path]
        bare._register_attribute(f"weight_{number}", compiler.TensorType.get(), tensor.detach())  # noqa: SLF001
        names[given] = f"self.weight_{number}"
    source = _source(program.graph, names, set(map(str, signature.user_inputs)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # TorchScript is in maintenance, and is asked for
        script: torch.jit.ScriptModule = torch.jit._recursive.wrap_cpp_module(bare)  # type: ignore[no-untyped-call]  # noqa: SLF001
        try:
            script.define(source)
        except RuntimeError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise TargetError(f"TorchScript does not take the program: {' '.join(lines[:3])}", hint="set `format: exported-program`") from error
    products = {
        node.meta["custom"][NODE]: (names[node.name], " ".join(str(t).removeprefix("torch.") for t in types))
        for node in program.graph.nodes
        if (types := multiplied(node)) is not None and node.meta.get("custom", {}).get(NODE)
    }
    return script.eval(), replace(interface, products=products)


def save_script(script: torch.jit.ScriptModule, interface: Interface, path: Path) -> None:
    """Write a module; the same bytes each time."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(script, buffer, _extra_files={INTERFACE: interface.text()})
    path.write_bytes(buffer.getvalue())


def _source(graph: fx.Graph, names: dict[str, str], inputs: set[str]) -> str:
    arguments: list[str] = []
    lines: list[str] = []
    for node in graph.nodes:
        if node.op == "placeholder":
            if node.name in inputs:
                names[node.name] = f"x_{len(arguments)}"
                arguments.append(names[node.name])
        elif node.op == "call_function":
            if getattr(node.target, "_opname", "") in _ASSERTIONS:
                continue
            names[node.name] = f"v_{len(names)}"
            lines.append(f"{names[node.name]} = {_call(node, names)}")
        elif node.op == "output":
            given = ", ".join(_written(value, names) for value in node.args[0])
            lines.append(f"return ({given},)")
        else:
            raise TargetError(f"an exported program with a {node.op} has no TorchScript form", hint="set `format: exported-program`")
    body = "\n".join(f"    {line}" for line in lines)
    return f"def forward(self{''.join(f', {a}' for a in arguments)}):\n{body}\n"


def _call(node: fx.Node, names: dict[str, str]) -> str:
    target: Any = node.target
    arguments = [_written(a, names) for a in node.args]
    if target in _INFIX:
        return f"({arguments[0]} {_INFIX[target]} {arguments[1]})"
    if target in _CALLS:
        return f"{_CALLS[target]}({', '.join(arguments)})"
    if target is operator.getitem:
        return f"{arguments[0]}[{arguments[1]}]"
    if not isinstance(target, torch._ops.OpOverload):  # noqa: SLF001 - the class has no public name
        name = getattr(target, "__name__", str(target))
        raise TargetError(f"operation {name} of an exported program has no TorchScript form", hint="set `format: exported-program`")
    if target is torch.ops.aten.sym_size.int:
        return f"{arguments[0]}.size({arguments[1]})"
    keywords = [f"{key}={_written(value, names)}" for key, value in node.kwargs.items() if value is not None]
    return f"torch.ops.{target.namespace}.{target._opname}({', '.join([*arguments, *keywords])})"  # noqa: SLF001


def _written(value: Any, names: dict[str, str]) -> str:
    """A value as TorchScript writes it."""
    if isinstance(value, fx.Node):
        return names[value.name]
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_written(v, names) for v in value)}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    for kind, write in _WRITTEN.items():
        if isinstance(value, kind):
            return write(value)
    return repr(value)


_WRITTEN: dict[type, Callable[[Any], str]] = {
    torch.dtype: str,
    torch.layout: str,
    torch.memory_format: str,
    torch.device: lambda device: f"torch.device('{device}')",
}
