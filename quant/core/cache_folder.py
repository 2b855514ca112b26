"""Where what was fetched or computed is kept from one run to the next."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from quant.errors import RunError

NAME = "quant-toolkit"


def cache_folder() -> Path:
    """Folder of the user's cache; it is not made here.

    `QUANT_CACHE` names it; otherwise it is the platform's place for caches (on Linux `$XDG_CACHE_HOME`, or `~/.cache`).

    Raises:
        RunError: No home folder is known for this user, and no variable says where to go.
    """
    try:
        if chosen := os.environ.get("QUANT_CACHE"):
            return Path(chosen).expanduser().absolute()
        return _platform_cache() / NAME
    except RuntimeError as error:  # this is how pathlib says that there is no home folder
        raise RunError("no folder for the cache: this user has no home folder", hint="set QUANT_CACHE to a folder that you may write to") from error


def _platform_cache() -> Path:
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    if Path(xdg).is_absolute():
        return Path(xdg)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path.home() / ".cache"
