"""From an ONNX model to a library of machine code, and the list of what its functions compute."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir
import tvm
from tvm import relax, tirx
from tvm.target import codegen

from quant.core.progress import progress
from quant.errors import TargetError
from quant.graph.layers import find_layers
from quant.targets.relax.importing import import_graph, said
from quant.targets.relax.schedule import DOT, schedule
from quant.targets.relax.tiles import LAYER

_DOT_FEATURE = "avx512vnni"


@dataclass(frozen=True)
class Product:
    """What one layer was compiled to, as its function in TIR has it.

    Args:
        function: The function.
        operands: Types of what is multiplied.
        sums: Type that products are summed up in.
        instruction: What multiplies and sums up, where it is one instruction.
    """

    function: str
    operands: tuple[str, ...]
    sums: str
    instruction: str = ""

    @property
    def runs(self) -> str:
        """Number format of the layer."""
        if set(self.operands) <= {"int8", "uint8"} and self.sums == "int32":
            return "int8"
        # Halves are widened before they are multiplied; in a table they are only looked up.
        return {"float32": "fp32", "float16": "fp16"}.get(self.sums, "unknown")

    @property
    def kernel(self) -> str:
        """What multiplies, in a few words."""
        return f"{' x '.join(self.operands)} -> {self.sums}" + (f", {self.instruction}" if self.instruction else "")


def host_cpu() -> str:
    """This CPU, as LLVM calls it."""
    return str(codegen.llvm_get_system_cpu())


def build_library(model: ir.Model, path: Path, *, cpu: str) -> dict[str, Product]:
    """Compile `model` into the library `path`; gives what each layer was compiled to.

    Args:
        model: The graph; its dynamic dimensions stay dynamic.
        path: The library to write.
        cpu: The CPU to compile for, as LLVM calls it.

    Raises:
        TargetError: TVM refuses the graph.
    """
    for layer in find_layers(model):
        layer.node.name = layer.name
    for number, node in enumerate(model.graph):
        node.name = node.name or f"{node.op_type}_{number}"
    aim = tvm.target.Target({"kind": "llvm", "mcpu": cpu})
    dot = bool(codegen.llvm_cpu_has_features(_DOT_FEATURE, aim))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TVM's own, about names and shapes that it can do with
        module = import_graph(ir.to_proto(ir.external_data.load_to_model(model)))
        try:
            module = _lowered(module, aim)
            found = _scheduled(module, dot=dot)
            with progress("compiling with TVM", 1) as advance, aim:
                relax.build(module, aim).export_library(str(path), options=["-s"])
                advance(1)
        except (ValueError, TypeError, RuntimeError, AttributeError, IndexError, NotImplementedError, AssertionError) as error:
            raise TargetError(f"TVM cannot compile the model: {said(error)}", hint="leave this model to another target") from error
    return found


def _lowered(module: Any, aim: Any) -> Any:
    """Operators as functions in TIR, fused."""
    passes = [
        relax.transform.DeadCodeElimination(["main"]),
        relax.transform.CanonicalizeBindings(),
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.DeadCodeElimination(["main"]),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        relax.transform.DeadCodeElimination(["main"]),
    ]
    with aim, tvm.transform.PassContext(opt_level=3):
        return tvm.transform.Sequential(passes)(module)


def _scheduled(module: Any, *, dot: bool) -> dict[str, Product]:
    """Schedule every function of `module`, in place; gives what those of layers compute."""
    found: dict[str, Product] = {}
    for variable, function in list(module.functions.items()):
        if isinstance(function, tirx.PrimFunc):
            made = schedule(function, dot=dot)
            module[variable] = made.with_attr({"tirx.is_scheduled": True})
            found |= dict(products(variable.name_hint, made))
    return found


def products(name: str, function: Any) -> Iterator[tuple[str, Product]]:
    """(layer, what it was compiled to) of every layer that the TIR function computes."""
    for block in blocks(function.body):
        if LAYER not in block.annotations or not block.reads:
            continue
        sums = block.writes[0].source
        operands = sorted({str(region.source.dtype) for region in block.reads if not region.source.same_as(sums)} - {"int64", "int32"}, reverse=True)
        instruction = DOT if DOT in str(block.body) else ""
        yield str(block.annotations[LAYER]), Product(name, tuple(operands), str(sums.dtype), instruction)


def blocks(statement: Any) -> Iterator[Any]:
    """All blocks of a TIR statement."""
    if isinstance(statement, tvm.s_tir.SBlockRealize):
        yield statement.block
        yield from blocks(statement.block.body)
    elif isinstance(statement, tirx.For):
        yield from blocks(statement.body)
    elif isinstance(statement, tirx.SeqStmt):
        for part in statement.seq:
            yield from blocks(part)
    elif isinstance(statement, tirx.IfThenElse):
        yield from blocks(statement.then_case)
        if statement.else_case is not None:
            yield from blocks(statement.else_case)
