"""Registries: found by walking a package, loud when something is wrong."""

from __future__ import annotations

import sys
import textwrap
from typing import ClassVar

import pytest
from pydantic import ValidationError

from quant.core.registry import Options, Registry, did_you_mean
from quant.errors import RecipeError

PLUGIN = """
    from quant.core.registry import Options as Base
    from {package} import REGISTRY

    @REGISTRY.add
    class Plugin:
        kind = "{kind}"

        class Options(Base):
            size: int = 3

        def __init__(self, options):
            self.options = options
"""


@pytest.fixture
def package(tmp_path, monkeypatch, request):
    """A package of plug-ins on the path, empty but for its registry; call it with a module's name and text to add one."""
    name = "plugins_" + "".join(c if c.isalnum() else "_" for c in request.node.name)
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text(f"from quant.core.registry import Registry\nREGISTRY = Registry('gadget', {name!r})\n")
    monkeypatch.syspath_prepend(tmp_path)

    def add(module, text=PLUGIN, kind="plain"):
        (folder / f"{module}.py").write_text(textwrap.dedent(text.format(package=name, kind=kind)))

    def registry():
        return __import__(name).REGISTRY

    add.registry = registry
    yield add
    for module in [m for m in sys.modules if m.split(".")[0] == name]:
        del sys.modules[module]


def test_every_module_of_the_package_is_found_by_its_kind(package):
    package("one", kind="zeta")
    package("two", kind="alpha")
    registry = package.registry()
    assert registry.kinds() == ("alpha", "zeta")
    assert list(registry) == ["alpha", "zeta"]
    assert "alpha" in registry
    assert "beta" not in registry
    assert registry.get("zeta").kind == "zeta"


def test_a_plug_in_is_made_with_its_options(package):
    package("one", kind="plain")
    assert package.registry().make("plain").options.size == 3
    assert package.registry().make("plain", {"size": 5}).options.size == 5


def test_unknown_and_wrong_options_are_refused(package):
    package("one", kind="plain")
    with pytest.raises(ValidationError, match="colour\n  Extra inputs are not permitted"):
        package.registry().make("plain", {"colour": 1})
    with pytest.raises(ValidationError, match="size\n  Input should be a valid integer"):
        package.registry().make("plain", {"size": "big"})


def test_an_unknown_kind_names_the_nearest(package):
    package("one", kind="minmax")
    package("two", kind="entropy")
    with pytest.raises(RecipeError, match=r"^unknown gadget 'minmx'\nhint: did you mean 'minmax'\?$"):
        package.registry().get("minmx")
    with pytest.raises(RecipeError, match=r"^unknown gadget 'zzz'\nhint: known: entropy, minmax$"):
        package.registry().make("zzz")


def test_the_same_kind_in_two_modules_stops_the_program(package):
    package("one", kind="plain")
    package("two", kind="plain")
    with pytest.raises(AssertionError, match=r"^gadget 'plain' is registered by plugins_\w+\.one\.Plugin and by plugins_\w+\.two\.Plugin$"):
        package.registry().kinds()


def test_the_same_kind_twice_in_one_module_stops_the_program(package):
    package("one", PLUGIN + "\n    @REGISTRY.add\n    class Second(Plugin):\n        pass\n", kind="plain")
    with pytest.raises(AssertionError, match=r"registered by plugins_\w+\.one\.Plugin and by plugins_\w+\.one\.Second$"):
        package.registry().kinds()


def test_a_module_that_is_loaded_again_takes_its_own_place(package):
    package("one", kind="plain")
    registry = package.registry()
    first = registry.get("plain")
    module = sys.modules.pop(first.__module__)
    again = __import__(first.__module__, fromlist=["Plugin"])
    assert again is not module
    assert registry.get("plain") is again.Plugin


@pytest.mark.parametrize(("text", "error"), [("import no_such_library_anywhere", ModuleNotFoundError), ("1 / 0", ZeroDivisionError), ("def", SyntaxError)])
def test_a_module_that_cannot_be_imported_stops_with_its_own_error(package, text, error):
    package("good", kind="plain")
    package("oops", text)
    registry = package.registry()
    for _ in range(2):  # and does so again: a half-filled registry is never taken for a whole one
        with pytest.raises(error):
            registry.kinds()


def test_the_decorator_gives_the_class_back():
    registry = Registry("gadget", "quant.core")

    class Plugin:
        kind: ClassVar[str] = "p"

    assert registry.add(Plugin) is Plugin


def test_options_are_frozen():
    class Some(Options):
        size: int = 3

    with pytest.raises(ValidationError, match="Instance is frozen"):
        Some().size = 4


def test_hints_name_at_most_three_near_names_and_twenty_known_ones():
    assert did_you_mean("scale", ["scale1", "scale2", "scale3", "scale4"]).count("'") == 6
    assert did_you_mean("qqqqq", [f"name{i:02}" for i in range(50)]) == "known: " + ", ".join(f"name{i:02}" for i in range(20))
    assert did_you_mean("x", []) == ""
