"""Progress: a bar on a terminal, silence elsewhere."""

from __future__ import annotations

import io
import itertools
import sys
import types

import pytest

from quant.core.progress import progress, shown_in, tracked


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_without_a_terminal_nothing_is_shown_and_rich_is_not_asked(capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.progress", None)  # an import of it would fail
    with progress("working", 3) as advance:
        advance(3)
    assert list(tracked([1, 2, 3], "working")) == [1, 2, 3]
    assert capfd.readouterr() == ("", "")


def test_on_a_terminal_the_title_and_the_count_are_shown_on_standard_error(monkeypatch, capfd):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with progress("calibrating", 4) as advance:
        advance(4)
    assert "calibrating" in terminal.getvalue()
    assert "4/4" in terminal.getvalue()
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("items", [[1, 2], (x for x in (1, 2))], ids=["sized", "unsized"])
def test_tracked_gives_every_item_on_a_terminal_too(monkeypatch, items):
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert list(tracked(items, "working")) == [1, 2]


def test_tracked_is_lazy():
    taken = []
    source = (taken.append(i) or i for i in range(5))
    stream = tracked(source, "working", 5)
    assert next(stream) == 0
    assert taken == [0]


def test_an_error_inside_the_block_comes_through():
    with pytest.raises(KeyError, match="gone"), progress("working", None):
        raise KeyError("gone")


class Handle:
    """What IPython gives for something that is shown and can be replaced."""

    def __init__(self):
        self.pages = []

    def update(self, page):
        self.pages.append(page._repr_mimebundle_()["text/html"])


@pytest.fixture
def notebook(monkeypatch):
    """This process as the kernel of a notebook; gives what is shown."""
    handle = Handle()

    def display(page, display_id):
        assert display_id
        handle.update(page)
        return handle

    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    shown = types.ModuleType("IPython.display")
    shown.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    ticks = itertools.count(0.0, 0.5)
    monkeypatch.setattr("quant.core.progress.time", types.SimpleNamespace(monotonic=lambda: next(ticks)))
    return handle


def test_in_a_notebook_a_bar_shows_the_time_left_and_is_gone_when_the_work_is_done(notebook):
    with progress("calibrating <b>", 4) as advance:
        advance(1)
        advance(1)
    first, one, two, last = notebook.pages
    assert "0 of 4" in first
    assert 'value="1" max="4"' in one
    assert "1 of 4, 0:01, 0:02 left" in one
    assert "2 of 4, 0:01, 0:01 left" in two
    assert last == ""
    assert "<b>" not in "".join(notebook.pages)


def test_in_a_notebook_a_bar_goes_when_the_work_is_interrupted(notebook):
    def interrupted():
        with progress("calibrating", None) as advance:
            advance(1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert "calibrating: 1, 0:01" in notebook.pages[1]
    assert notebook.pages[-1] == ""


def test_ipython_on_a_terminal_is_no_notebook(monkeypatch, capfd):
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = types.SimpleNamespace
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    with progress("working", 3) as advance:
        advance(3)
    assert capfd.readouterr() == ("", "")


def test_a_place_of_ones_own_comes_before_the_terminal_and_the_notebook(notebook, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    pages = []
    with shown_in(pages.append):
        assert list(tracked([1, 2], "measuring")) == [1, 2]
    assert ["measuring: 0 of 2" in pages[0], "measuring: 1 of 2" in pages[1], pages[-1]] == [True, True, ""]
    assert (terminal.getvalue(), notebook.pages) == ("", [])
