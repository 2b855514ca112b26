"""Progress of long work: a bar with the time left on a terminal, and silence elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TypeVar

T = TypeVar("T")
_SHOWN = Lock()
"""Held while a bar is shown: a terminal has room for one, and what goes on within it, or beside it, is silent."""


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show progress of `title` on standard error while the block runs; gives a function that takes the steps done since.

    Args:
        title: What is being done.
        total: Number of steps, or None when it is not known.
    """
    if not sys.stderr.isatty() or not _SHOWN.acquire(blocking=False):
        yield lambda _steps: None
        return
    try:
        with _bar(title, total) as advance:
            yield advance
    finally:
        _SHOWN.release()


@contextmanager
def _bar(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    from rich.console import Console  # noqa: PLC0415 - `import quant` stays light
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda steps: bar.advance(task, steps)


def tracked(items: Iterable[T], title: str, total: int | None = None) -> Iterator[T]:
    """`items`, with their progress shown; `total` is taken from `len` when it is not given."""
    if total is None:
        with contextlib.suppress(TypeError):
            total = len(items)  # type: ignore[arg-type]  # only sized iterables have one
    with progress(title, total) as advance:
        for item in items:
            yield item
            advance(1)
