import sys

import numpy as np
import pytest

from evaluators.memory import measure_first_run
from quant.errors import TargetError

MEASURED = 'print("loading"); print(\'{"load_s": 0.25, "first_run_s": 0.5, "more": 1}\')'
MIB = 1 << 20


def python(code):
    return [sys.executable, "-S", "-c", code]


def test_the_last_line_and_the_peak_are_reported():
    small = measure_first_run(python(MEASURED))
    large = measure_first_run(python(f"held = bytearray({200 * MIB}); held = None; {MEASURED}"))
    assert (small.load_s, small.first_run_s) == (0.25, 0.5)
    assert large.peak_rss_bytes - small.peak_rss_bytes == pytest.approx(200 * MIB, rel=0.1)


def test_the_memory_of_the_measuring_process_does_not_count():
    held = np.ones(200 * MIB, dtype=np.uint8)
    assert measure_first_run(python(MEASURED)).peak_rss_bytes < 100 * MIB
    assert held.sum() == 200 * MIB


def test_a_command_that_hangs_is_killed_with_all_that_it_started():
    with pytest.raises(TargetError, match=r"took more than 0\.5 s"):
        measure_first_run(python("import time; time.sleep(60)"), timeout_s=0.5)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise ValueError('no such model')", "ended with code 1: ValueError: no such model"),
        ("import os; os.kill(os.getpid(), 9)", "ended with code -9: no message"),
        ("print('done')", "no measurement: 'done'"),
        ("pass", "no measurement: ''"),
        ('print(\'{"load_s": -1, "first_run_s": 1}\')', "no measurement"),
    ],
    ids=["raises", "is killed", "prints no JSON", "prints nothing", "prints nonsense"],
)
def test_a_command_that_fails_says_how(code, message):
    with pytest.raises(TargetError, match=message):
        measure_first_run(python(code))


def test_a_program_that_is_not_there_is_named():
    with pytest.raises(TargetError, match="no-such-program: no such program"):
        measure_first_run(["no-such-program"])
