import numpy as np
import pytest

from quant.data.samples import Sample
from quant.data.slices import sliced
from quant.errors import DataError
from quant.recipe.schema import SliceSpec


class Listed:
    """Samples of a list, with one column."""

    role, digest = "evaluation", ""

    def __init__(self, lengths, labels, languages):
        self.samples = [Sample(i, ({"x": np.zeros(n)},), y) for i, (n, y) in enumerate(zip(lengths, labels, strict=True))]
        self.languages = languages

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, position):
        return self.samples[position]

    def __iter__(self):
        return iter(self.samples)

    def column(self, name):
        assert name == "language"
        return self.languages


@pytest.fixture
def samples():
    return Listed([1, 1, 2, 3, 4, 5, 6, 7], [0, 1, 0, 1, 0, 1, 2, 2], ["de", "en", None, "de", "en", "de", "de", "de"])


def test_each_value_of_a_column_is_a_part_and_a_missing_one_is_in_none(samples):
    found = sliced(samples, SliceSpec(column="language"))
    assert list(found) == ["language de", "language en"]
    assert np.flatnonzero(found["language en"]).tolist() == [1, 4]
    assert not any(members[2] for members in found.values())


def test_labels_are_parts_in_their_order(samples):
    assert {name: int(members.sum()) for name, members in sliced(samples, SliceSpec(by="label")).items()} == {"label 0": 3, "label 1": 3, "label 2": 2}


def test_lengths_are_cut_into_parts_of_about_as_many_samples(samples):
    found = sliced(samples, SliceSpec(by="length", bins=2))
    assert {name: int(members.sum()) for name, members in found.items()} == {"length 1 to 3": 4, "length 4 to 7": 4}


def test_what_does_not_differ_is_refused():
    with pytest.raises(DataError, match="slices by label: all 2 evaluation samples have the same value"):
        sliced(Listed([1, 2], [3, 3], ["a", "b"]), SliceSpec(by="label"))


def test_too_many_words_are_refused():
    words = [f"word {i}" for i in range(300)]
    with pytest.raises(DataError, match="300 different values in 300 evaluation samples"):
        sliced(Listed([1] * 300, [0] * 300, words), SliceSpec(column="language"))
