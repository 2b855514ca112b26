"""Every document that the API gives can be looked at: as HTML, as a data frame, as a figure; and what holds content can be saved and loaded."""

import html.parser
import inspect
import json

import numpy as np
import pytest

import quant
from quant import api
from quant.core.documents import Document
from quant.core.shown import Chart, Series, Shown, Table

PLANNED = {
    "schemes": ["int8", "int8-dynamic"],
    "data": {"splits": {"calibration": 64, "search": 100, "evaluation": 300}},
    "targets": ["onnxruntime"],
    "plan": {"minimize": "size"},
}
MARKUP = "<img src=x onerror=alert(1)>"
SCRIPT = "<script>alert(1)</script>"


def documents_of_the_api():
    """Every class that a public function returns, or that is public by itself, and that is a document."""
    found = {}
    for name in api.__all__:
        thing = getattr(api, name)
        if inspect.isfunction(thing):
            thing = getattr(api, thing.__annotations__["return"], None)
        if inspect.isclass(thing) and not issubclass(thing, Exception):
            found[thing.__name__] = thing
    return found


@pytest.fixture(scope="module")
def made(make_project, tmp_path_factory):
    """Name of a document's class -> one, of real work."""
    folder = tmp_path_factory.mktemp("faces")
    project = make_project(folder / "project")
    project.write(PLANNED)
    with pytest.MonkeyPatch.context() as patch:
        from quant.engine import timing

        patch.setattr(timing, "measure_first_runs", lambda *_arguments, **_options: {})
        patch.setenv("QUANT_CACHE", str(folder / "cache"))
        patch.chdir(project.folder)
        recipe = project.recipe
        run = quant.run(recipe, output=project.output)
        found = [
            run,
            run.report,
            run.report.candidates[0].gates[0].verdict,
            quant.load_recipe(recipe),
            quant.load_model(project.folder / "digits.onnx"),
            quant.calibrate(recipe),
            quant.evaluate(recipe),
            quant.profile(recipe),
            quant.plan(recipe),
            quant.export(recipe, output=folder / "exported", scheme="int8"),
            quant.audit(folder / "exported"),
            quant.ladder(project.output / "artifacts" / "onnxruntime" / "int8" / "model.onnx", targets=["onnxruntime"], samples=4),
            quant.compare(run, project.output),
            quant.verify(run),
            quant.validate(project.output, candidate="int8-dynamic", load_s=0.1),
        ]
    return {type(one).__name__: one for one in found}


SHOWN = sorted(name for name, kind in documents_of_the_api().items() if issubclass(kind, Shown))


def test_only_what_is_no_document_has_no_face():
    assert set(documents_of_the_api()) - set(SHOWN) <= {"FromModelOpt", "Path"}


class Tags(html.parser.HTMLParser):
    """Which elements a page has, and what it says."""

    def __init__(self, page):
        super().__init__()
        self.seen, self.open, self.said = set(), [], ""
        self.feed(page)

    def handle_starttag(self, tag, _attributes):
        self.seen.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.said += data


@pytest.mark.parametrize("name", SHOWN)
def test_it_is_shown_as_html_that_needs_nothing_else(made, name):
    page = made[name]._repr_html_()
    tags = Tags(page)
    assert tags.open == []
    assert tags.seen <= {"div", "table", "thead", "tbody", "tr", "th", "td", "code"}
    assert "http" not in page.replace(tags.said, "")
    assert "color:inherit" in page
    table = made[name].as_table()
    assert table.title in tags.said
    assert all(column in tags.said for column in table.columns)


@pytest.mark.parametrize("name", SHOWN)
def test_it_is_a_data_frame_of_all_its_rows(made, name):
    table, frame = made[name].as_table(), made[name].to_frame()
    assert list(frame.columns) == list(table.columns)
    assert len(frame) == len(table.rows)
    assert len(frame) > 0 or name == "Verification"


@pytest.mark.parametrize("name", SHOWN)
def test_it_is_a_figure_with_something_in_it(made, name):
    chart = made[name].as_chart()
    figure = made[name].plot()
    assert [len(trace.x) for trace in figure.data] == [len(one.x) for one in chart.series]
    assert sum(len(trace.x) for trace in figure.data) > 0
    assert figure.layout.title.text
    assert figure.layout.paper_bgcolor == "rgba(0,0,0,0)"


@pytest.mark.parametrize("name", [name for name in SHOWN if hasattr(documents_of_the_api()[name], "load")])
def test_what_is_saved_is_loaded_as_it_was(made, name, tmp_path):
    one = made[name]
    if name == "Run":
        again = quant.Run.load(one.folder)
        assert again == one
        return
    where = tmp_path / ("recipe.yaml" if name == "LoadedRecipe" else "saved")
    one.save(str(where))
    again = type(one).load(str(where))
    assert again.to_frame().equals(one.to_frame()) or name == "LoadedRecipe"
    if isinstance(one, Document) or hasattr(one, "digest"):
        assert again.digest == one.digest
    else:
        assert again == one


def test_a_plan_that_is_saved_is_what_apply_takes(made, tmp_path):
    made["Planned"].save(str(tmp_path / "plan.yaml"))
    assert "layers:" in (tmp_path / "plan.yaml").read_text()


