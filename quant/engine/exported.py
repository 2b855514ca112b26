"""The quantized graph as it was handed to an engine, kept beside the engine's own files, for comparison with it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import onnx_ir as ir

from quant.core.digest import digest_of_file
from quant.core.documents import Artifact
from quant.core.files import write_text
from quant.graph.model import MODEL_FILE, write_model

_FOLDER, _POINTER = "graph", "graph.json"
_SINGLE_FILE_BELOW_BYTES = 1 << 30


def keep_graph(model: ir.Model, folder: Path) -> None:
    """Write `model` below `folder`, before an export that may change it."""
    size = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)
    write_model(model, folder / _FOLDER, single_file=size < _SINGLE_FILE_BELOW_BYTES)


def share_graph(folder: Path, artifact: Artifact, files: Path) -> None:
    """Do without the graph that `keep_graph` wrote where the artifact's own files, in `files`, hold the same bytes."""
    kept = {path.name: digest_of_file(path) for path in sorted((folder / _FOLDER).iterdir())}
    homes = {str(Path(name).parent) for name, digest in artifact.files.items() if Path(name).name == MODEL_FILE and digest == kept[MODEL_FILE]}
    for home in sorted(homes):
        if all(artifact.files.get(str(Path(home) / name)) == digest for name, digest in kept.items()):
            write_text(folder / _POINTER, json.dumps(str((files / home / MODEL_FILE).relative_to(folder))))
            shutil.rmtree(folder / _FOLDER)
            return


def graph_in(folder: Path) -> Path:
    """The graph that `keep_graph` wrote below `folder`, or the artifact's own file that holds the same."""
    pointer = folder / _POINTER
    return folder / json.loads(pointer.read_text(encoding="utf-8")) if pointer.exists() else folder / _FOLDER / MODEL_FILE
