"""The calibration table comes back as it was, or says that it is none."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from quant.core.statistics import TensorStatistics
from quant.core.table import CalibrationTable
from quant.errors import RunError


def table():
    r = np.random.default_rng(0)
    statistics = {
        "z": TensorStatistics.of(r.normal(size=500).astype(np.float32)),
        "a": TensorStatistics.of(np.float32([np.nan, 0.1, -0.0])),
        "nothing": TensorStatistics(),
        "extremes": TensorStatistics.of(np.float32([-1, 2]), histogram=False),
    }
    return CalibrationTable(
        "m" * 64, "d" * 64, 32, statistics, {"y": 2.5, "b": 1e-30}, {"z": np.array([1.5, -0.1]), "a": np.array([3.0])}, {"q": np.arange(6.0), "b": np.ones(1)}
    )


def test_a_table_comes_back_as_it_was(tmp_path):
    saved = table()
    saved.save(tmp_path / "t")
    loaded = CalibrationTable.load(tmp_path / "t")
    assert loaded.digest == saved.digest
    assert (loaded.model, loaded.data, loaded.samples, loaded.magnitudes) == (saved.model, saved.data, saved.samples, saved.magnitudes)
    for name, seen in saved.statistics.items():
        again = loaded.statistics[name]
        assert (again.count, again.minimum, again.maximum, again.not_finite) == (seen.count, seen.minimum, seen.maximum, seen.not_finite)
        assert again.codes.tolist() == seen.codes.tolist()
        assert again.counts.tolist() == seen.counts.tolist()
    assert {name: mean.tolist() for name, mean in loaded.means.items()} == {"z": [1.5, -0.1], "a": [3.0]}
    assert {name: found.tolist() for name, found in loaded.moments.items()} == {"q": [0, 1, 2, 3, 4, 5], "b": [1]}


def test_the_same_table_has_the_same_bytes_whatever_its_order(tmp_path):
    first = table()
    second = replace(first, statistics=dict(reversed(first.statistics.items())), magnitudes=dict(reversed(first.magnitudes.items())))
    second = replace(second, means=dict(reversed(first.means.items())), moments=dict(reversed(first.moments.items())))
    first.save(tmp_path / "1")
    second.save(tmp_path / "2")
    assert first.digest == second.digest
    for name in ("table.json", "histograms.npy", "means.npy", "moments.npy"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_tables_are_equal_by_their_content():
    assert table() == table()
    assert table() != replace(table(), samples=33)
    assert table() != "a table"
    assert len({table(), table(), replace(table(), samples=33)}) == 2


def test_the_digest_hangs_on_everything():
    base = table()
    more = {**base.statistics, "z": base.statistics["z"].merge(TensorStatistics.of(np.float32([0.5])))}
    others = [replace(base, model="x"), replace(base, data="x"), replace(base, samples=33), replace(base, statistics=more), replace(base, magnitudes={})]
    others += [replace(base, means={}), replace(base, means={"z": np.array([1.5, 3.0]), "a": np.array([-0.1])})]
    assert len({t.digest for t in (base, *others)}) == 8


@pytest.mark.parametrize("harm", ["missing", "no array", "cut", "not json", "other json"])
def test_what_is_no_whole_table_is_told(tmp_path, harm):
    folder = tmp_path / "t"
    if harm != "missing":
        table().save(folder)
    if harm == "no array":
        (folder / "histograms.npy").unlink()
    elif harm == "cut":
        (folder / "histograms.npy").write_bytes((folder / "histograms.npy").read_bytes()[:300])
    elif harm in ("not json", "other json"):
        (folder / "table.json").write_text("{" if harm == "not json" else '{"tensors": {}}')
    with pytest.raises(RunError, match="^" + re.escape(f"{folder}: not a calibration table: ") + "(.|\n)*\nhint: calibrate again$"):
        CalibrationTable.load(folder)
