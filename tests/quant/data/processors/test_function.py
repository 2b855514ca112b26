"""A function of the user's as a processor."""

import numpy as np
import pytest

from quant.data.record import Blob
from quant.errors import DataError

CODE = """
import numpy as np

def one(values, factor=1):
    return {"x": np.asarray(values["a"], np.float32) * factor}

def steps(values):
    return [{"x": np.float32([v])} for v in values["a"]]

def size(values):
    return {"n": len(values["a"])}

def wrong(values):
    return 3
"""


@pytest.fixture
def made(opened, tmp_path):
    (tmp_path / "mine.py").write_text(CODE)

    def made(name, *, trust_code=True, **options):
        return opened("function", ("a", "y"), label_column="y", trust_code=trust_code, function=f"mine.py:{name}", **options)

    return made


def test_it_gets_the_columns_and_arguments_and_gives_a_feed(made, record):
    (feed,) = made("one", arguments={"factor": 3}).feeds(record(a=[1, 2], y=0))
    assert feed["x"].tolist() == [3, 6]


def test_it_may_give_several_feeds(made, record):
    assert [feed["x"].tolist() for feed in made("steps").feeds(record(a=[1, 2], y=0))] == [[1], [2]]


def test_files_are_handed_over_as_bytes(made, record, tmp_path):
    (tmp_path / "f").write_bytes(b"12345")
    (feed,) = made("size").feeds(record(a=Blob(tmp_path / "f"), y=0))
    assert feed["n"] == np.asarray(5)


def test_the_digest_follows_the_code_and_the_arguments(made, tmp_path):
    before = made("one").digest
    assert made("one", arguments={"factor": 2}).digest != before
    (tmp_path / "mine.py").write_text(CODE + "\n# changed\n")
    from quant.data.processors import PROCESSORS, Setting

    other = PROCESSORS.make("function", {"function": "mine.py:one"})
    other.open(Setting(tmp_path, ("a", "y"), "y", None, True, ""))
    assert other.digest != before


def test_it_runs_only_when_it_is_trusted(made):
    with pytest.raises(DataError, match="--trust-code"):
        made("one", trust_code=False)


def test_another_result_names_the_row(made, record):
    with pytest.raises(DataError, match=r"data row 3: mine\.py:wrong returned a int"):
        made("wrong").feeds(record(a=1, y=0))
