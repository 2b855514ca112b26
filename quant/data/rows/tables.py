"""Tables: CSV, TSV, JSON, Parquet, Arrow and lines of text."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from quant.data.record import Blob, Rows
from quant.errors import DataError
from quant.recipe.schema import RowsSpec

TEXT = "text"
"""The column of a plain text's lines."""

_BLOCK_BYTES = 1 << 26  # a row longer than one block cannot be read
_MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
# Numbers as a machine writes them. A leading zero ("007") or a sign in front ("+1") marks a text: an identifier, or a line to be read.
_INTEGER = r"^-?(?:0|[1-9]\d{0,17})$"
_REAL = r"^-?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?$|^-?inf$"


def read_csv(path: Path, spec: RowsSpec) -> Rows:
    """The rows of a table of text, gzipped or not.

    A `.csv` follows the usual rules of quoting. A `.tsv` has none: a quote is a character like any other, as in most
    tab-separated corpora. A column whose values are all numbers (or missing) becomes numbers, any other stays as written.

    Raises:
        DataError: The table is empty, a row has too many or too few columns, or the bytes are not in the encoding.
    """
    import pyarrow as pa  # noqa: PLC0415 - `import quant` stays light
    from pyarrow import csv  # noqa: PLC0415

    tabs = spec.kind == "tsv" or (spec.kind == "auto" and {".tsv", ".tab"} & {ending.lower() for ending in path.suffixes[-2:]})
    parse = csv.ParseOptions(delimiter="\t" if tabs else ",", quote_char=False if tabs else '"', double_quote=not tabs, newlines_in_values=not tabs)
    read = csv.ReadOptions(
        use_threads=False,  # then a message tells the row
        block_size=_BLOCK_BYTES,
        skip_rows=spec.skip_rows,
        column_names=list(spec.columns) if spec.columns else None,
        encoding=spec.encoding,
    )
    try:
        with csv.open_csv(str(path), read_options=read, parse_options=parse) as start:
            names = list(start.schema.names)
        _check_names(names, path)
        convert = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
        table = csv.read_csv(str(path), read_options=read, parse_options=parse, convert_options=convert)
    except (pa.ArrowInvalid, UnicodeError, LookupError) as error:
        raise _unreadable(error, path, spec) from error
    return table_rows(_with_numbers(table), path)


def _check_names(names: list[str], path: Path) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(
            f"two columns are called {twice[0]!r}", where=str(path), hint="name the columns with `data.columns`, and skip the header with `data.skip_rows`"
        )


def _unreadable(error: Exception, path: Path, spec: RowsSpec) -> DataError:
    said = str(error).splitlines()[0]
    if "Empty CSV" in said:
        return DataError("the table is empty", where=str(path))
    if isinstance(error, UnicodeError) or "UTF8" in said:
        return DataError(f"not in the encoding {spec.encoding!r}: {said}", where=str(path), hint="set `data.encoding`, such as latin-1 or cp1252")
    if isinstance(error, LookupError):
        return DataError(f"no encoding is called {spec.encoding!r}", where=str(path), hint="set `data.encoding`, such as utf-8 or latin-1")
    return DataError(f"cannot be read as a table: {said}", where=str(path), hint="see `data.kind` (csv, tsv), `data.skip_rows` and `data.columns`")


def _with_numbers(table: Any) -> Any:
    import pyarrow as pa  # noqa: PLC0415 - `import quant` stays light
    from pyarrow import compute  # noqa: PLC0415

    for position, name in enumerate(table.column_names):
        column = table.column(name)
        missing = compute.is_in(column, value_set=pa.array(_MISSING))
        for pattern, kind in ((_INTEGER, pa.int64()), (_REAL, pa.float64())):
            written = compute.match_substring_regex(column, pattern)
            if compute.all(compute.or_(written, missing)).as_py() and compute.any(written).as_py():
                numbers = compute.cast(compute.if_else(missing, pa.scalar(None, pa.string()), column), kind)
                table = table.set_column(position, name, numbers)
                break
    return table


def table_rows(table: Any, path: Path) -> Rows:
    """The rows of an Arrow table, made as they are asked for."""
    names = tuple(table.column_names)
    _check_names(list(names), path)
    columns = tuple(table.column(name) for name in names)
    folder = path.parent  # asked of a path for each cell, it takes longer than the cell
    return Rows(path.name, names, table.num_rows, lambda i: {n: plain(c[i].as_py(), folder) for n, c in zip(names, columns, strict=True)}, folder)


