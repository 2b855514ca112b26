"""Rows from functions: what they may return, and when their code may run."""

import textwrap

import numpy as np
import pytest

from quant.errors import DataError

CODE = """
    import numpy as np

    def mappings(count):
        return [{"x": np.full(2, i, np.float32), "y": i % 2} for i in range(count)]

    def pairs():
        yield from (({"x": np.full(2, i, np.float32)}, i) for i in range(6))

    def nameless():
        return [(np.full(2, i, np.float32), i) for i in range(6)]

    def columns():
        return {"x": np.arange(6, dtype=np.float32)[:, None], "y": np.arange(6)}

    def splits():
        return {"fit": mappings(4), "judge": [{"x": np.full(2, -1 - i, np.float32), "y": 1} for i in range(3)]}

    def nothing():
        return []

    def wrong():
        return 3

    def odd():
        return [1, 2]

    class Lazy:
        made = []

        def __len__(self):
            return 4

        def __getitem__(self, i):
            Lazy.made.append(i)
            return {"x": np.full(2, i, np.float32)}

    def lazy():
        return Lazy()
"""


@pytest.fixture
def code(tmp_path):
    (tmp_path / "mine.py").write_text(textwrap.dedent(CODE))
    return "mine.py"


def everything(samples):
    return sorted((float(sample.feeds[0].get("x", sample.feeds[0].get(""))[0]), sample.label) for sample in samples)


def test_mappings_are_rows_and_arguments_are_passed(load, code):
    data = load(trust_code=True, source=f"{code}:mappings", arguments={"count": 6}, label={"column": "y"}, splits={"calibration": 2})
    assert everything([*data.roles["calibration"], *data.roles["evaluation"]]) == [(0, 0), (1, 1), (2, 0), (3, 1), (4, 0), (5, 1)]


@pytest.mark.parametrize("function", ["pairs", "nameless"])
def test_a_pair_brings_its_label(load, code, function):
    data = load(trust_code=True, source=f"{code}:{function}", splits={"calibration": 2})
    assert everything([*data.roles["calibration"], *data.roles["evaluation"]]) == [(i, i) for i in range(6)]


def test_a_mapping_of_arrays_is_a_table(load, code):
    data = load(trust_code=True, source=f"{code}:columns", label={"column": "y"}, splits={"calibration": 2})
    assert everything([*data.roles["calibration"], *data.roles["evaluation"]]) == [(i, i) for i in range(6)]


def test_a_mapping_of_rows_has_named_splits(load, code):
    splits = {"calibration": {"of": "fit"}, "evaluation": {"of": "judge"}}
    data = load(trust_code=True, source=f"{code}:splits", label={"column": "y"}, splits=splits)
    assert everything(data.roles["evaluation"]) == [(-3, 1), (-2, 1), (-1, 1)]


def test_a_sequence_is_asked_for_its_items_each_time(load, code):
    data = load(trust_code=True, source=f"{code}:lazy", splits={"calibration": 1})
    assert [len(samples) for samples in data.roles.values()] == [1, 3]


def test_an_empty_result_is_an_empty_data_set(load, code):
    with pytest.raises(DataError, match=r"recipe\.yaml:data: the data set is empty"):
        load(trust_code=True, source=f"{code}:nothing")


def test_what_is_no_row_is_refused(load, code):
    with pytest.raises(DataError, match="returned a int instead of rows"):
        load(trust_code=True, source=f"{code}:wrong")
    with pytest.raises(DataError, match=r"odd row 0: is a int instead of a mapping"):
        load(trust_code=True, source=f"{code}:odd")


def test_code_runs_only_when_it_is_trusted(load, code):
    with pytest.raises(DataError, match=r"(?s)names code that is not part of the toolkit.*--trust-code"):
        load(source=f"{code}:mappings", arguments={"count": 6})


def test_the_same_function_gives_the_same_samples_twice(load, code):
    spec = {"source": f"{code}:mappings", "arguments": {"count": 6}, "label": {"column": "y"}, "splits": {"calibration": 2}}
    one, two = load(trust_code=True, **spec), load(trust_code=True, **spec)
    assert one.digest == two.digest
    for a, b in zip(one.roles["evaluation"], two.roles["evaluation"], strict=True):
        np.testing.assert_array_equal(a.feeds[0]["x"], b.feeds[0]["x"])
