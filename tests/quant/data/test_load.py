"""From a data section to the samples of each role."""

import subprocess
import sys

import numpy as np
import pytest

from quant.errors import DataError, RecipeError, SourceError


def values(samples):
    return sorted(sample.feeds[0]["x"].item() for sample in samples)


def table(jsonl, count, name="data.jsonl", start=0):
    return jsonl([{"x": float(i), "y": i % 2} for i in range(start, start + count)], name)


def test_samples_carry_inputs_labels_and_their_position(load, jsonl):
    data = load(source=table(jsonl, 10), label={"column": "y"}, splits={"calibration": 3})
    samples = [*data.roles["calibration"], *data.roles["evaluation"]]
    assert sorted((sample.index, sample.feeds[0]["x"].item(), sample.label) for sample in samples) == [(i, float(i), i % 2) for i in range(10)]
    assert data.notes == ()


def test_samples_are_the_same_each_time_they_are_asked_for(load, jsonl):
    samples = load(source=table(jsonl, 10), label={"column": "y"}, splits={"calibration": 3}).roles["evaluation"]
    assert [sample.index for sample in samples] == [sample.index for sample in samples]
    assert samples[-1].index == samples[len(samples) - 1].index
    with pytest.raises(IndexError):
        samples[len(samples)]


def test_conditions_choose_rows(load, jsonl):
    data = load(source=table(jsonl, 10), label={"column": "y"}, splits={"calibration": 1}, where=[{"column": "x", "above": 6.5}])
    assert values([*data.roles["calibration"], *data.roles["evaluation"]]) == [7, 8, 9]


def test_files_are_named_splits(load, jsonl):
    files = {"train": table(jsonl, 30, "a.jsonl"), "test": table(jsonl, 5, "b.jsonl", start=100)}
    data = load(source=".", files=files, label={"column": "y"}, splits={"calibration": {"samples": 4, "of": "train"}, "evaluation": {"of": "test"}})
    assert values(data.roles["evaluation"]) == [100, 101, 102, 103, 104]
    assert len(data.roles["calibration"]) == 4


def test_the_digest_follows_content_labels_processing_and_nothing_else(load, jsonl):
    def digest(rows, **spec):
        return load(source=jsonl(rows), label={"column": "y"}, splits={"calibration": 2}, **spec).digest

    rows = [{"x": float(i), "y": i % 2} for i in range(9)]
    same = digest(rows)
    assert digest(rows[::-1]) == same
    assert digest([*rows[:-1], {"x": 8.5, "y": 0}]) != same
    assert digest([*rows[:-1], {"x": 8.0, "y": 1}]) != same
    assert digest(rows, inputs={"kind": "arrays", "dtypes": {"x": "float32"}}) != same
    assert digest(rows, seed=1) != same


def test_too_few_samples_and_duplicates_are_said_aloud(load, jsonl):
    rows = [{"x": float(i % 30)} for i in range(40)]
    data = load(source=jsonl(rows), splits={"calibration": 20, "evaluation": 20})
    assert data.notes == (
        "10 duplicate rows dropped: the same inputs as an earlier row",
        "evaluation: asked for 20 samples, got 10 (there are 30 different rows to share)",
    )


def test_the_label_is_no_part_of_the_content(load, jsonl):
    data = load(source=jsonl([{"x": 1.0, "y": 0}, {"x": 1.0, "y": 1}, {"x": 2.0, "y": 0}]), label={"column": "y"}, splits={"calibration": 1})
    assert sum(map(len, data.roles.values())) == 2
    assert "another label" in data.notes[1]


@pytest.mark.parametrize("text", ["", "[]"], ids=["no-bytes", "no-rows"])
def test_an_empty_data_set_is_an_error(load, tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match="the data set is empty"):
        load(source="a.json")


def test_conditions_that_keep_nothing_are_an_error(load, jsonl):
    with pytest.raises(DataError, match=r"recipe\.yaml:data\.where: no row is left: none of 5 meets"):
        load(source=table(jsonl, 5), where=[{"column": "x", "above": 100}])


def test_a_condition_on_an_unknown_column_is_an_error(load, jsonl):
    with pytest.raises(DataError, match=r"recipe\.yaml:data\.where\.0: no column 'z' in the data"):
        load(source=table(jsonl, 5), where=[{"column": "z", "above": 100}])


def test_a_missing_label_names_the_row(load, jsonl):
    with pytest.raises(DataError, match=r"data\.jsonl row 1: has no label"):
        load(source=jsonl([{"x": 1.0, "y": 1}, {"x": 2.0}]), label={"column": "y"})


