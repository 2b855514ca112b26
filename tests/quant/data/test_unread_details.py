"""Details of a recipe that data of its kind have no use for."""

import numpy as np
import pytest

from quant.data.rows import read_rows
from quant.errors import DataError
from quant.recipe.schema import RowsSpec


@pytest.mark.parametrize("details", [{"columns": ("a",)}, {"skip_rows": 1}, {"encoding": "latin-1"}], ids=lambda d: next(iter(d)))
def test_what_arrays_cannot_obey_is_refused_and_not_ignored(tmp_path, details):
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 3), np.float32))
    with pytest.raises(DataError, match=f"have no `{next(iter(details))}`") as told:
        read_rows(RowsSpec(source="x.npz", **details), tmp_path / "x.npz", where="r.yaml:3")
    assert told.value.where == "r.yaml:3"


def test_what_tables_obey_is_taken(tmp_path):
    (tmp_path / "x.csv").write_bytes("skip\n\u00e9,1\n".encode("latin-1"))
    (rows,) = read_rows(RowsSpec(source="x.csv", columns=("name", "n"), skip_rows=1, encoding="latin-1"), tmp_path / "x.csv", where="").values()
    assert rows[0].value("name") == "\u00e9"
