"""That rooms keep to their floors is checked by `lint-imports`; here, that no room escapes it, and what it cannot see."""

import ast
import re
import subprocess
import sys
import tomllib

import pytest

from quant.engine.bind import REGISTRIES

HEAVY = ("torch", "onnx", "onnxruntime", "onnxscript", "transformers", "datasets", "sklearn", "scipy", "pandas", "pyarrow", "plotly", "huggingface_hub")


def _floors(top):
    [contract] = tomllib.loads((top / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    return [set(re.findall(r"[\w.]+", layer)) for layer in contract["layers"]]


def test_every_room_has_its_floor(top):
    rooms = {f"quant.{path.stem}" for path in (top / "quant").iterdir() if path.stem not in {"__init__", "__pycache__"} and path.suffix in {"", ".py"}}
    rooms |= {"calibrators", "evaluators", "recipes"}
    missing = rooms - set().union(*_floors(top))
    assert not missing, f"without a floor in pyproject.toml's contract: {sorted(missing)}"


def test_architecture_shows_the_floors_of_the_contract(top):
    text = (top / "ARCHITECTURE.md").read_text(encoding="utf-8")
    house = re.search(r"## The house.*?```text\n(.*?)```", text, re.DOTALL)[1]
    shown = [house.find(min(layer).replace("quant.", "quant/", 1)) for layer in _floors(top)]
    assert -1 not in shown, f"not shown: {[sorted(layer) for layer, at in zip(_floors(top), shown, strict=True) if at < 0]}"
    assert shown == sorted(shown), "ARCHITECTURE.md shows the floors in another order"


def _imports(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("noun", REGISTRIES)
def test_no_plugin_knows_another(noun, top):
    modules = {REGISTRIES[noun].get(kind).__module__ for kind in REGISTRIES[noun]}
    assert modules, f"no {noun} is registered"
    for module in modules:
        others = modules - {module}
        known = others & set(_imports(top / f"{module.replace('.', '/')}.py"))
        assert not known, f"{module} imports {sorted(known)}: what they share belongs into a module that is no plug-in"


def _loaded_by(statements):
    code = f"import sys\n{statements}\nprint(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


ALL_OF_CORE = """\
import importlib, pkgutil, quant.core
for module in pkgutil.walk_packages(quant.core.__path__, "quant.core."):
    importlib.import_module(module.name)
"""


@pytest.mark.parametrize("statements", ["import quant", "import quant.cli", ALL_OF_CORE], ids=["quant", "quant.cli", "quant.core"])
def test_import_is_light(statements):
    assert _loaded_by(statements) == []


def test_the_lightness_check_sees_a_heavy_import():
    assert _loaded_by("import onnx") == ["onnx"]
