import itertools

import pytest

from quant.targets.nvidia.engine_host.timing import percentile, summarize, take_times


# trtexec takes the entry max(n - 1 - int((1 - p / 100) * n), 0) of the ascending times, in single precision: 1 - 0.99 is a little less than 0.01 there,
# and 1 - 0.9 a little more than 0.1.
@pytest.mark.parametrize(
    ("count", "percent", "index"), [(1, 99, 0), (10, 90, 8), (10, 95, 9), (10, 99, 9), (100, 99, 99), (250, 99, 247), (1000, 95, 949), (3, 50, 1)]
)
def test_percentiles_are_at_the_index_that_trtexec_takes(count, percent, index):
    assert percentile(list(range(count)), percent) == index


def test_times_are_summed_up():
    found = summarize([4.0, 1.0, 3.0, 2.0])
    assert (found.least, found.most, found.mean, found.median) == (1.0, 4.0, 2.5, 2.5)
    assert found.variation == pytest.approx(1.25**0.5 / 2.5)


class Device:
    """An engine that takes `compute` ms on the GPU and `enqueue` ms on the host."""

    def __init__(self, compute, enqueue):
        self.compute, self.cost, self.clock, self.calls = itertools.cycle(compute), enqueue, 0.0, []

    def now(self):
        return self.clock

    def enqueue(self):
        self.clock += self.cost / 1e3
        self.calls.append("enqueue")

    def finish(self):
        took = next(self.compute)
        self.clock += took / 1e3
        self.calls.append("finish")
        return took


def test_after_200_ms_of_warming_up_inferences_are_timed_for_3_s():
    device = Device([9.0], enqueue=1.0)
    times = take_times(device, now=device.now)
    assert times.iterations == pytest.approx(300, abs=1)
    assert len(device.calls) / 2 - times.iterations == pytest.approx(20, abs=1)
    assert times.seconds == pytest.approx(3.0, abs=0.011)
    assert (times.compute.median, times.enqueue.median) == (9.0, pytest.approx(1.0))
    assert times.as_document()["inferences_per_second"] == pytest.approx(100, rel=0.01)
    assert not times.bound_by_enqueue


def test_a_slow_engine_is_timed_at_least_ten_times():
    device = Device([990.0], enqueue=10.0)
    assert take_times(device, now=device.now).iterations == 10


@pytest.mark.parametrize(("enqueue", "bound"), [(0.7, False), (0.9, True)])
def test_a_gpu_that_waits_for_the_host_is_told(enqueue, bound):
    device = Device([1.0], enqueue=enqueue)
    assert take_times(device, now=device.now).bound_by_enqueue is bound
