"""Array files: samples along the first axis, or a file for each sample; never pickles."""

import numpy as np
import pytest

from quant.data.rows import read_rows
from quant.errors import DataError
from quant.recipe.schema import DataSpec


def read(path, **spec):
    (rows,) = read_rows(DataSpec(source=path.name, **spec), path, where="recipe.yaml:2").values()
    return rows


def test_npz_rows_run_along_the_first_axis(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(6).reshape(3, 2), y=np.array([7, 8, 9]))
    rows = read(tmp_path / "a.npz")
    assert rows.columns == ("x", "y")
    assert [(row.values["x"].tolist(), int(row.values["y"])) for row in (rows[i] for i in range(3))] == [([0, 1], 7), ([2, 3], 8), ([4, 5], 9)]


def test_the_array_of_an_npy_has_no_name(tmp_path):
    np.save(tmp_path / "a.npy", np.float32([[1, 2], [3, 4]]))
    assert read(tmp_path / "a.npy")[1].values[""].tolist() == [3, 4]


def test_a_folder_holds_one_sample_a_file_of_any_shape(tmp_path):
    for name, length in (("b", 3), ("a", 2)):
        np.savez(tmp_path / f"{name}.npz", x=np.arange(length))
    rows = read(tmp_path)
    assert [(rows[i].values["file"], rows[i].values["x"].tolist()) for i in range(2)] == [("a.npz", [0, 1]), ("b.npz", [0, 1, 2])]


@pytest.mark.parametrize("ending", ["npz", "npy"])
def test_pickled_objects_are_never_loaded(tmp_path, ending):
    ragged = np.empty(2, object)
    ragged[:] = [np.zeros(2), np.zeros(3)]
    path = tmp_path / f"a.{ending}"
    np.savez(path, x=ragged) if ending == "npz" else np.save(path, ragged, allow_pickle=True)
    with pytest.raises(DataError, match=r"(?s)pickled Python objects, which are never loaded.*one .npy or .npz file for each sample"):
        read(path)


def test_arrays_of_different_lengths_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 2)), y=np.zeros(2))
    with pytest.raises(DataError, match=r"different numbers of samples: \{'x': 3, 'y': 2\}"):
        read(tmp_path / "a.npz")


def test_an_array_without_axes_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.float32(1))
    with pytest.raises(DataError, match="array 'x' has no axis of samples"):
        read(tmp_path / "a.npz")


@pytest.mark.parametrize("ending", ["npz", "npy"])
def test_a_broken_file_is_named(tmp_path, ending):
    (tmp_path / f"a.{ending}").write_bytes(b"no arrays at all")
    with pytest.raises(DataError, match=rf"a\.{ending}: not an array file\nhint: write it with np.save or np.savez"):
        read(tmp_path / f"a.{ending}")


@pytest.mark.parametrize("ending", ["npz", "npy"])
@pytest.mark.parametrize("kept", [0, 20, -40])
def test_a_file_that_ends_early_is_named(tmp_path, ending, kept):
    path = tmp_path / f"a.{ending}"
    np.save(path, np.arange(99.0)) if ending == "npy" else np.savez(path, x=np.arange(99.0))
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DataError, match=rf"a\.{ending}: (not an array file|damaged)(: .*)?\nhint: write it with np.save or np.savez"):
        read(path)