def plain(value: Any, folder: Path) -> Any:
    """`value` as records hold it: a stored file (`{bytes, path}`) becomes its bytes, or a `Blob` where only a path is stored."""
    if isinstance(value, Mapping) and set(value) == {"bytes", "path"}:
        return value["bytes"] if value["bytes"] is not None else Blob(folder / str(value["path"]))
    return value


def read_parquet(path: Path, _spec: RowsSpec) -> Rows:
    """The rows of a Parquet file.

    Raises:
        DataError: It is none.
    """
    import pyarrow as pa  # noqa: PLC0415 - `import quant` stays light
    from pyarrow import parquet  # noqa: PLC0415

    try:
        return table_rows(parquet.ParquetFile(str(path)).read(use_threads=False), path)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"not a Parquet file: {str(error).splitlines()[0]}", where=str(path)) from error


def read_arrow(path: Path, _spec: RowsSpec) -> Rows:
    """The rows of an Arrow file or stream, mapped into memory.

    Raises:
        DataError: It is neither.
    """
    import pyarrow as pa  # noqa: PLC0415 - `import quant` stays light

    try:
        try:
            table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        except pa.ArrowInvalid:
            table = pa.ipc.open_stream(pa.memory_map(str(path))).read_all()
        return table_rows(table, path)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"not an Arrow file: {str(error).splitlines()[0]}", where=str(path)) from error


def _open_text(path: Path, spec: RowsSpec) -> IO[str]:
    return gzip.open(path, "rt", encoding=spec.encoding) if path.suffix == ".gz" else path.open(encoding=spec.encoding)


def _read_lines(path: Path, spec: RowsSpec) -> list[str]:
    try:
        with _open_text(path, spec) as file:
            return [line.rstrip("\r\n") for line in file][spec.skip_rows :]
    except (UnicodeError, LookupError, gzip.BadGzipFile) as error:
        raise _unreadable(error, path, spec) from error


def read_text(path: Path, spec: RowsSpec) -> Rows:
    """The lines of a text, in the column `text`; empty lines are left out.

    Raises:
        DataError: The bytes are not in the encoding.
    """
    name = spec.columns[0] if spec.columns else TEXT
    lines = [line for line in _read_lines(path, spec) if line.strip()]
    return Rows(path.name, (name,), len(lines), lambda i: {name: lines[i]}, path.parent)


def read_json(path: Path, spec: RowsSpec) -> Rows:
    """The rows of a JSON file: a list of objects, one object a line, an object of columns, or a list under an object's only key.

    Raises:
        DataError: It is none of these; the message names the line.
    """
    lines = _read_lines(path, spec)
    try:
        found: Any = json.loads("\n".join(lines))
    except json.JSONDecodeError:
        found = _objects_by_line(lines, path, spec.skip_rows)
    if isinstance(found, dict) and len(found) == 1 and all(isinstance(v, list) and v and isinstance(v[0], dict) for v in found.values()):
        found = next(iter(found.values()))
    elif isinstance(found, dict) and found and all(isinstance(v, list) for v in found.values()):
        found = _from_columns(found, path)
    elif isinstance(found, dict):
        found = [found]
    if not isinstance(found, list):
        raise DataError(f"holds a {type(found).__name__} instead of a list of objects", where=str(path))
    for index, row in enumerate(found):
        if not isinstance(row, dict):
            raise DataError(f"row {index} is no object: {str(row)[:60]!r}", where=str(path))
    names = tuple(dict.fromkeys(name for row in found for name in row))
    rows: list[dict[str, Any]] = found
    return Rows(path.name, names, len(rows), lambda i: {name: plain(rows[i].get(name), path.parent) for name in names}, path.parent)


def _objects_by_line(lines: list[str], path: Path, skipped: int) -> list[Any]:
    rows = []
    for number, line in enumerate(lines, start=skipped + 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise DataError(f"not JSON: {error.msg} at column {error.colno}", where=f"{path}:{number}") from error
    return rows


def _from_columns(columns: dict[str, list[Any]], path: Path) -> list[dict[str, Any]]:
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"columns of different lengths: {lengths}", where=str(path))
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
