"""Splits: disjoint by content, the same for any order of rows, of the sizes asked for."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quant.data.splits import ROLES, Entry, assign, default_notes
from quant.errors import DataError, RecipeError
from quant.recipe.schema import DataSpec


def where(location):
    return "recipe.yaml:" + ".".join(map(str, location))


def entries(contents, pool="", labels=None):
    return [Entry(pool, i, str(c), labels[i] if labels else None, f"{pool or 'rows'} row {i}") for i, c in enumerate(contents)]


def split(rows, **spec):
    roles, notes = assign(rows, DataSpec.model_validate({"source": "x", **spec}), where)
    return {role: [entry.content for entry in got] for role, got in roles.items()}, notes


contents = st.lists(st.integers(0, 60), min_size=12, max_size=80)


@given(contents, st.integers(0, 5))
@settings(max_examples=60)
def test_every_different_row_goes_to_exactly_one_role(rows, seed):
    different = sorted(set(map(str, rows)))
    if len(different) < 8:
        return
    found, notes = split(entries(rows), splits={"train": 0.25, "calibration": 2, "search": 2}, seed=seed)
    assert sorted(content for got in found.values() for content in got) == different
    assert len(found["train"]) == len(different) // 4
    assert (len(found["calibration"]), len(found["search"])) == (2, 2)
    assert bool(notes) == (len(different) < len(rows))


@given(contents, st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_the_order_of_rows_in_the_file_does_not_matter(rows, shuffle):
    if len(set(rows)) < 8:
        return
    other = list(rows)
    shuffle.shuffle(other)
    spec = {"splits": {"calibration": 3, "search": 0.25}, "seed": 3}
    assert split(entries(rows), **spec) == split(entries(other), **spec)


def test_another_seed_draws_other_samples():
    drawn = {tuple(split(entries(range(100)), splits={"calibration": 10}, seed=seed)[0]["calibration"]) for seed in range(5)}
    assert len(drawn) == 5


def test_a_draw_is_fair():
    """Each of 20 rows is among the 5 drawn about 250 times in 1000 (binomial, standard deviation 13.7)."""
    times = dict.fromkeys(map(str, range(20)), 0)
    for seed in range(1000):
        for content in split(entries(range(20)), splits={"calibration": 5}, seed=seed)[0]["calibration"]:
            times[content] += 1
    assert sum(times.values()) == 5000
    assert all(abs(count - 250) < 5 * 13.7 for count in times.values())


def test_rows_that_are_added_replace_few_of_those_drawn():
    before = set(split(entries(range(1000)), splits={"calibration": 100})[0]["calibration"])
    after = set(split(entries(range(1010)), splits={"calibration": 100})[0]["calibration"])
    assert len(before & after) >= 90  # the ten new rows can push out at most ten


def test_more_calibration_samples_leave_a_counted_evaluation_alone():
    few, _ = split(entries(range(100)), splits={"calibration": 10, "evaluation": 40})
    many, _ = split(entries(range(100)), splits={"calibration": 50, "evaluation": 40})
    assert few["evaluation"] == many["evaluation"]
    assert few["calibration"] == many["calibration"][:10]


def test_fewer_rows_than_asked_for_is_said():
    found, notes = split(entries(range(40)), splits={"calibration": 30, "evaluation": 20})
    assert [len(found[role]) for role in ("calibration", "evaluation")] == [30, 10]
    assert notes == ("evaluation: asked for 20 samples, got 10 (there are 40 different rows to share)",)


def test_a_role_left_without_samples_is_an_error():
    with pytest.raises(
        DataError, match=r"recipe\.yaml:data\.splits\.evaluation: evaluation gets no samples: 30 rows in all, of which others take calibration 30"
    ):
        split(entries(range(30)))


def test_duplicates_are_dropped_and_contradictions_shown():
    rows = entries(["a", "b", "a", "a", "c", "d"], labels=[0, 1, 0, 1, 0, 1])
    found, notes = split(rows, splits={"calibration": 1})
    assert sorted(found["calibration"] + found["evaluation"]) == ["a", "b", "c", "d"]
    assert notes[0] == "2 duplicate rows dropped: the same inputs as an earlier row"
    assert notes[1] == "1 duplicate row has another label than the row that is kept, such as rows row 0 (0) and rows row 3 (1)"


def test_the_first_of_duplicates_is_kept():
    roles, _ = assign(entries(["a", "b", "a"]), DataSpec.model_validate({"source": "x", "splits": {"calibration": 1}}), where)
    assert sorted(entry.index for got in roles.values() for entry in got) == [0, 1]


def test_named_splits_feed_the_roles_that_name_them():
    rows = [*entries(range(50), "train"), *entries(range(50, 70), "test")]
    found, _ = split(rows, splits={"train": {"of": "train"}, "calibration": {"samples": 5, "of": "train"}, "evaluation": {"of": "test"}})
    assert sorted(found["evaluation"]) == sorted(map(str, range(50, 70)))
    assert len(found["calibration"]) == 5
    assert sorted(found["train"] + found["calibration"]) == sorted(map(str, range(50)))


def test_an_overlap_of_named_splits_names_both_rows():
    rows = [*entries([1, 2, 3], "train"), *entries([9, 3, 8], "test")]
    splits = {"calibration": {"samples": "rest", "of": "train"}, "evaluation": {"of": "test"}}
    message = r"(?s)splits\.evaluation: calibration and evaluation share 1 sample, such as train row 2 and test row 1.*data\.overlap: allow"
    with pytest.raises(DataError, match=message):
        split(rows, splits=splits)
    found, notes = split(rows, splits=splits, overlap="allow")
    assert "3" in found["calibration"]
    assert "3" in found["evaluation"]
    assert notes == ("calibration and evaluation share 1 sample, such as train row 2 and test row 1; the recipe allows it",)


def test_a_role_of_all_rows_never_takes_what_a_named_split_gave_another():
    rows = [*entries(range(20), "train"), *entries(range(15, 30), "test")]
    found, notes = split(rows, splits={"calibration": {"samples": "rest"}, "evaluation": {"of": "test"}})
    assert sorted(map(int, found["evaluation"])) == list(range(15, 30))
    assert sorted(map(int, found["calibration"])) == list(range(15))
    assert "5 rows left out: the same inputs as a row of another split of the source" in notes


def test_the_limit_counts_different_rows():
    found, _ = split(entries([*range(50), *range(50)]), splits={"calibration": 4}, limit=10)
    assert sum(map(len, found.values())) == 10


@pytest.mark.parametrize(
    ("splits", "error", "message"),
    [
        ({"calibration": 0}, RecipeError, "data.splits.calibration: 0 samples"),
        ({"calibration": 1.5}, RecipeError, "a share of 1.5 of the rows"),
        ({"calibration": -0.5}, RecipeError, "a share of -0.5 of the rows"),
        ({"train": "rest"}, RecipeError, "take the rest of the same rows"),
        ({"calibration": {"of": "trian"}}, DataError, "(?s)no split 'trian' in the data.*did you mean 'train'"),
    ],
    ids=["none", "above-one", "below-zero", "two-rests", "unknown"],
)
def test_splits_without_sense_are_refused(splits, error, message):
    with pytest.raises(error, match=message):
        split([*entries(range(9), "train"), *entries(range(10, 19), "test")], splits=splits)


def test_that_named_splits_are_put_together_is_said():
    splits = DataSpec.model_validate({"source": "x"}).splits
    assert default_notes(splits, ("test", "train")) == ("the splits test, train of the source are put together: no role says `of`",)
    assert default_notes(splits, ("",)) == ()


def test_roles_come_in_one_order():
    found, _ = split(entries(random.Random(0).sample(range(100), 50)), splits={"search": 3, "train": 3, "calibration": 3})
    assert tuple(found) == ROLES
