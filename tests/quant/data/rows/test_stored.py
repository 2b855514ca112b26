"""Datasets on disk, as the `datasets` library writes them."""

import io

import pytest
from PIL import Image

from quant.data.rows import read_rows
from quant.errors import DataError
from quant.recipe.schema import DataSpec


def read(path, **spec):
    return read_rows(DataSpec(source=path.name, **spec), path, where="recipe.yaml:2")


def test_a_saved_dataset_is_read_row_by_row(tmp_path):
    import datasets

    datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]}).save_to_disk(str(tmp_path / "saved"))
    (rows,) = read(tmp_path / "saved").values()
    assert [dict(rows[i].values) for i in range(len(rows))] == [{"text": "a", "label": 0}, {"text": "b", "label": 1}]


def test_its_splits_keep_their_names(tmp_path):
    import datasets

    parts = {name: datasets.Dataset.from_dict({"x": list(range(n))}) for name, n in (("train", 3), ("test", 2))}
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "saved"))
    assert {name: len(rows) for name, rows in read(tmp_path / "saved").items()} == {"train": 3, "test": 2}


def test_pictures_in_it_are_left_undecoded(tmp_path):
    import datasets

    png = io.BytesIO()
    Image.new("RGB", (2, 2), (255, 0, 0)).save(png, "PNG")
    features = datasets.Features({"image": datasets.Image()})
    datasets.Dataset.from_dict({"image": [{"bytes": png.getvalue(), "path": None}]}, features=features).save_to_disk(str(tmp_path / "saved"))
    (rows,) = read(tmp_path / "saved").values()
    assert rows[0].values["image"] == png.getvalue()


def test_a_folder_that_is_no_dataset_is_refused(tmp_path):
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(DataError, match="not a dataset"):
        read(tmp_path, kind="dataset")
