"""Files stay small, and every one says what it is for."""

import ast
import re
import tomllib

import pytest

MOST_LINES = 400


def test_no_file_outgrows_a_reader(sources, top):
    tests = sorted((top / "tests").rglob("*.py"))
    long = {path.relative_to(top).as_posix(): n for path in (*sources, *tests) if (n := path.read_text(encoding="utf-8").count("\n")) > MOST_LINES}
    assert not long, f"more than {MOST_LINES} lines; find what is two things in one: {long}"


def test_every_module_says_what_it_is_for(sources, top):
    silent = [path.relative_to(top).as_posix() for path in sources if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]
    assert not silent


def test_every_package_folder_is_a_package(sources):
    folders = {path.parent for path in sources}
    assert not [folder for folder in folders if not (folder / "__init__.py").exists()]


@pytest.mark.parametrize(("paper", "most"), [("ARCHITECTURE.md", 150)])
def test_the_paper_stays_short(top, paper, most):
    assert (top / paper).read_text(encoding="utf-8").count("\n") <= most


def test_every_decision_is_numbered_in_turn_and_short(top):
    blocks = (top / "DECISIONS.md").read_text(encoding="utf-8").split("\n## ")[1:]
    for number, block in enumerate(blocks, start=1):
        assert block.startswith(f"{number}. "), block.splitlines()[0]
        assert len(block.strip().splitlines()) <= 15, block.splitlines()[0]


def test_hints_name_extras_that_exist(sources, top):
    extras = tomllib.loads((top / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = {name for path in sources for name in re.findall(r"quant-toolkit\[([\w,-]+)\]", path.read_text(encoding="utf-8"))}
    assert named
    assert named <= set(extras)
