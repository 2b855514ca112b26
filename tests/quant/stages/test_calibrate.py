"""calibrate: the statistics are those of the very tensors, whatever the threads and the batches."""

import numpy as np
import pytest
from onnx import TensorProto

from quant.core.moments import unpacked
from quant.core.statistics import TensorStatistics
from quant.errors import CalibrationError
from quant.stages.calibrate import calibrate

W = np.random.default_rng(0).normal(size=(6, 6)).astype(np.float32)


@pytest.fixture
def mlp(save, node):
    """x -> MatMul -> Relu -> MatMul, row by row."""

    def make(batch_size=1):
        nodes = [node("MatMul", "x w", "h"), node("Relu", "h", "r"), node("MatMul", "r w", "y")]
        return save(nodes, {"x": ["N", 6]}, {"y": ["N", 6]}, {"w": W}, batch_size=batch_size)

    return make


@pytest.fixture
def rows(samples):
    r = np.random.default_rng(1)
    return samples([[{"x": r.normal(size=6).astype(np.float32)}] for _ in range(50)])


def saved(table, folder):
    table.save(folder)
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_statistics_are_those_of_the_tensors_themselves(mlp, rows):
    path, feeding = mlp(8)
    table = calibrate(path, rows, ["x", "h", "r", "y"], feeding, magnitudes=True, digest="d", means=["x", "r"])
    x = np.stack([feeds[0]["x"] for feeds in rows.feeds])
    h = x @ W
    for name, values in {"x": x, "h": h, "r": np.maximum(h, 0), "y": np.maximum(h, 0) @ W}.items():
        found, expected = table.statistics[name], TensorStatistics.of(values)
        np.testing.assert_allclose([found.minimum, found.maximum], [values.min(), values.max()], rtol=1e-5)
        assert (found.count, int(found.counts.sum())) == (values.size, values.size)
        np.testing.assert_allclose([found.mean, found.rms], [expected.mean, expected.rms], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(table.magnitudes[name], np.abs(values).max(), rtol=1e-5)
    assert sorted(table.means) == ["r", "x"]
    np.testing.assert_allclose(table.means["x"], x.mean(axis=0, dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(table.means["r"], np.maximum(h, 0).mean(axis=0), rtol=1e-5)  # ONNX Runtime and NumPy multiply in another order
    assert table.statistics["x"].codes.tolist() == TensorStatistics.of(x).codes.tolist()
    assert table.statistics["x"].counts.tolist() == TensorStatistics.of(x).counts.tolist()
    assert (table.model, table.data, table.samples) == ("d", "made", 50)


def test_second_moments_are_those_of_the_tensors_themselves_also_where_they_take_several_passes(mlp, rows, monkeypatch):
    path, feeding = mlp(8)
    x = np.stack([feeds[0]["x"] for feeds in rows.feeds]).astype(np.float64)
    r = np.maximum(x @ W, 0)
    tables = []
    for limit in (1 << 30, 1):
        monkeypatch.setattr("quant.stages.calibrate._MOMENT_BYTES", limit)
        tables.append(calibrate(path, rows, ["y"], feeding, magnitudes=False, digest="d", moments={"r": 6, "x": 6}))
    assert tables[0].digest == tables[1].digest
    assert sorted(tables[0].statistics) == ["y"]
    np.testing.assert_allclose(unpacked(tables[0].moments["x"]), x.T @ x / 50, rtol=1e-6, atol=1e-7)  # sums lose less than 2^-31 of their largest number
    np.testing.assert_allclose(unpacked(tables[0].moments["r"]), r.T @ r / 50, rtol=1e-5, atol=1e-6)  # products in float32, of which these are squares


def test_moments_of_what_is_not_finite_are_refused_with_the_tensor(mlp, samples):
    path, feeding = mlp()
    row = np.full(6, 3e38, np.float32)
    with pytest.raises(CalibrationError, match="tensor 'h' holds values that are NaN or infinite, or too large to be squared"):
        calibrate(path, samples([[{"x": row}]]), [], feeding, magnitudes=False, digest="", moments={"h": 6})


def test_the_number_of_threads_changes_no_byte(mlp, rows, tmp_path, monkeypatch):
    path, feeding = mlp(4)
    found = []
    for threads in (1, 2, 5):
        monkeypatch.setenv("QUANT_THREADS", str(threads))
        table = calibrate(path, rows, ["x", "h", "r"], feeding, magnitudes=True, digest="d", means=["x", "h"], moments={"x": 6, "r": 6})
        found.append(saved(table, tmp_path / str(threads)))
    assert found[0] == found[1] == found[2]


def test_the_batch_size_changes_nothing_in_what_goes_in_and_at_most_rounding_behind_it(mlp, rows):
    tables = []
    for size in (1, 8):
        path, feeding = mlp(size)
        tables.append(calibrate(path, rows, ["x", "h"], feeding, magnitudes=True, digest="d"))
    one, eight = (t.statistics for t in tables)
    assert one["x"].counts.tolist() == eight["x"].counts.tolist()
    assert (one["x"].minimum, one["x"].maximum) == (eight["x"].minimum, eight["x"].maximum)
    np.testing.assert_allclose([one["h"].minimum, one["h"].maximum], [eight["h"].minimum, eight["h"].maximum], rtol=1e-5)
    assert one["h"].count == eight["h"].count


@pytest.mark.parametrize("mask", [-1e9, -3.4e38, -np.inf])
@pytest.mark.parametrize("collected", [[], ["m"]])
def test_magnitudes_leave_masks_out(save, node, samples, mask, collected):
    nodes = [node("Where", "keep x floor", "m"), node("Neg", "m", "n"), node("Softmax", "m", "y", axis=-1)]
    path, feeding = save(nodes, {"x": ["N", 4], "keep": ["N", 4]}, {"y": ["N", 4]}, {"floor": np.float32(mask)}, types={"keep": TensorProto.BOOL})
    feed = {"x": np.float32([1, -7, 300, 2]), "keep": np.array([True, True, False, True])}
    wanted = collected if np.isfinite(mask) else []
    table = calibrate(path, samples([[feed]]), wanted, feeding, magnitudes=True, digest="")
    assert table.magnitudes["x"] == 300
    assert table.magnitudes["m"] == pytest.approx(7, rel=2.0**-8)
    assert table.magnitudes["n"] == 7


def test_what_is_really_that_large_is_told(save, node, samples):
    path, feeding = save([node("Mul", "x x", "s"), node("Sqrt", "s", "y")], {"x": ["N", 2]}, {"y": ["N", 2]})
    table = calibrate(path, samples([[{"x": np.float32([1e6, 2])}]]), [], feeding, magnitudes=True, digest="")
    assert table.magnitudes["s"] == np.float32(1e12)


def test_a_nan_inside_the_model_is_told_with_its_tensor(save, node, samples):
    path, feeding = save([node("Log", "x", "broken"), node("Abs", "broken", "y")], {"x": ["N", 2]}, {"y": ["N", 2]})
    with pytest.raises(CalibrationError, match="1 values of tensor 'broken' are NaN or infinite on finite inputs\nhint: look for the sample"):
        calibrate(path, samples([[{"x": np.float32([1, -2])}]]), ["broken"], feeding, magnitudes=False, digest="")


def test_memory_does_not_grow_with_the_samples(mlp, samples):
    import tracemalloc

    path, feeding = mlp(8)
    rows = [[{"x": np.float32(np.random.default_rng(i).normal(size=6))}] for i in range(64)]
    peaks = []
    for repeat in (1, 1, 8):  # the first time pays for what is loaded once
        tracemalloc.start()
        calibrate(path, samples(rows * repeat), ["x", "h", "r"], feeding, magnitudes=False, digest="")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] <= 1.1 * peaks[1]
