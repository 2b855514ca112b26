"""Tables, against scikit-learn's scalers and hand-made vectors."""

import numpy as np
import pytest

from quant.errors import DataError, RecipeError


@pytest.fixture
def table():
    return np.random.default_rng(0).normal([3, -5, 100], [1, 10, 0.1], (50, 3))


def fitted(opened, record, table, **options):
    processor = opened("tabular", ("a", "b", "c"), **options)
    assert processor.needs_fit
    processor.fit(record(**dict(zip("abc", row, strict=True))) for row in table)
    assert not processor.needs_fit
    return np.stack([processor.feeds(record(**dict(zip("abc", row, strict=True))))[0][""] for row in table])


@pytest.mark.parametrize(("scaling", "scaler"), [("standard", "StandardScaler"), ("minmax", "MinMaxScaler")])
def test_scaling_is_scikit_learn_s(opened, record, table, scaling, scaler):
    from sklearn import preprocessing

    table[:, 2] = 7.0  # a column that never changes
    expected = getattr(preprocessing, scaler)().fit_transform(table)
    np.testing.assert_allclose(fitted(opened, record, table, scaling=scaling), expected, rtol=1e-6, atol=1e-6)


def test_numbers_then_categories_make_one_vector(opened, record):
    processor = opened("tabular", ("n", "colour", "y", "m"), label_column="y", categories={"colour": ["red", "green"]})
    (feed,) = processor.feeds(record(n=1.5, colour="green", y=1, m=2))
    assert feed[""].dtype == np.float32
    assert feed[""].tolist() == [1.5, 2.0, 0.0, 1.0]


def test_a_category_may_be_a_position_or_zeros(opened, record):
    processor = opened("tabular", ("n", "c"), categories={"c": [10, 20, 30]}, encoding="index")
    assert processor.feeds(record(n=0, c="20"))[0][""].tolist() == [0.0, 1.0]
    processor = opened("tabular", ("n", "c"), categories={"c": [10, 20]}, unknown="zeros")
    assert processor.feeds(record(n=1, c=99))[0][""].tolist() == [1.0, 0.0, 0.0]


def test_each_column_may_be_an_input(opened, record):
    processor = opened("tabular", ("n", "user"), categories={"user": ["u1", "u2"]}, encoding="index", form="columns")
    (feed,) = processor.feeds(record(n=2, user="u2"))
    assert {name: (array.dtype.name, array.tolist()) for name, array in feed.items()} == {"n": ("float32", [2.0]), "user": ("int64", [1])}


def test_given_numbers_need_no_training(opened, record):
    processor = opened("tabular", ("a", "b"), scaling="standard", shift={"a": 1, "b": 2}, factor={"a": 2, "b": 4})
    assert not processor.needs_fit
    assert processor.feeds(record(a=5, b=4))[0][""].tolist() == [2.0, 0.5]


def test_a_missing_number_names_row_and_column_or_is_filled(opened, record):
    for value in (None, float("nan"), ""):
        with pytest.raises(DataError, match="data row 3: column 'a' is empty"):
            opened("tabular", ("a",)).feeds(record(a=value))
        assert opened("tabular", ("a",), missing=-1).feeds(record(a=value))[0][""].tolist() == [-1.0]


def test_what_is_no_number_or_no_category_names_the_row(opened, record):
    with pytest.raises(DataError, match="data row 3: 'a' is no number: 'many'"):
        opened("tabular", ("a",)).feeds(record(a="many"))
    with pytest.raises(DataError, match=r"(?s)data row 3: 'c' is 'blu': not among its categories.*did you mean 'blue'"):
        opened("tabular", ("c",), categories={"c": ["blue", "red"]}).feeds(record(c="blu"))


def test_scaling_is_learned_from_the_train_split_alone(load, jsonl):
    rows = [{"x": float(i * i), "y": i % 2} for i in range(40)]
    spec = {"source": jsonl(rows), "label": {"column": "y"}, "inputs": {"kind": "tabular", "scaling": "standard"}}
    data = load(**spec, splits={"train": 20, "calibration": 5})
    by_index = {sample.index: sample.feeds[0][""].item() for samples in data.roles.values() for sample in samples}
    train = np.array([rows[sample.index]["x"] for sample in data.roles["train"]])
    for index, value in by_index.items():
        assert value == pytest.approx((rows[index]["x"] - train.mean()) / train.std(), rel=1e-6, abs=1e-6)
    with pytest.raises(RecipeError, match=r"(?s)'tabular' learns from the train split, and there is none.*data.splits.train"):
        load(**spec, splits={"calibration": 5})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shift": {"a": 1}}, "`shift` and `factor` go together"),
        ({"shift": {"a": 1}, "factor": {"a": 0}}, "column 'a' has no shift, or no factor other than 0"),
        ({"unknown": "zeros", "encoding": "index"}, "has no meaning"),
        ({"columns": ["b"]}, "no column 'b' in the data"),
        ({"columns": []}, "no column is left"),
    ],
    ids=["shift-alone", "factor-zero", "zeros", "unknown-column", "nothing"],
)
def test_options_without_sense_are_refused(opened, options, message):
    with pytest.raises(DataError, match=message):
        opened("tabular", ("a",), **options)
