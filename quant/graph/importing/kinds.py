"""What kind of model lies at a path, before it is brought in."""

from __future__ import annotations

from pathlib import Path

from quant.errors import ModelError
from quant.graph.importing.onnx_file import refuse_checkpoint
from quant.recipe.schema import ModelSpec

_ONLY_FOR = {"pooling": "huggingface", "normalize": "huggingface", "arguments": "torch"}
"""Keys of `model` that one kind of model alone has a use for."""


def model_kind(spec: ModelSpec, path: Path | None, *, where: str) -> str:
    """`onnx`, `huggingface`, `gguf` or `torch`: as the recipe says, or by what lies at `path`.

    Raises:
        ModelError: Neither can be told, or the recipe sets what means nothing for such a model.
    """
    kind = _kind(spec, path, where=where)
    for name, wanted in _ONLY_FOR.items():
        if kind != wanted and getattr(spec, name) != ModelSpec.model_fields[name].get_default(call_default_factory=True):
            raise ModelError(f"model.{name} means nothing for a model of kind {kind!r}, only for {wanted!r}", where=where, hint=f"leave model.{name} out")
    return kind


def _kind(spec: ModelSpec, path: Path | None, *, where: str) -> str:
    if path is None:
        if spec.kind not in {"auto", "torch"}:
            raise ModelError(f"kind {spec.kind!r} needs a file or folder, not {spec.source!r}", where=where, hint="write `kind: torch` for module:function")
        return "torch"
    if path.is_file() and is_gguf(path):
        return _only(spec, "gguf", "kind {} is not that of a GGUF file", where)
    if path.is_file():
        refuse_checkpoint(path)
    if spec.kind == "gguf":
        raise ModelError("kind 'gguf' needs a GGUF file", where=where, hint="name the file with `model.file`")
    if spec.kind == "torch":
        raise ModelError("kind 'torch' needs module:function", where=where, hint="`source: my_module:build` names a function that builds the module")
    if spec.kind == "huggingface" and path.is_file():
        raise ModelError("kind 'huggingface' needs a folder, not a file", where=where, hint="give the folder of config.json and *.safetensors")
    if spec.kind != "auto":
        return spec.kind
    if path.is_dir() and (path / "config.json").is_file() and not (path / "model.onnx").is_file():
        return "huggingface"
    return "onnx"


def _only(spec: ModelSpec, kind: str, otherwise: str, where: str) -> str:
    """`kind`, where the recipe does not say another."""
    if spec.kind not in {"auto", kind}:
        raise ModelError(otherwise.format(repr(spec.kind)), where=where, hint=f"write `kind: {kind}`, or leave `kind` out")
    return kind


def is_gguf(path: Path) -> bool:
    """Whether the file `path` is a GGUF file, by its first bytes."""
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def find_onnx(path: Path) -> Path:
    """The ONNX file at `path`, or the only one in the folder `path`.

    Raises:
        ModelError: The folder has none, or several.
    """
    if not path.is_dir():
        return path
    found = sorted(path.rglob("*.onnx"))
    if (path / "model.onnx").is_file():
        return path / "model.onnx"
    if len(found) == 1:
        return found[0]
    names = ", ".join(str(p.relative_to(path)) for p in found[:10])
    what = f"several ONNX files in the folder: {names}" if found else "neither an ONNX file nor config.json with *.safetensors in the folder"
    raise ModelError(what, where=str(path), hint="name one with model.file")
