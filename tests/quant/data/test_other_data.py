"""Roles that take their samples from data of their own."""

import numpy as np
import pytest

from quant.errors import DataError, RecipeError


def values(samples):
    return sorted(sample.feeds[0]["x"].item() for sample in samples)


@pytest.fixture
def evaluation_data(jsonl):
    return {"source": jsonl([{"x": float(i), "y": i % 2} for i in range(6)], "evaluation.jsonl"), "label": {"column": "y"}}


def test_a_role_takes_its_samples_from_its_own_data_and_the_others_from_the_recipes(load, jsonl, evaluation_data):
    other = {"source": jsonl([{"x": 100.0 + i} for i in range(9)], "other.jsonl"), "where": [{"column": "x", "above": 104}]}
    data = load(**evaluation_data, splits={"calibration": {"samples": "rest", "data": other}})
    assert values(data.roles["calibration"]) == [105, 106, 107, 108]
    assert values(data.roles["evaluation"]) == [0, 1, 2, 3, 4, 5]
    assert [sample.label for sample in data.roles["calibration"]] == [None] * 4
    assert {sample.label for sample in data.roles["evaluation"]} == {0, 1}


def test_two_roles_with_own_data_may_both_take_the_rest(load, jsonl, evaluation_data):
    search = {"source": jsonl([{"x": 50.0, "y": 1}], "search.jsonl")}
    splits = {"calibration": {"data": {"source": jsonl([{"x": 100.0}], "other.jsonl")}}, "search": {"data": search}}
    data = load(**evaluation_data, splits=splits)
    assert [values(data.roles[role]) for role in ("calibration", "search")] == [[100], [50]]
    assert data.roles["search"][0].label == 1


def test_own_data_may_have_a_processor_of_their_own(load, jsonl, evaluation_data):
    other = {"source": jsonl([{"z": 7.0}], "other.jsonl"), "inputs": {"kind": "arrays", "inputs": {"z": "x"}}}
    data = load(**evaluation_data, splits={"calibration": {"data": other}})
    assert values(data.roles["calibration"]) == [7]


def test_own_data_without_the_columns_of_the_recipes_processor_are_an_error_with_their_place(load, jsonl, evaluation_data):
    other = {"source": jsonl([{"z": 7.0}], "other.jsonl")}
    with pytest.raises(DataError, match=r"recipe.yaml:data.splits.calibration.data.inputs: no column 'x' in the data"):
        load(**evaluation_data, inputs={"kind": "arrays", "inputs": {"x": "x"}}, splits={"calibration": {"data": other}})


def test_inputs_that_own_data_share_with_another_role_are_an_error_unless_allowed(load, jsonl, evaluation_data):
    splits = {"calibration": {"data": {"source": jsonl([{"x": 3.0}, {"x": 70.0}], "other.jsonl")}}}
    with pytest.raises(DataError, match=r"calibration and evaluation share 1 sample, such as other\.jsonl row 0 and evaluation\.jsonl row 3"):
        load(**evaluation_data, splits=splits)
    data = load(**evaluation_data, splits=splits, overlap="allow")
    assert any("the recipe allows it" in note for note in data.notes)


def test_notes_on_own_data_say_whose_they_are(load, jsonl, evaluation_data):
    other = {"source": jsonl([{"x": 70.0}, {"x": 70.0}], "other.jsonl")}
    data = load(**evaluation_data, splits={"calibration": {"samples": 5, "data": other}})
    assert data.notes == (
        "calibration: 1 duplicate row dropped: the same inputs as an earlier row",
        "calibration: asked for 5 samples, got 1 (there are 1 different rows to share)",
    )


def test_own_data_may_name_a_split_of_their_source(load, evaluation_data, tmp_path):
    (tmp_path / "rows.py").write_text("def make():\n    return {'a': [{'x': 1000.0}], 'b': [{'x': 2000.0}, {'x': 3000.0}]}\n")
    other = {"source": "rows.py:make"}
    data = load(**evaluation_data, splits={"calibration": {"of": "b", "data": other}}, trust_code=True)
    assert values(data.roles["calibration"]) == [2000, 3000]
    with pytest.raises(DataError, match=r"recipe.yaml:data.splits.calibration: no split 'c' in the data"):
        load(**evaluation_data, splits={"calibration": {"of": "c", "data": other}}, trust_code=True)


def test_own_code_is_not_run_unless_trusted(load, evaluation_data, tmp_path):
    (tmp_path / "rows.py").write_text("raise SystemExit\n")
    with pytest.raises(DataError, match=r"recipe.yaml:data.splits.calibration.data: 'rows.py:make' names code that is not part of the toolkit"):
        load(**evaluation_data, splits={"calibration": {"data": {"source": "rows.py:make"}}})


def test_scaling_is_learned_from_the_train_role_wherever_its_rows_are(load, jsonl):
    main = jsonl([{"x": float(i)} for i in range(10)], "main.jsonl")
    train = {"source": jsonl([{"x": 100.0}, {"x": 300.0}], "train.jsonl")}
    inputs = {"kind": "tabular", "columns": ["x"], "scaling": "standard", "input": "x"}
    data = load(source=main, inputs=inputs, splits={"train": {"data": train}, "calibration": 3})
    assert values(data.roles["train"]) == [-1, 1]
    assert all(sample.feeds[0]["x"].item() < -1 for sample in data.roles["evaluation"])


def test_a_processor_of_own_data_that_must_learn_needs_a_train_split(load, jsonl, evaluation_data):
    other = {"source": jsonl([{"x": 100.0}], "other.jsonl"), "inputs": {"kind": "tabular", "columns": ["x"], "scaling": "minmax", "input": "x"}}
    with pytest.raises(RecipeError, match="learns from the train split, and there is none"):
        load(**evaluation_data, splits={"calibration": {"data": other}})


def test_the_digest_of_a_role_follows_its_own_data_alone(load, jsonl, evaluation_data):
    def digests(x):
        roles = load(**evaluation_data, splits={"calibration": {"data": {"source": jsonl([{"x": x}], "other.jsonl")}}}).roles
        return roles["calibration"].digest, roles["evaluation"].digest

    first, second = digests(10.0), digests(11.0)
    assert first[0] != second[0]
    assert first[1] == second[1]


def test_own_data_are_bound_to_the_model_like_the_others(load, jsonl, signature, evaluation_data):
    data = load(**evaluation_data, splits={"calibration": {"data": {"source": jsonl([{"x": 100.0}], "other.jsonl")}}})
    bound = data.bind(signature(x=("float32", "N")))
    assert {sample.feeds[0]["x"].dtype for role in bound.roles.values() for sample in role} == {np.dtype("float32")}