def test_effects_are_drawn_with_their_standard_errors_the_largest_first(made):
    profile = made["SensitivityProfile"]
    figure = profile.plot()
    worst = max((e for e in profile.effects if e.part == "both"), key=lambda e: e.value)
    trace = next(t for t in figure.data if t.name == worst.format)
    assert (trace.x[0], trace.y[0], trace.error_x.array[0]) == (worst.value, worst.layer, worst.standard_error)


def test_names_from_models_and_data_do_nothing():
    table = Table(MARKUP, (SCRIPT,), [[MARKUP]], {SCRIPT: MARKUP})
    assert Tags(table.html()).seen <= {"div", "table", "thead", "tbody", "tr", "th", "td"}
    chart = Chart(MARKUP, SCRIPT, MARKUP, [Series(MARKUP, [1.0], [SCRIPT], said=[MARKUP]), Series("b", [1.0], [MARKUP])], "bars", limits={SCRIPT: 1.0})
    drawn = json.loads(chart.figure().to_json())
    assert "<" not in json.dumps({key: drawn[key] for key in ("data", "layout")})


def test_of_many_rows_the_first_are_shown_and_all_are_in_the_frame():
    table = Table("many", ("n",), [[n] for n in range(100)])
    assert Tags(table.html()).said.count("\N{HORIZONTAL ELLIPSIS} and 75 more rows") == 1
    assert len(table.frame()) == 100


def test_of_many_bars_the_largest_are_drawn_and_what_is_left_out_is_said():
    chart = Chart("effects", "x", "", [Series("a", [float(n) for n in range(100)], [f"layer {n}" for n in range(100)])], "bars")
    figure = chart.figure(most=10)
    assert list(figure.data[0].x) == [float(n) for n in range(90, 100)]
    assert "the 10 largest of 100" in figure.layout.title.text


def test_bars_of_a_few_stay_in_their_order_and_infinite_values_break_nothing():
    chart = Chart("x", "x", "", [Series("a", [float("inf"), 1.0], ["a", "b"])], "bars")
    assert list(chart.figure().data[0].y) == ["a", "b"]


def test_load_model_takes_what_a_recipe_takes(project):
    found = quant.load_model(project.folder / "digits.onnx")
    assert [layer.name for layer in found.layers] == ["dense/first", "dense/second"]
    assert found.parameters == 64 * 48 + 48 + 48 * 10 + 10
    with pytest.raises(quant.QuantError, match="no option of a model is called 'poling'"):
        quant.load_model(project.folder / "digits.onnx", poling="mean")
    with pytest.raises(quant.QuantError, match="kind: "):
        quant.load_model(project.folder / "digits.onnx", kind="pickle")
    with pytest.raises(quant.QuantError, match="exported with examples"):
        quant.load_model("mine.py:model", trust_code=True)


@pytest.mark.slow
def test_load_model_exports_a_torch_module(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("import torch\n\n\ndef model():\n    return torch.nn.Sequential(torch.nn.Linear(4, 3)).eval()\n")
    monkeypatch.chdir(tmp_path)
    found = quant.load_model("mine:model", examples=[{"input": np.ones(4, np.float32)}, {"input": np.zeros(4, np.float32)}], trust_code=True)
    assert found.parameters == 4 * 3 + 3


def test_export_writes_the_artifact_of_the_run(made, make_project, tmp_path):
    project = make_project(tmp_path / "project")
    project.write(PLANNED)
    artifact = quant.export(project.recipe, output=tmp_path / "exported", scheme="int8")
    ran = quant.Artifact.load(made["Run"].folder / "artifacts" / "onnxruntime" / "int8" / "artifact.json")
    assert artifact.files == ran.files
    assert quant.audit(tmp_path / "exported", plan=tmp_path / "exported" / "plan.json").wrong == ()
    again = quant.export(project.recipe, output=tmp_path / "exported", scheme="int8-dynamic")
    assert again.scheme == "int8-dynamic"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    for how, said in (
        ({"scheme": "int9"}, "no scheme 'int9'"),
        ({"target": "gpu"}, "no target 'gpu'"),
        ({"output": tmp_path / "mine"}, "something else than an artifact"),
    ):
        with pytest.raises(quant.QuantError, match=said):
            quant.export(project.recipe, **({"output": tmp_path / "other"} | how))
    assert (tmp_path / "mine" / "thesis.txt").exists()


@pytest.mark.parametrize("name", SHOWN)
def test_printed_it_is_a_table_and_never_a_wall_of_text(made, name):
    said = str(made[name])
    assert said.splitlines()[0].startswith(made[name].as_table().title[:20])
    assert len(said.splitlines()) <= 29  # title, facts, heads, 25 rows, how many more


@pytest.mark.parametrize("name", ["Run", "CalibrationTable", "Planned", "LoadedRecipe"])
def test_what_holds_a_lot_is_named_in_a_line(made, name):
    assert len(repr(made[name])) < 400
    assert name in repr(made[name])


def test_a_figure_of_no_rows_is_refused(made):
    with pytest.raises(quant.QuantError, match="`most` is a number of rows from 1 on, got 0"):
        made["Run"].plot(most=0)
