"""What is timed, and what is done before the clock starts."""

from itertools import groupby

import numpy as np

from quant.stages.measure import measure_latency


def test_every_shape_is_run_once_before_any_is_timed():
    asked = [{"x": np.zeros((1, n), np.float32)} for n in (3, 5, 3, 7)]
    seen = []

    class Listening:
        outputs = ("y",)

        def run(self, feed):
            seen.append(feed["x"].shape[1])
            return {}

    measure_latency({"fp32": Listening()}, asked, rounds=4, warmup=0, baseline="fp32", batch_size=1)
    assert [n for n, _ in groupby(seen)] == [3, 5, 7, 3, 5, 3, 7]  # the last four several times, to settle