def test_a_missing_file_is_the_source_s_error(load):
    with pytest.raises(SourceError, match="no-such-file"):
        load(source="no-such-file.csv")


def test_splits_with_other_columns_are_refused(load, jsonl):
    files = {"train": jsonl([{"x": 1.0}], "a.jsonl"), "test": jsonl([{"z": 2.0}], "b.jsonl")}
    with pytest.raises(DataError, match="the splits train and test have different columns: x, z"):
        load(source=".", files=files)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"kind": "arays"}, "(?s)recipe.yaml:data.inputs: unknown processor 'arays'.*did you mean 'arrays'"),
        ({"kind": "arrays", "dtype": {}}, "(?s)recipe.yaml:data.inputs: option 'dtype' of processor 'arrays'.*did you mean 'dtypes'"),
        ({"kind": "arrays", "steps": "perhaps"}, "option 'steps' of processor 'arrays': .*'perhaps'"),
    ],
    ids=["kind", "option", "value"],
)
def test_a_processor_s_options_are_checked(load, jsonl, inputs, message):
    with pytest.raises(RecipeError, match=message):
        load(source=table(jsonl, 5), inputs=inputs)


def test_class_folders_give_labels_and_classes_over_all_splits(load, tmp_path):
    from PIL import Image

    for number, name in enumerate(("train/cat/a.png", "train/dog/b.png", "test/dog/c.png", "test/dog/d.png")):
        (tmp_path / "pics" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (2, 2), (number, 0, 0)).save(tmp_path / "pics" / name)
    splits = {"calibration": {"samples": "rest", "of": "train"}, "evaluation": {"of": "test"}}
    data = load(source="pics", inputs={"kind": "image", "input": "x", "scale": 1}, splits=splits)
    found = {role: sorted((int(s.feeds[0]["x"][0, 0, 0]), s.label) for s in samples) for role, samples in data.roles.items()}
    assert found == {"calibration": [(0, 0), (1, 1)], "evaluation": [(2, 1), (3, 1)]}


def test_labels_of_several_values_are_arrays_and_count_in_the_digest(load, npz):
    def loaded(last):
        return load(source=npz(x=np.arange(4.0)[:, None], y=np.array([[0, 1], [1, 1], [0, 0], [1, last]])), label={"column": "y"}, splits={"calibration": 1})

    data = loaded(0)
    assert all(sample.label.shape == (2,) for sample in data.roles["evaluation"])
    assert data.digest == loaded(0).digest != loaded(1).digest


def test_bind_names_the_only_input_and_narrows_floats(load, tmp_path, signature):
    np.save(tmp_path / "a.npy", np.arange(8.0).reshape(4, 2))
    data = load(source="a.npy", splits={"calibration": 1}).bind(signature(pixels=("float32", "N", 2)))
    feed = data.roles["evaluation"][0].feeds[0]
    assert list(feed) == ["pixels"]
    assert feed["pixels"].dtype == np.float32


def test_bind_says_where_in_the_recipe_samples_do_not_fit(load, jsonl, signature):
    data = load(source=table(jsonl, 5), label={"column": "y"}, splits={"calibration": 1})
    with pytest.raises(DataError, match=r"(?s)recipe\.yaml:data\.inputs: sample \d: the model has no input 'x'.*known: pixels"):
        data.bind(signature(pixels=("float32", "N")))


def test_bind_leaves_the_state_of_a_model_to_the_model(load, npz, signature):
    data = load(source=npz(x=np.zeros((3, 4), np.float32) + np.arange(3, dtype=np.float32)[:, None]), splits={"calibration": 1})
    bound = data.bind(signature(x=("float32", "N", 4), state=("float32", 2, "N", 8)), state_inputs=("state",))
    assert list(bound.roles["evaluation"][0].feeds[0]) == ["x"]


def test_a_person_can_see_which_sample_it_is(load, jsonl):
    samples = load(source=jsonl([{"x": [1.0, 2.0]}, {"x": [3.0, 4.0]}]), splits={"calibration": 1}).roles["evaluation"]
    assert samples.display(0) == "x [2]"


def test_importing_data_stays_light():
    code = (
        "import sys, quant.data, quant.data.load, quant.data.batches; quant.data.load.PROCESSORS.kinds();"
        "heavy = {'torch', 'onnxruntime', 'datasets', 'pyarrow', 'pandas', 'PIL', 'tokenizers', 'sklearn', 'scipy'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
