"""Tables: what lies in the file is what a row holds."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from quant.data.record import Blob
from quant.data.rows import read_rows
from quant.errors import DataError
from quant.recipe.schema import DataSpec


def rows_of(path, **spec):
    (rows,) = read_rows(DataSpec(source=path.name, **spec), path, where="recipe.yaml:3").values()
    return [dict(rows[i].values) for i in range(len(rows))]


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def test_csv_keeps_quoted_commas_line_breaks_and_doubled_quotes(tmp_path):
    path = write(tmp_path / "a.csv", 'text,n\n"one, ""two""\nthree",1\nplain,2\n')
    assert rows_of(path) == [{"text": 'one, "two"\nthree', "n": 1}, {"text": "plain", "n": 2}]


def test_tsv_takes_quotes_as_they_are_and_needs_no_header(tmp_path):
    path = write(tmp_path / "movies.txt", '1\t2.5\t"The Rock is \'big\n2\t-0.5\tShe said "no"\n')
    assert rows_of(path, kind="tsv", columns=("id", "rating", "text")) == [
        {"id": 1, "rating": 2.5, "text": "\"The Rock is 'big"},
        {"id": 2, "rating": -0.5, "text": 'She said "no"'},
    ]


def test_lines_at_the_top_are_skipped_and_columns_renamed(tmp_path):
    path = write(tmp_path / "r8.tab", "a\tb\ndiscrete\tstring\nclass\tmeta\nearn\tprofits rose\n")
    assert rows_of(path, skip_rows=3, columns=("topic", "text")) == [{"topic": "earn", "text": "profits rose"}]


def test_a_gzipped_table_is_read(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"x,y\n1,2\n"))
    assert rows_of(path) == [{"x": 1, "y": 2}]


def test_numbers_are_numbers_only_where_every_value_is_one(tmp_path):
    path = write(tmp_path / "a.csv", "whole,real,gap,code,mixed,text\n1,1.5,3,007,1,NA\n-2,1e3,,010,x,null\n")
    assert rows_of(path) == [
        {"whole": 1, "real": 1.5, "gap": 3, "code": "007", "mixed": "1", "text": "NA"},
        {"whole": -2, "real": 1000.0, "gap": None, "code": "010", "mixed": "x", "text": "null"},
    ]


def test_dates_and_booleans_stay_as_they_are_written(tmp_path):
    path = write(tmp_path / "a.csv", "day,flag\n2020-01-02,true\n")
    assert rows_of(path) == [{"day": "2020-01-02", "flag": "true"}]


def test_another_encoding_is_read_when_it_is_named(tmp_path):
    path = write(tmp_path / "a.csv", "text\ncafé\n", encoding="latin-1")
    assert rows_of(path, encoding="latin-1") == [{"text": "café"}]
    with pytest.raises(DataError, match=r"(?s)not in the encoding 'utf-8'.*data\.encoding"):
        rows_of(path)
    with pytest.raises(DataError, match="no encoding is called 'latin-99'"):
        rows_of(path, encoding="latin-99")


def test_a_row_with_too_many_columns_is_named(tmp_path):
    path = write(tmp_path / "a.csv", "x,y\n1,2\n1,2,3\n")
    with pytest.raises(DataError, match=r"Row #3: Expected 2 columns, got 3"):
        rows_of(path)


def test_an_empty_table_says_so(tmp_path):
    with pytest.raises(DataError, match=r"a\.csv: the table is empty"):
        rows_of(write(tmp_path / "a.csv", ""))


def test_two_columns_of_one_name_are_refused(tmp_path):
    with pytest.raises(DataError, match="two columns are called 'x'"):
        rows_of(write(tmp_path / "a.csv", "x,x\n1,2\n"))


@pytest.mark.parametrize(
    "text",
    [
        '[{"x": 1, "s": "a"}, {"x": 2, "s": "b"}]',
        '{"x": 1, "s": "a"}\n\n{"x": 2, "s": "b"}\n',
        '{"x": [1, 2], "s": ["a", "b"]}',
        '{"data": [{"x": 1, "s": "a"}, {"x": 2, "s": "b"}]}',
    ],
    ids=["list", "lines", "columns", "under-a-key"],
)
def test_json_is_read_in_every_usual_shape(tmp_path, text):
    assert rows_of(write(tmp_path / "a.json", text)) == [{"x": 1, "s": "a"}, {"x": 2, "s": "b"}]


def test_a_key_that_some_json_rows_lack_is_none_there(tmp_path):
    assert rows_of(write(tmp_path / "a.jsonl", '{"x": 1}\n{"y": 2}\n')) == [{"x": 1, "y": None}, {"x": None, "y": 2}]


def test_a_broken_json_line_is_named(tmp_path):
    with pytest.raises(DataError, match=r"a\.jsonl:2: not JSON"):
        rows_of(write(tmp_path / "a.jsonl", '{"x": 1}\n{"x": \n'))


@pytest.mark.parametrize(("text", "message"), [("3", "holds a int"), ("[1, 2]", "row 0 is no object: '1'"), ('{"a": [1], "b": []}', "different lengths")])
def test_json_that_is_no_table_is_refused(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        rows_of(write(tmp_path / "a.json", text))


def test_parquet_keeps_lists_and_the_bytes_of_stored_files(tmp_path):
    stored = [{"bytes": b"picture", "path": "a.png"}, {"bytes": None, "path": "b.png"}]
    pa.parquet.write_table(pa.table({"x": [[1.0, 2.0], [3.0]], "image": stored}), tmp_path / "a.parquet")
    assert rows_of(tmp_path / "a.parquet") == [{"x": [1.0, 2.0], "image": b"picture"}, {"x": [3.0], "image": Blob(tmp_path / "b.png")}]


@pytest.mark.parametrize("writer", [pa.ipc.new_file, pa.ipc.new_stream], ids=["file", "stream"])
def test_arrow_files_and_streams_are_read(tmp_path, writer):
    table = pa.table({"x": [1, 2], "s": ["a", None]})
    with writer(str(tmp_path / "a.arrow"), table.schema) as out:
        out.write_table(table)
    assert rows_of(tmp_path / "a.arrow") == [{"x": 1, "s": "a"}, {"x": 2, "s": None}]


@pytest.mark.parametrize(("ending", "message"), [("parquet", "not a Parquet file"), ("arrow", "not an Arrow file")])
def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path, ending, message):
    with pytest.raises(DataError, match=message):
        rows_of(write(tmp_path / f"a.{ending}", "these are only words, and more of them"))


def test_lines_of_text_are_rows_and_empty_ones_are_not(tmp_path):
    assert rows_of(write(tmp_path / "a.txt", "one\r\n\n  two \n")) == [{"text": "one"}, {"text": "  two "}]


def test_a_form_that_nobody_can_tell_is_asked_for(tmp_path):
    with pytest.raises(DataError, match=r"(?s)recipe\.yaml:3: cannot tell the form of the file 'a\.bin'.*data\.kind"):
        rows_of(write(tmp_path / "a.bin", "?"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match="cannot tell the form of the folder 'folder'"):
        rows_of(tmp_path / "folder")


def test_a_file_and_a_folder_are_not_taken_for_each_other(tmp_path):
    with pytest.raises(DataError, match=r"is a folder; 'a.csv' is a file"):
        rows_of(write(tmp_path / "a.csv", "x\n1\n"), kind="imagefolder")
    with pytest.raises(DataError, match=r"(?s)is a file; .* is a folder.*data\.file"):
        rows_of(tmp_path, kind="csv")


def test_messages_name_file_and_row(tmp_path):
    (rows,) = read_rows(DataSpec(source="a.json"), write(tmp_path / "a.json", json.dumps([{"x": 1}])), where="").values()
    assert rows[0].place == "a.json row 0"
    with pytest.raises(DataError, match=r"(?s)a\.json row 0: no column 'y'.*known: x"):
        rows[0].value("y")
