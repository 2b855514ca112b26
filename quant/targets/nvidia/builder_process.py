"""The process that builds engines: `python -P builder_process.py REQUEST.json`, with nothing of the toolkit in it but `engine_host`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def load_engine_host() -> None:
    """Let `engine_host`, the folder beside this file, be imported by that name alone."""
    folder = Path(__file__).with_name("engine_host")
    spec = importlib.util.spec_from_file_location("engine_host", folder / "__init__.py", submodule_search_locations=[str(folder)])
    assert spec is not None, "the folder is part of the toolkit"
    sys.modules["engine_host"] = importlib.util.module_from_spec(spec)


if __name__ == "__main__":
    load_engine_host()
    importlib.import_module("engine_host.process").main(sys.argv[1])
