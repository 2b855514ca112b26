"""Widgets to look at a run in a notebook: `Explorer("runs/monday")`. Nothing heavy is imported before one is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quant.notebook.explorer import Explorer

__all__ = ["Explorer"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'quant.notebook' has no attribute {name!r}")
    from quant.notebook.explorer import Explorer  # noqa: PLC0415 - widgets and plots are heavy

    return Explorer


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
