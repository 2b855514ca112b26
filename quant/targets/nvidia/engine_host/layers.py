"""The list of layers of an engine: from the build log, or from the engine inspector of TensorRT 10 or 11."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

_LAYER = re.compile(r"^Name: (?P<name>.*?), LayerType: (?P<kind>\w+), ")
_PART = re.compile(r"(Inputs|Constants|Outputs|TacticName|Metadata): ")
_TYPE = re.compile(r"Datatype: (\w+)")
_NODE = "[ONNX Layer: "
_START, _END = "Layers:", "I/O Tensors:"
_WORD = re.compile(r"\w+")
_NAMES = {
    "float": "Float",
    "fp32": "Float",
    "half": "Half",
    "fp16": "Half",
    "bfloat16": "BFloat16",
    "bf16": "BFloat16",
    "int8": "Int8",
    "fp8": "FP8",
    "int4": "Int4",
    "fp4e2m1": "FP4E2M1",
    "fp4": "FP4E2M1",
    "fp8ue8m0": "FP8UE8M0",
    "uint8": "UInt8",
    "int32": "Int32",
    "int64": "Int64",
    "bool": "Bool",
}
"""Spelling of a data type, in small letters -> that of version 11."""


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


def layers_in_log(log: str) -> tuple[EngineLayer, ...]:
    r"""Every layer in the list within a build log; empty when the log holds none.

    Example:
        >>> line = "Name: mm, LayerType: gemm, Inputs: [ { Name: x, Datatype: Int8 }], Constants: [], Outputs: [ { Name: y, Datatype: Half }], "
        >>> found = layers_in_log("VERBOSE Layers:\n" + line + "TacticName: t, StreamId: 0, Metadata: [ONNX Layer: mm][ONNX Layer: dq]\n")
        >>> [(layer.kind, layer.inputs, layer.outputs, layer.nodes) for layer in found]
        [('gemm', ('Int8',), ('Half',), ('mm', 'dq'))]
    """
    return tuple(_lines(log))


def _lines(log: str) -> Iterator[EngineLayer]:
    inside = False
    for line in log.split("\n"):  # names may hold what else Python takes for the end of a line
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


def layers_in_inspection(text: str) -> tuple[EngineLayer, ...]:
    """Every layer in the JSON that the engine inspector gives for a whole engine.

    A tensor has its data type in `Datatype` (version 11), or in words within `Format/Datatype` (version 10); weights of a kernel
    that was taken from a library are no `Constants`, but have a type of their own.

    Raises:
        ValueError: The engine was built with less than detailed profiling verbosity, and tells only names.

    Example:
        >>> tensor = {"Name": "x", "Format/Datatype": "Thirty-two wide channel vectorized row major Int8 format"}
        >>> layer = {"Name": "conv", "LayerType": "CaskConvolution", "Inputs": [tensor], "Outputs": [], "Weights": {"Type": "Int8", "Count": 9}}
        >>> [(found.inputs, found.constants) for found in layers_in_inspection(json.dumps({"Layers": [layer]}))]
        [(('Int8',), ('Int8',))]
    """
    found = json.loads(text)["Layers"]
    if any(not isinstance(layer, dict) for layer in found):
        raise ValueError("the engine tells only the names of its layers: it was not built with ProfilingVerbosity.DETAILED")
    return tuple(_inspected(layer) for layer in found)


def _inspected(layer: Mapping[str, Any]) -> EngineLayer:
    weights = layer.get("Weights")
    library = (_spelled(str(weights["Type"])),) if isinstance(weights, dict) and weights.get("Count", 1) else ()
    return EngineLayer(
        name=str(layer["Name"]),
        kind=str(layer.get("LayerType", "")),
        inputs=_types(layer.get("Inputs", ())),
        constants=_types(layer.get("Constants", ())) + library,
        outputs=_types(layer.get("Outputs", ())),
        nodes=_nodes(str(layer.get("Metadata", ""))),
    )


def _types(tensors: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(_spelled(str(tensor.get("Datatype") or tensor.get("Format/Datatype", ""))) for tensor in tensors)


def _spelled(words: str) -> str:
    """The data type within `words`, in the spelling of version 11; `words` when there is none that is known."""
    return next((_NAMES[word.lower()] for word in _WORD.findall(words) if word.lower() in _NAMES), words)


def to_json(layers: Sequence[EngineLayer]) -> str:
    """A list of layers as JSON."""
    return json.dumps([asdict(layer) for layer in layers], indent=1, sort_keys=True) + "\n"


def from_json(text: str) -> tuple[EngineLayer, ...]:
    """What `to_json` made of a list of layers."""
    rows: list[dict[str, Any]] = json.loads(text)
    types = ("inputs", "constants", "outputs", "nodes")
    return tuple(EngineLayer(name=row["name"], kind=row["kind"], **{key: tuple(row[key]) for key in types}) for row in rows)
