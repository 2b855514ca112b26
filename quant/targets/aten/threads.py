"""How many threads torch runs on, while it runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_LOCK = threading.Lock()
_RUNNING: list[int] = []
"""Of each run that is under way, how many threads there were before the first of them."""


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Let torch run on `count` threads in this block.

    Part of that number is of the calling thread and part of the whole process, so it is put back only when no run is left that
    another number would change in the middle.
    """
    with _LOCK:
        _RUNNING.append(_RUNNING[0] if _RUNNING else torch.get_num_threads())
        torch.set_num_threads(count)
    try:
        yield
    finally:
        with _LOCK:
            before = _RUNNING.pop()
            if not _RUNNING:
                torch.set_num_threads(before)
