"""The explorer's widgets, driven without a browser."""

import pytest

from quant.errors import QuantError

pytest.importorskip("ipywidgets", reason="the notebook extra is not installed")
pytest.importorskip("anywidget", reason="the notebook extra is not installed")

MARKUP = "<img src=x onerror=alert(1)>"


@pytest.fixture
def explorer(study):
    from quant.notebook import Explorer

    return Explorer(study)


def _pages(widget):
    """Every HTML that a widget shows, and that its children show."""
    import ipywidgets

    found = [widget.value] if isinstance(widget, ipywidgets.HTML) else []
    return found + [page for child in getattr(widget, "children", ()) for page in _pages(child)]


def test_a_toggle_changes_the_cards_and_the_picture_of_the_front(explorer):
    explorer.state.take(dict.fromkeys(explorer.state.layers, "fp32"))
    explorer._changed()
    before, spot = explorer._prediction.value, tuple(explorer._front.data[3].x)
    assert "0 of 2" in before
    explorer._layer.value = 1
    explorer._choice.value = "int8"
    assert explorer.plan == {MARKUP: "fp32", "dense/second": "int8"}
    assert "1 of 2" in explorer._prediction.value
    assert explorer._front.data[3].x[0] < spot[0]
    [bars] = [t for t in explorer._bars.data if t.name == "int8"]
    assert [o for label, o in zip(bars.y, bars.marker.opacity, strict=True) if label == "dense/second"] == [1.0]


def test_a_budget_that_is_dragged_takes_a_plan_of_the_front(explorer):
    explorer._budget.value = 0.0
    assert set(explorer.plan.values()) == {"fp32"}
    explorer._budget.value = explorer.state.front[0].error.value
    assert explorer.plan == explorer.state.front[0].choices


def test_another_cost_has_a_front_of_its_own(explorer):
    other = next(cost for cost in explorer.state.costs if cost != explorer.state.cost)
    explorer._cost.value = other
    assert explorer._front.layout.xaxis.title.text.startswith(f"predicted {other}")
    assert list(explorer._front.data[0].x) == [s.costs[other] for s in explorer.state.front]


def test_a_bar_that_is_clicked_puts_its_layer_under_the_glass(explorer):
    from types import SimpleNamespace

    [bars] = [t for t in explorer._bars.data if t.name == "int8"]
    for place, layer in enumerate(explorer._rows()):
        explorer._on_bar(bars, SimpleNamespace(point_inds=[place]), None)
        assert explorer._name == layer
        assert "effect" in explorer._page.value


def test_measuring_shows_what_was_found_beside_what_was_predicted(explorer):
    explorer._measure.click()
    assert "accuracy drops by" in explorer._measured.value
    assert len(explorer._front.data[2].x) == 1
    assert not explorer._measure.disabled
    assert explorer._progress.value == ""


def test_a_plan_of_fp32_alone_is_measured_like_any_other_and_once(explorer):
    next(button for button in explorer._presets if button.description == "all fp32").click()
    explorer._measure.click()
    explorer._measure.click()
    assert [(m.found.error, m.found.passes) for m in explorer.state.measured] == [(0.0, True)]
    assert explorer._said.value == ""


def test_what_goes_wrong_while_measuring_is_said_until_the_next_thing_is_done(explorer, monkeypatch):
    monkeypatch.setattr(explorer.state, "measure", lambda: 1 // 0)
    explorer._measure.click()  # widgets swallow what their callbacks raise
    assert "ZeroDivisionError: integer division" in explorer._said.value
    assert explorer._measure.disabled is False

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(explorer.state, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        explorer._measure.click()
    assert "interrupted; what was finished is kept" in explorer._said.value
    explorer._presets[0].click()
    assert explorer._said.value == ""


def test_a_run_whose_folder_is_gone_is_said_to_be(tmp_path):
    from quant.engine.run import Run
    from quant.notebook import Explorer

    with pytest.raises(QuantError, match="the folder of this run is gone"):
        Explorer(Run(None, tmp_path / "gone"))


def test_a_plan_is_saved_where_the_user_says_and_a_mistake_is_said_below(explorer, tmp_path):
    explorer._path.value = str(tmp_path / "mine.yaml")
    explorer._save.click()
    assert "saved" in explorer._said.value
    assert (tmp_path / "mine.yaml").read_text().startswith("# ")
    explorer._path.value = str(tmp_path)
    explorer._save.click()
    assert 'role="alert"' in explorer._said.value


def test_layers_are_found_sorted_and_filtered(explorer):
    assert set(explorer._rows()) == {MARKUP, "dense/second"}
    explorer._order.value = "name"
    assert explorer._rows() == [MARKUP, "dense/second"]
    explorer._find.value = "SECOND"
    assert explorer._rows() == ["dense/second"]
    assert [list(t.y) for t in explorer._bars.data if t.visible] == [["dense/second"]]


def test_names_do_nothing(explorer):
    for place in range(len(explorer.state.layers)):
        explorer._layer.value = place
        for page in _pages(explorer.widget):
            assert "<img src=x" not in page
            assert "<script" not in page
    for figure in (explorer._bars, explorer._front):
        assert "<img" not in figure.to_json().replace("\\u003c", "<")


def test_a_notebook_shows_it(explorer):
    assert "application/vnd.jupyter.widget-view+json" in explorer._repr_mimebundle_()


def test_without_widgets_the_extra_is_named(study, monkeypatch):
    import sys

    from quant.errors import QuantError
    from quant.notebook import Explorer

    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(QuantError, match="there is no ipywidgets here") as error:
        Explorer(study)
    assert "quant-toolkit[notebook]" in str(error.value)
