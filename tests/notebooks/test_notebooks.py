"""Every notebook runs from top to bottom, as a reader would run it; none is committed with what it printed."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((TOP / "notebooks").glob("*.ipynb"))
MOST_SECONDS = 60  # of processor time, warm, on the machine that CI runs on
PATIENCE_S = 120  # for one cell, on however busy a machine
SPENT = "import resource\nprint(sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))"


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request):
    """One notebook after the other."""
    return request.param


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Name of a kernel that is the running interpreter, whatever other kernels this machine knows."""
    folder = tmp_path / "jupyter" / "kernels" / "quant-tests"
    folder.mkdir(parents=True)
    told = {"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "tests", "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(told), encoding="utf-8")
    monkeypatch.setenv("JUPYTER_PATH", str(folder.parents[1]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(TOP), os.environ.get("PYTHONPATH")])))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    return folder.name


def test_there_are_notebooks_and_the_readme_lists_them():
    listed = re.findall(r"\]\((\w+\.ipynb)\)", (TOP / "notebooks" / "README.md").read_text(encoding="utf-8"))
    assert listed == [path.name for path in NOTEBOOKS]
    assert listed


def test_nothing_that_was_printed_is_committed(path):
    book = json.loads(path.read_text(encoding="utf-8"))
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    assert set(book["metadata"]) == {"kernelspec", "language_info"}
    assert book["metadata"]["language_info"] == {"name": "python"}
    for cell in book["cells"]:
        assert cell["metadata"] == {}, cell["id"]
        assert re.fullmatch(rf"{path.stem[:2]}-\d\d", cell["id"])
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None), cell["id"]


def test_it_asks_a_question_and_answers_it_from_numbers(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells]
    assert re.match(r"# [^\n]+\n\n\*\*Question: [^*]+\?[^*]*\*\*", texts[0])
    at = texts.index("## Answer")
    assert "Markdown(\n    f" in texts[at + 1], "the answer is made of what was computed"
    assert "assert " in texts[at + 1]
    said = " ".join(text for text, cell in zip(texts[at + 2 :], cells[at + 2 :], strict=True) if cell["cell_type"] == "markdown")
    assert not re.search(r"\d", re.sub(r"\([^)]*\)|`[^`]*`|\b(?:INT|FP)\d+\b", "", said)), "nothing that the code does not compute"


def test_its_code_uses_the_public_functions_alone(path):
    code = "\n".join("".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code")
    imported = re.findall(r"^\s*(?:from|import) ((?:quant|calibrators|evaluators|recipes)\S*)", code, flags=re.MULTILINE)
    assert set(imported) <= {"quant", "quant.notebook"}
    assert "quant" in imported


@pytest.mark.slow
@pytest.mark.network
def test_it_runs_from_top_to_bottom(path, kernel, tmp_path, record_property):
    nbformat = pytest.importorskip("nbformat", reason="comes with quant-toolkit[notebook]")
    nbclient = pytest.importorskip("nbclient", reason="comes with quant-toolkit[notebook]")
    pytest.importorskip("ipykernel", reason="comes with quant-toolkit[notebook]")
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    book.cells.append(nbformat.v4.new_code_cell(SPENT))
    client = nbclient.NotebookClient(book, kernel_name=kernel, timeout=PATIENCE_S, resources={"metadata": {"path": str(tmp_path)}})
    try:
        client.execute()
    except nbclient.exceptions.CellExecutionError as error:
        if error.ename == "SkipTest":
            pytest.skip(error.evalue)
        raise
    nbformat.write(book, tmp_path / path.name)  # kept as test output
    seconds = float(book.cells[-1].outputs[0].text)
    record_property("figure", f"{path.stem}: {seconds:.0f} s of processor time")
    told = [output for cell in book.cells[:-1] if cell.cell_type == "code" for output in cell.outputs]
    assert not [output.text for output in told if output.output_type == "stream" and output.name == "stderr" and "Traceback" in output.text]
    assert any("application/vnd.plotly.v1+json" in output.get("data", {}) for output in told), "it shows a figure"
    assert "text/markdown" in book.cells[_answer(book)].outputs[-1].data
    assert seconds < MOST_SECONDS


def _answer(book):
    return next(n for n, cell in enumerate(book.cells) if cell.source == "## Answer") + 1
