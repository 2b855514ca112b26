import numpy as np
import pytest

from quant.targets.nvidia.engine_host.comparing import Compared, Distance, compare, distance, pack, unpack

INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("found", "expected", "apart"),
    [
        (np.float32([1, 2]), np.float32([1, 2]), (0, 0)),
        (np.float32([4, 2]), np.float32([1, 6]), (12.5**0.5, 4)),
        (np.float32([[1, 2]]), np.float32([1, 2]), (INF, INF)),
        (np.float32([INF, NAN]), np.float32([INF, NAN]), (0, 0)),
        (np.float32([INF, 1]), np.float32([-INF, 1]), (INF, INF)),
        (np.float32([NAN, 1]), np.float32([1, 1]), (INF, INF)),
        (np.float32([1, 1]), np.float32([1, INF]), (INF, INF)),
        (np.int64([1, 2, 3, 4]), np.int64([1, 2, 3, 9]), (0.25, 0.25)),
        (np.array([True, False]), np.array([True, False]), (0, 0)),
        (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), (0, 0)),
        (np.float16([60000]), np.float16([-60000]), (120000, 120000)),
    ],
)
def test_distance(found, expected, apart):
    assert distance(found, expected) == Distance(*map(float, apart))


def test_an_output_agrees_when_both_its_distances_are_allowed_at_the_worst_sample():
    samples = [({"x": np.float32([0])}, {"y": np.float32([0, 0])}), ({"x": np.float32([1])}, {"y": np.float32([0, 0])})]

    def run(feed):
        return {"y": np.float32([0, 2]) * feed["x"]}

    def judged(rms, largest):
        return compare(run, samples, {"y": Distance(rms, largest)})

    assert judged(1.5, 2.0) == [Compared("y", Distance(2**0.5, 2.0), Distance(1.5, 2.0))]
    assert [judged(*pair)[0].agrees for pair in ((1.5, 2.0), (1.4, 2.0), (1.5, 1.9))] == [True, False, False]


def test_samples_are_unpacked_as_they_were_packed():
    samples = [({"a/b": np.arange(3)}, {"y": np.ones(i)}) for i in range(12)]
    found = unpack(pack(samples))
    assert [list(pair[1]["y"]) for pair in found] == [[1.0] * i for i in range(12)]
    assert list(found[0][0]["a/b"]) == [0, 1, 2]
