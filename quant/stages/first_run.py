"""Loads one artifact in a fresh process and runs it once; prints the two durations as a line of JSON.

Run as `python -m quant.stages.first_run FOLDER FEED.npz THREADS`; the folder holds `artifact.json`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from quant.core.documents import Artifact
from quant.targets import TARGETS

ARTIFACT_FILE = "artifact.json"


def main(arguments: list[str]) -> int:
    """Load, run, and print `{"load_s": ..., "first_run_s": ...}`."""
    folder, feed_file, threads = arguments
    artifact = Artifact.load(Path(folder) / ARTIFACT_FILE)
    target = TARGETS.make(artifact.target, dict(artifact.options))
    with np.load(feed_file, allow_pickle=False) as arrays:
        feed = {name: arrays[name] for name in arrays.files}
    start = time.perf_counter()
    session = target.session(artifact, Path(folder), threads=int(threads))
    loaded = time.perf_counter()
    session.run(feed)
    sys.stdout.write(json.dumps({"load_s": loaded - start, "first_run_s": time.perf_counter() - loaded}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
