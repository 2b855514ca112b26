"""Memory and the first inference, measured in a process of their own: what another artifact left behind does not count."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from quant.core.documents import Document
from quant.errors import TargetError


class FirstRun(Document):
    """Loading an artifact and running it once, in a fresh process.

    Args:
        load_s: Seconds to load.
        first_run_s: Seconds of the first inference after that.
        peak_rss_bytes: The most memory that the whole process held at any time, interpreter and libraries included.
    """

    load_s: float
    first_run_s: float
    peak_rss_bytes: int


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore")

    load_s: float = Field(ge=0, allow_inf_nan=False)
    first_run_s: float = Field(ge=0, allow_inf_nan=False)


_LAUNCHER = """
import json, os, sys
pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
with open(sys.argv[1], "w") as file:
    json.dump([os.waitstatus_to_exitcode(status), usage.ru_maxrss], file)
"""
"""Linux carries the peak memory of the process that calls exec over to the program that it starts. So that our own does
not count, a small process starts the command and waits for it."""


def measure_first_run(command: Sequence[str], *, timeout_s: float = 600, env: Mapping[str, str] | None = None) -> FirstRun:
    """What `command` says of itself, and the peak memory that the system says of it (POSIX).

    Args:
        command: Program and arguments. The last line of its output is JSON with `load_s` and `first_run_s`.
        timeout_s: The process is killed after so many seconds.
        env: Its environment; this process's when not given.

    Raises:
        TargetError: It could not be started, ran too long, failed, or printed no such line.
    """
    where = command[0]
    if shutil.which(where) is None:
        raise TargetError("no such program", where=where)
    with tempfile.TemporaryDirectory() as folder:
        told, out, err = (Path(folder) / name for name in ("told", "out", "err"))
        # Files, not pipes: nobody has to read them while the command runs.
        with out.open("wb") as out_file, err.open("wb") as err_file:
            launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(told), *command]
            expired = _run(launcher, timeout_s, stdout=out_file, stderr=err_file, env=env)
        if expired:
            raise TargetError(f"load and first run took more than {timeout_s:g} s", where=where, hint="give it more time, or look whether it hangs")
        printed, complaint = (path.read_text(encoding="utf-8", errors="replace") for path in (out, err))
        code, peak = json.loads(told.read_text(encoding="utf-8")) if told.exists() else (1, 0)
    if code != 0:
        lines = complaint.strip().splitlines()
        raise TargetError(f"first run ended with code {code}: {lines[-1] if lines else 'no message'}", where=where)
    line = _line(printed, where)
    return FirstRun(load_s=line.load_s, first_run_s=line.first_run_s, peak_rss_bytes=peak * (1 if sys.platform == "darwin" else 1024))


def _run(command: Sequence[str], timeout_s: float, *, stdout: IO[bytes], stderr: IO[bytes], env: Mapping[str, str] | None) -> bool:
    """Run `command` to its end; whether it, and all that it started, had to be killed."""
    process = subprocess.Popen(list(command), stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=env, start_new_session=True)  # noqa: S603 - the caller's own
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return True
    finally:
        if process.poll() is None:  # too slow, or the user interrupted: nothing is left behind
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return False


def _line(printed: str, where: str) -> _Line:
    lines = printed.strip().splitlines()
    try:
        return _Line.model_validate(json.loads(lines[-1] if lines else ""))
    except (json.JSONDecodeError, ValidationError) as error:
        shown = lines[-1][:80] if lines else ""
        raise TargetError(
            f"the last line of a first run is no measurement: {shown!r}", where=where, hint='print {"load_s": ..., "first_run_s": ...}'
        ) from error
