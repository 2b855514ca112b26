"""Reading what an engine runs from the list of layers that TensorRT writes into its build log."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from quant.core.files import write_text

_LAYER = re.compile(r"^Name: (?P<name>.*?), LayerType: (?P<kind>\w+), ")
_PART = re.compile(r"(Inputs|Constants|Outputs|TacticName|Metadata): ")
_TYPE = re.compile(r"Datatype: (\w+)")
_NODE = "[ONNX Layer: "
_START, _END = "Layers:", "I/O Tensors:"


@dataclass(frozen=True)
class EngineLayer:
    """One kernel of an engine.

    Args:
        name: TensorRT's name for it.
        kind: What it is: `gemm`, `correlation` (a convolution), `kgen` (generated for a chain of operators), ...
        inputs: Data types of what it reads.
        constants: Data types of the constants in it.
        outputs: Data types of what it writes.
        nodes: Names of the ONNX nodes that it stands for.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    constants: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...]


def engine_layers(log: str) -> tuple[EngineLayer, ...]:
    r"""Every layer in the list within `log`; empty when the log holds none.

    Example:
        >>> line = "Name: mm, LayerType: gemm, Inputs: [ { Name: x, Datatype: Int8 }], Constants: [], Outputs: [ { Name: y, Datatype: Half }], "
        >>> found = engine_layers("VERBOSE Layers:\n" + line + "TacticName: t, StreamId: 0, Metadata: [ONNX Layer: mm][ONNX Layer: dq]\n")
        >>> [(layer.kind, layer.inputs, layer.outputs, layer.nodes) for layer in found]
        [('gemm', ('Int8',), ('Half',), ('mm', 'dq'))]
    """
    return tuple(_lines(log))


def _lines(log: str) -> Iterator[EngineLayer]:
    inside = False
    for line in log.splitlines():
        if line.endswith(_START):
            inside = True
        elif line.startswith(_END):
            inside = False
        head = _LAYER.match(line) if inside else None
        if head is None:
            continue
        parts = _PART.split(line[head.end() :])
        text = dict(zip(parts[1::2], parts[2::2], strict=True))
        inputs, constants, outputs = (tuple(_TYPE.findall(text.get(part, ""))) for part in ("Inputs", "Constants", "Outputs"))
        yield EngineLayer(head["name"], head["kind"], inputs, constants, outputs, _nodes(text.get("Metadata", "")))


def _nodes(metadata: str) -> tuple[str, ...]:
    """The names in `[ONNX Layer: a][ONNX Layer: b]__gemm_from_conv1x1`; they may hold brackets themselves."""
    return tuple(piece[: piece.rfind("]")] for piece in metadata.split(_NODE)[1:])


def write_layers(path: Path, layers: Sequence[EngineLayer]) -> None:
    """Write a list of layers as JSON."""
    write_text(path, json.dumps([asdict(layer) for layer in layers], indent=1, sort_keys=True) + "\n")


def read_layers(path: Path) -> tuple[EngineLayer, ...]:
    """Read what `write_layers` wrote."""
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return tuple(_layer(row) for row in rows)


def _layer(row: dict[str, Any]) -> EngineLayer:
    types = {key: tuple(row[key]) for key in ("inputs", "constants", "outputs", "nodes")}
    return EngineLayer(name=row["name"], kind=row["kind"], **types)
