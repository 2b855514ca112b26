"""Builds the engine of the model in this folder on this machine's GPU, audits it, compares it with the reference and times it.

`python build_engine.py` needs TensorRT (10 or 11) and NumPy; `python build_engine.py --help` tells the rest.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    folder = Path(__file__).resolve().parent
    sys.path.insert(0, str(folder))  # not there by itself under PYTHONSAFEPATH
    from engine_host.command import main  # type: ignore[import-not-found,unused-ignore]  # the folder beside this file, wherever it lies

    sys.exit(main(sys.argv[1:], folder=folder))
