"""What the papers show works: commands, recipes, code, links."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from quant.cli import app
from quant.engine.bind import bind
from quant.recipe.load import load_recipe
from quant.schemes import SCHEMES
from quant.targets import TARGETS

TOP = Path(__file__).resolve().parents[2]
PAPERS = ("README.md", "recipes/README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "DECISIONS.md", "CHANGELOG.md")
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def _blocks(paper, language):
    """(words behind the language, text) of each block."""
    return [(words.split(), text) for found, words, text in FENCE.findall((TOP / paper).read_text(encoding="utf-8")) if found == language]


def _commands(*, quick=False):
    return sorted(
        {
            line[2:]
            for paper in PAPERS
            for words, text in _blocks(paper, "console")
            if not quick or "quick" in words
            for line in text.splitlines()
            if line.startswith("$ ")
        }
    )


def _parse(command, words):
    """Let the command line take `words` apart, without running anything; wrong words are an error."""
    context = command.make_context("quant", list(words))
    if hasattr(command, "resolve_command") and (rest := [*context._protected_args, *context.args]):
        _, inner, rest = command.resolve_command(context, rest)
        _parse(inner, rest)


@pytest.mark.parametrize("command", _commands())
def test_every_command_in_the_papers_exists(command):
    program, *words = shlex.split(command)
    if program == "quant":
        _parse(typer.main.get_command(app), words)
    elif program == "make":
        subprocess.run(["make", "-n", *words], cwd=TOP, check=True, capture_output=True)
    else:
        assert [program, *words[:3]] == ["python", "-m", "pip", "install"], f"nothing here checks {command!r}"
        assert (TOP / words[words.index("--constraint") + 1]).is_file()


def test_a_wrong_command_would_be_noticed():
    with pytest.raises(Exception, match="--outptu"):
        _parse(typer.main.get_command(app), ["run", "text-sentiment", "--outptu", "x"])


@pytest.mark.parametrize("command", _commands(quick=True))
def test_quick_commands_run(command):
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert done.exit_code == 0, done.output
    assert done.stdout


def test_the_recipes_in_readme_are_recipes(tmp_path):
    found = []
    for _, text in _blocks("README.md", "yaml"):
        (tmp_path / "my.yaml").write_text(text, encoding="utf-8")
        found.append(bind(load_recipe(tmp_path / "my.yaml"), trust_code=False))
    assert list(found[0].schemes) == ["int8-dynamic", "int8"]
    assert [(name, spec.max_drop, spec.relative) for name, spec in found[1].gates] == [("accuracy", 0.01, True), ("log-loss", 0.02, False)]


@pytest.mark.slow
@pytest.mark.network
def test_the_python_in_readme_runs(tmp_path, monkeypatch, capsys):
    [(_, text)] = _blocks("README.md", "python")
    monkeypatch.chdir(tmp_path)
    exec(compile(text, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert printed.split()[0] in {"pass", "fail", "inconclusive"}
    assert (tmp_path / "out" / "text-sentiment" / "report.html").is_file()


def test_the_page_in_contributing_becomes_a_calibrator_that_is_tested_unasked(tmp_path):
    [(_, text)] = _blocks("CONTRIBUTING.md", "python")
    (tmp_path / "middle.py").write_text(text, encoding="utf-8")
    arguments = [str(TOP / "tests" / "conformance" / "test_calibrators.py"), "-q", "-k", "middle and ordered", "-p", "no:cacheprovider"]
    code = f"import calibrators, pytest, sys\ncalibrators.__path__.append({str(tmp_path)!r})\nsys.exit(pytest.main({arguments!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert re.search(r"[1-9]\d* passed", done.stdout)


@pytest.mark.parametrize("registry", [SCHEMES, TARGETS], ids=lambda registry: registry.noun)
def test_readme_says_what_is_supported_and_what_is_not_yet(registry):
    text = (TOP / "README.md").read_text(encoding="utf-8")
    [row] = re.findall(rf"^\| {registry.noun}s \|(.*)\|(.*)\|$", text, re.MULTILINE)
    now, later = (set(re.findall(r"`([\w-]+)`", cell)) for cell in row)
    assert now == set(registry.kinds())
    assert not later & now


@pytest.mark.parametrize("paper", PAPERS)
def test_links_lead_somewhere(paper):
    for target in re.findall(r"\]\(([^)#]+)\)", (TOP / paper).read_text(encoding="utf-8")):
        assert target.startswith("https://") or (TOP / paper).parent.joinpath(target).exists(), target


@pytest.mark.parametrize("paper", PAPERS)
def test_files_that_papers_name_exist(paper):
    """Names in backticks that begin like ours, but for places where a NAME is to be put."""
    tops = ("quant/", "calibrators/", "evaluators/", "recipes/", "tests/")
    names = re.findall(r"`([\w./-]+)`", (TOP / paper).read_text(encoding="utf-8"))
    missing = [name for name in names if name.startswith(tops) and "NAME" not in name and not (TOP / name).exists()]
    assert not missing
