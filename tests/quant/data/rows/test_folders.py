"""Folders of pictures and sounds: order, classes, named splits."""

import pytest

from quant.data.rows import read_rows
from quant.errors import DataError
from quant.recipe.schema import DataSpec


def place(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    return folder


def read(folder, kind="auto"):
    return read_rows(DataSpec(source=".", kind=kind), folder, where="recipe.yaml:2")


def values(rows, column):
    return [rows[i].values[column] for i in range(len(rows))]


def test_pictures_come_in_the_order_of_their_names_and_are_read_when_asked(tmp_path):
    (rows,) = read(place(tmp_path, "b.jpg", "a.PNG", "notes.txt", ".hidden.jpg")).values()
    assert values(rows, "file") == ["a.PNG", "b.jpg"]
    assert [blob.read() for blob in values(rows, "image")] == [b"a.PNG", b"b.jpg"]
    assert rows.label_column is None


def test_class_folders_are_classes_in_the_order_of_their_names(tmp_path):
    (rows,) = read(place(tmp_path, "dog/1.jpg", "cat/2.jpg", "cat/deep/3.jpg")).values()
    assert rows.classes == ("cat", "dog")
    assert values(rows, "label") == ["cat", "cat", "dog"]
    assert values(rows, "file") == ["cat/2.jpg", "cat/deep/3.jpg", "dog/1.jpg"]


def test_hidden_folders_are_no_classes_and_move_none(tmp_path):
    (rows,) = read(place(tmp_path, "cat/1.jpg", "dog/2.jpg", ".ipynb_checkpoints/3.jpg", "cat/.ipynb_checkpoints/4.jpg", ".5.jpg")).values()
    assert rows.classes == ("cat", "dog")
    assert values(rows, "file") == ["cat/1.jpg", "dog/2.jpg"]


def test_a_hidden_folder_beside_splits_does_not_hide_them(tmp_path):
    assert set(read(place(tmp_path, "train/cat/1.jpg", "test/cat/2.jpg", ".git/config"))) == {"train", "test"}


def test_an_empty_folder_is_a_class_so_that_those_after_it_keep_their_numbers(tmp_path):
    (tmp_path / "cow").mkdir()
    (rows,) = read(place(tmp_path, "cat/1.jpg", "dog/2.jpg", "notes/about.txt")).values()
    assert rows.classes == ("cat", "cow", "dog")


def test_folders_called_train_and_test_are_named_splits(tmp_path):
    found = read(place(tmp_path, "train/cat/1.jpg", "train/dog/2.jpg", "test/dog/3.jpg"))
    assert {name: (len(rows), rows.classes) for name, rows in found.items()} == {"train": (2, ("cat", "dog")), "test": (1, ("dog",))}


def test_sounds_are_told_from_pictures(tmp_path):
    (rows,) = read(place(tmp_path, "yes/1.wav", "no/2.wav")).values()
    assert values(rows, "label") == ["no", "yes"]
    assert values(rows, "audio")[0].read() == b"no/2.wav"


def test_sounds_without_class_folders_have_no_label(tmp_path):
    (rows,) = read(place(tmp_path, "1.wav", "2.wav")).values()
    assert rows.columns == ("audio", "file")


def test_a_picture_beside_the_class_folders_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"'stray.jpg' lies beside the class folders"):
        read(place(tmp_path, "cat/1.jpg", "stray.jpg"), "imagefolder")


def test_a_folder_without_pictures_is_refused(tmp_path):
    with pytest.raises(DataError, match="no pictures in this folder"):
        read(tmp_path, "images")


def test_a_file_that_went_away_is_named(tmp_path):
    (rows,) = read(place(tmp_path, "a.jpg")).values()
    (tmp_path / "a.jpg").unlink()
    with pytest.raises(DataError, match=r"a\.jpg: cannot be read: No such file"):
        rows[0].values["image"].read()
