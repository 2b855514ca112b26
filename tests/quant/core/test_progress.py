"""Progress: a bar on a terminal, silence elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from quant.core.progress import progress, tracked


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
