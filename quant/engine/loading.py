"""A model looked at by itself: brought in as a recipe would, and listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt
from pydantic import ValidationError

from quant.core.arguments import with_checked_arguments
from quant.core.cache_folder import cache_folder
from quant.core.registry import did_you_mean
from quant.data.sources import fetch, parse
from quant.data.sources.references import FunctionSource
from quant.engine.cache import StageCache
from quant.engine.inspection import Inspection, inspect
from quant.engine.prepare import brought_in
from quant.errors import ModelError
from quant.graph.importing.kinds import find_onnx, model_kind
from quant.recipe.schema import ModelSpec

_NOT_ALONE = "head"


@with_checked_arguments
def load_model(source: Path | str, *, examples: Sequence[Mapping[str, npt.NDArray[Any]]] = (), trust_code: bool = False, **options: Any) -> Inspection:
    """Bring a model in from wherever a recipe could, and list its inputs, outputs and layers; `path` of what comes back is its FP32 graph.

    Args:
        source: As `model.source` of a recipe: a path, `hf:`, `package:`, `npm:`, or `module:function`.
        examples: A few inputs (name -> array without the batch axis): a torch module cannot be exported without.
        trust_code: Whether code that `source` names may run.
        options: As the other keys of a recipe's `model`: `file`, `sha256`, `pooling`, …

    Raises:
        QuantError: The source cannot be had, or the model cannot be read.
    """
    where = str(source)
    if not isinstance(examples, Sequence) or not all(isinstance(one, Mapping) for one in examples):
        raise ModelError("`examples` are not a list of inputs", where=where, hint="give `examples=[{NAME: ARRAY}, …]`, each without the batch axis")
    spec = _spec(where, options)
    is_code = isinstance(parse(spec.source), FunctionSource)
    if is_code and not examples:
        hint = "give `examples=[{NAME: ARRAY}, …]`, each without the batch axis"
        raise ModelError("what code makes is exported with examples of its inputs", where=where, hint=hint)
    path = None if is_code else fetch(spec, base=Path.cwd(), where=where)
    if path is not None and model_kind(spec, path, where=where) == "onnx":
        path = find_onnx(path)
    cache = StageCache(cache_folder() / "stages")
    graph, _ = brought_in(spec, path, cache, base=Path.cwd(), where=where, trust_code=trust_code, examples=[*examples])
    return inspect(graph)


def _spec(source: str, options: Mapping[str, Any]) -> ModelSpec:
    allowed = [name for name in ModelSpec.model_fields if name not in {"source", _NOT_ALONE}]
    if unknown := [name for name in options if name not in allowed]:
        raise ModelError(f"no option of a model is called {unknown[0]!r}", where=source, hint=did_you_mean(unknown[0], allowed))
    try:
        return ModelSpec.model_validate({"source": source, **options})
    except ValidationError as error:
        first = error.errors()[0]
        raise ModelError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", where=source, hint="as in the section `model` of a recipe") from error
