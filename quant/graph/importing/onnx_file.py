"""An ONNX file, as the user brings it."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from quant.errors import ModelError
from quant.graph.importing.clean_up import trains
from quant.graph.importing.surgery import DEFAULT_DOMAINS, all_nodes
from quant.graph.model import read_model

_TRAINING_DOMAINS = frozenset({"ai.onnx.preview.training", "ai.onnx.training"})
_KNOWN_DOMAINS = DEFAULT_DOMAINS | {"ai.onnx.ml", "com.microsoft"}
_OTHER_FILES = {
    b"PK\x03\x04": "a zip archive (a checkpoint of PyTorch?)",
    b"\x80\x02": "a pickle",
    b"\x80\x03": "a pickle",
    b"\x80\x04": "a pickle",
    b"\x80\x05": "a pickle",
    b"\x89PNG": "a PNG picture",
    b"\x1f\x8b": "a gzip archive",
    b"\x89HDF": "an HDF5 file (Keras?)",
    b"GGUF": "a GGUF file",
    b"version https://git-lfs": "a pointer of Git LFS, not the file itself",
    b"{": "JSON text",
    b"<": "HTML or XML text",
}
_EXPORT = "name a function that builds the module instead: `source: my_module:build` with `kind: torch`"


def read_onnx(path: Path) -> ir.Model:
    """The model in `path`, checked for what the toolkit cannot work with.

    Raises:
        ModelError: The file is missing, damaged, of another kind, or holds a graph for training.
    """
    _check_kind(path)
    model = read_model(path)
    for node in all_nodes(model):
        if node.domain in _TRAINING_DOMAINS or (node.domain == "com.microsoft" and node.op_type.endswith("Grad")):
            raise ModelError(
                f"a graph for training: node {node.name!r} is {node.domain}.{node.op_type}", where=str(path), hint="export the model for inference"
            )
        if trains(node):
            raise ModelError(
                f"exported in training mode: {node.op_type} {node.name!r}",
                where=str(path),
                hint="call model.eval() before the export, or set training_mode to 0",
            )
    return model


def _check_kind(path: Path) -> None:
    """Refuse a file that begins like one of another kind."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        head = file.read(32)
    for magic, kind in _OTHER_FILES.items():
        if head.startswith(magic):
            hint = _EXPORT if "pickle" in kind or "PyTorch" in kind else "give the path of an .onnx file"
            raise ModelError(f"not an ONNX model but {kind}", where=str(path), hint=hint)


def refuse_checkpoint(path: Path) -> None:
    """Refuse files that hold weights or pickled code without a network.

    Raises:
        ModelError: The file's ending says that it is such a file.
    """
    if path.suffix in {".pt", ".pth", ".pkl", ".ckpt", ".bin"}:
        raise ModelError(f"{path.suffix} files are pickles or hold weights without a network; they are not loaded", where=str(path), hint=_EXPORT)
    if path.suffix == ".safetensors":
        raise ModelError(
            "a .safetensors file holds weights without a network", where=str(path), hint=f"give its folder, with config.json (Hugging Face), or {_EXPORT}"
        )


def custom_operators(model: ir.Model) -> tuple[str, ...]:
    """Operators of domains that ONNX Runtime does not know by itself, as `domain.Operator`, sorted."""
    own = {(f.domain, f.name) for f in model.functions.values()}
    return tuple(sorted({f"{n.domain}.{n.op_type}" for n in all_nodes(model) if n.domain not in _KNOWN_DOMAINS and (n.domain, n.op_type) not in own}))
