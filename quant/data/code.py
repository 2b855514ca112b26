"""Code that a recipe names: `module:function`. It runs only when the user says so, or when it is our own."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from quant.core.registry import did_you_mean
from quant.errors import DataError

_REFERENCE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*|[^:]+\.py):([A-Za-z_]\w*)")
_OURS = "recipes"


def load_function(reference: str, *, base: Path, trust_code: bool, where: str) -> Callable[..., Any]:
    """The function that `module:function` or `file.py:function` names.

    Modules and files beside the recipe (in `base`) can be named, too.

    Args:
        reference: `module:function`, or `file.py:function` with a path relative to `base`.
        base: Folder of the recipe.
        trust_code: Whether the user allows code that is not part of the installed `recipes` package.
        where: Place in the recipe, for messages.

    Raises:
        DataError: The code is not trusted, or there is no such module or function.
    """
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise DataError(f"{reference!r} is not of the form module:function", where=where)
    module_name, name = match.groups()
    file = base / module_name if module_name.endswith(".py") else None
    ours = _is_ours(module_name) if file is None else file.resolve().is_relative_to(_home())
    if not (ours or trust_code):
        hint = "look at that code first; then allow it with --trust-code (in Python: trust_code=True)"
        raise DataError(f"{reference!r} names code that is not part of the toolkit", where=where, hint=hint)
    module = _import(module_name, base, where) if file is None else _run_file(file, module_name, where)
    function = getattr(module, name, None)
    # What our own module merely imports (os.system, say) is not ours to be named.
    if not callable(function) or (ours and getattr(function, "__module__", None) != module.__name__):
        known = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_") and getattr(v, "__module__", None) == module.__name__]
        raise DataError(f"module {module_name!r} has no function {name!r}", where=where, hint=did_you_mean(name, known))
    found: Callable[..., Any] = function
    return found


def is_ours(reference: str) -> bool:
    """Whether `module:function` names code of the installed `recipes` package, which is known to do the same each time."""
    return _is_ours(reference.partition(":")[0])


def _home() -> Path:
    return (Path(__file__).resolve().parents[2] / _OURS).resolve()


def _is_ours(module_name: str) -> bool:
    """Whether `module_name` is a file of the `recipes` package that is installed beside `quant` (not merely one of that name)."""
    if module_name.split(".", maxsplit=1)[0] != _OURS:
        return False
    home = _home()
    spec = importlib.util.find_spec(_OURS)
    places = {Path(place).resolve() for place in spec.submodule_search_locations or ()} if spec else set()
    file = home.joinpath(*module_name.split(".")[1:])
    return places == {home} and (file.with_suffix(".py").is_file() or (file / "__init__.py").is_file()) and file.resolve().is_relative_to(home)


def _import(module_name: str, base: Path, where: str) -> ModuleType:
    sys.path.insert(0, str(base))
    try:
        importlib.invalidate_caches()
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise  # the module exists, and imports what does not: its author wants the traceback
        raise DataError(f"no module {module_name!r}", where=where, hint=f"put it beside the recipe ({base}), or install it") from error
    finally:
        sys.path.remove(str(base))


def _run_file(file: Path, name: str, where: str) -> ModuleType:
    """Run `file` as the module `name` (as the recipe writes it), under which plug-ins that import by name find it."""
    spec = importlib.util.spec_from_file_location(f"quant_recipe_{file.stem}", file)
    if spec is None or spec.loader is None or not file.is_file():
        raise DataError(f"no file {file.name!r}", where=where, hint=f"paths start in the recipe's folder, {file.parent}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module
    return module
