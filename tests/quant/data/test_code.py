"""Code that recipes name: what is found, and what is trusted."""

import sys
import textwrap
from pathlib import Path

import pytest

from quant.data import code
from quant.data.code import load_function
from quant.errors import DataError


def function(reference, base, *, trust_code=True):
    return load_function(reference, base=base, trust_code=trust_code, where="recipe.yaml:4")


def test_a_module_of_the_environment_is_found(tmp_path):
    assert function("math:hypot", tmp_path)(3, 4) == 5


def test_a_file_beside_the_recipe_is_found(tmp_path):
    (tmp_path / "mine.py").write_text("def double(x):\n    return 2 * x\n")
    assert function("mine.py:double", tmp_path)(4) == 8


def test_a_module_beside_the_recipe_is_found_and_the_path_is_left_as_it_was(tmp_path):
    before = list(sys.path)
    (tmp_path / "beside_the_recipe.py").write_text("def double(x):\n    return 2 * x\n")
    assert function("beside_the_recipe:double", tmp_path)(4) == 8
    assert sys.path == before


def test_the_nearest_function_is_named(tmp_path):
    (tmp_path / "mine.py").write_text("def double(x):\n    return 2 * x\n")
    with pytest.raises(DataError, match=r"(?s)recipe.yaml:4: module 'mine.py' has no function 'duble'.*did you mean 'double'"):
        function("mine.py:duble", tmp_path)


@pytest.mark.parametrize(
    ("reference", "message"), [("nosuch.module:f", "no module 'nosuch.module'"), ("no.py:f", "no file 'no.py'"), ("rubbish", "not of the form")]
)
def test_what_is_not_there_is_said(tmp_path, reference, message):
    with pytest.raises(DataError, match=message):
        function(reference, tmp_path)


def test_a_module_that_fails_to_import_something_keeps_its_traceback(tmp_path):
    (tmp_path / "imports_what_is_not_there.py").write_text("import no_such_library_anywhere\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_library_anywhere"):
        function("imports_what_is_not_there:f", tmp_path)


def test_untrusted_code_is_not_even_imported(tmp_path):
    (tmp_path / "leaves_a_mark.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w').close()\n")
    for reference in ("leaves_a_mark:f", "leaves_a_mark.py:f"):
        with pytest.raises(DataError, match="--trust-code"):
            function(reference, tmp_path, trust_code=False)
    assert not (tmp_path / "mark").exists()


@pytest.fixture
def our_recipes(tmp_path, monkeypatch):
    """An installed `recipes` package beside an installed `quant`."""
    home = tmp_path / "site" / "recipes"
    home.mkdir(parents=True)
    (home / "__init__.py").touch()
    (home / "digits.py").write_text(textwrap.dedent("import os\nfrom os import system\n\ndef load():\n    return [1]\n"))
    monkeypatch.setattr(code, "__file__", str(tmp_path / "site" / "quant" / "data" / "code.py"))
    for name in [name for name in sys.modules if name.split(".")[0] == "recipes"]:
        monkeypatch.delitem(sys.modules, name)
    yield home
    for name in [name for name in sys.modules if name.split(".")[0] == "recipes"]:
        del sys.modules[name]


def test_code_of_our_own_recipes_runs_without_being_trusted(tmp_path, monkeypatch, our_recipes):
    monkeypatch.syspath_prepend(str(our_recipes.parent))
    assert function("recipes.digits:load", tmp_path, trust_code=False)() == [1]


def test_what_our_recipes_import_is_not_ours(tmp_path, monkeypatch, our_recipes):
    monkeypatch.syspath_prepend(str(our_recipes.parent))
    with pytest.raises(DataError, match="has no function 'system'"):
        function("recipes.digits:system", tmp_path, trust_code=False)


def test_a_folder_that_only_calls_itself_recipes_is_not_ours(tmp_path, monkeypatch, our_recipes):
    assert our_recipes.is_dir()
    other = tmp_path / "user" / "recipes"
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    (other / "digits.py").write_text("def load():\n    return ['not ours']\n")
    monkeypatch.syspath_prepend(str(other.parent))
    with pytest.raises(DataError, match="--trust-code"):
        function("recipes.digits:load", tmp_path, trust_code=False)


def test_a_way_out_of_our_folder_is_not_ours(our_recipes):
    outside = our_recipes.parent / "outside.py"
    outside.write_text("def f():\n    return 1\n")
    with pytest.raises(DataError, match="--trust-code"):
        function(f"{Path('..') / 'outside.py'}:f", our_recipes, trust_code=False)
    (our_recipes / "inside.py").write_text("def f():\n    return 1\n")
    assert function("inside.py:f", our_recipes, trust_code=False)() == 1
