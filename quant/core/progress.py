"""Progress of long work: a bar with the time left on a terminal and in a notebook, and silence elsewhere."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from html import escape
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")
_SHOWN = Lock()
"""Held while a bar is shown: a terminal has room for one, and what goes on within it, or beside it, is silent."""
Place = Callable[[str], None]
"""Takes the HTML of a bar, again and again, and nothing when it is over."""
_PLACE: ContextVar[Place | None] = ContextVar("place", default=None)
_EVERY_S = 0.2
_MINUTE, _HOUR = 60, 3600


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show progress of `title` on standard error, or below a notebook's cell, while the block runs; gives a function that takes the steps done since.

    Args:
        title: What is being done.
        total: Number of steps, or None when it is not known.
    """
    shown = _in_page if _PLACE.get() is not None else _in_notebook if _is_notebook() else _bar if sys.stderr.isatty() else None
    if shown is None or not _SHOWN.acquire(blocking=False):
        yield lambda _steps: None
        return
    try:
        with shown(title, total) as advance:
            yield advance
    finally:
        _SHOWN.release()


@contextmanager
def shown_in(place: Place) -> Iterator[None]:
    """Show bars in a place of one's own while the block runs: what a widget calls has no cell to show them below."""
    token = _PLACE.set(place)
    try:
        yield
    finally:
        _PLACE.reset(token)


def _is_notebook() -> bool:
    """Whether this is the kernel of a notebook; only those that have loaded IPython can be one."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return shell is not None and hasattr(shell, "kernel")


@contextmanager
def _bar(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    from rich.console import Console  # noqa: PLC0415 - `import quant` stays light
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda steps: bar.advance(task, steps)


@contextmanager
def _in_notebook(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """As HTML that is replaced: rich would need a widget, which some front ends lack, and leaves an empty output behind."""
    from IPython.display import display  # noqa: PLC0415 - there in every notebook, and nowhere else

    handle = display(_Page(_html(title, 0, total, 0.0)), display_id=True)
    with _replaced(lambda html: handle.update(_Page(html)), title, total) as advance:
        yield advance


@contextmanager
def _in_page(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    place = _PLACE.get()
    assert place is not None, "asked before"
    place(_html(title, 0, total, 0.0))
    with _replaced(place, title, total) as advance:
        yield advance


@contextmanager
def _replaced(place: Place, title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """HTML that is replaced as the work goes on, and gone when it is over."""
    started = last = time.monotonic()
    done = 0

    def advance(steps: int) -> None:
        nonlocal done, last
        done += steps
        now = time.monotonic()
        if now - last >= _EVERY_S:
            last = now
            place(_html(title, done, total, now - started))

    try:
        yield advance
    finally:
        place("")


class _Page:
    """HTML, as a notebook shows it."""

    def __init__(self, html: str) -> None:
        self._html = html

    def _repr_mimebundle_(self, **_kwargs: Any) -> dict[str, str]:
        return {"text/html": self._html, "text/plain": ""}


def _html(title: str, done: int, total: int | None, seconds: float) -> str:
    known = f' value="{min(done, total)}" max="{max(total, 1)}"' if total is not None else ""
    counted = f"{done:,} of {total:,}" if total is not None else f"{done:,}"
    left = f", {clock(seconds * (total - done) / done)} left" if total is not None and 0 < done <= total else ""
    said = f"{escape(title)}: {counted}, {clock(seconds)}{left}"
    return f'<div style="color:inherit"><progress{known} style="width:16em;vertical-align:middle" aria-label="{escape(title)}"></progress> {said}</div>'


def clock(seconds: float) -> str:
    """A duration on a clock, rounded up: nothing is said to be over before it is.

    Example:
        >>> clock(0.2), clock(75), clock(3700)
        ('0:01', '1:15', '1:01:40')
    """
    whole = math.ceil(seconds)
    hours, rest = divmod(whole, _HOUR)
    minutes, rest = divmod(rest, _MINUTE)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def tracked(items: Iterable[T], title: str, total: int | None = None) -> Iterator[T]:
    """`items`, with their progress shown; `total` is taken from `len` when it is not given."""
    if total is None:
        with contextlib.suppress(TypeError):
            total = len(items)  # type: ignore[arg-type]  # only sized iterables have one
    with progress(title, total) as advance:
        for item in items:
            yield item
            advance(1)
