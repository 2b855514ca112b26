"""YAML text to values with lines, and back."""

import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quant.errors import RecipeError
from quant.recipe.yaml_text import MAX_NODES, read_file, read_text, write_yaml


def test_every_value_knows_its_line():
    root = read_text("a: 1\n\nb:\n  - x\n  - {c: 2,\n     d: 3}\n", "f.yaml")
    assert root.plain() == {"a": 1, "b": ["x", {"c": 2, "d": 3}]}
    assert str(root.child("a").mark) == "f.yaml:1"
    assert str(root.child("b").mark) == "f.yaml:3"
    assert str(root.child("b").child(0).mark) == "f.yaml:4"
    assert str(root.child("b").child(1).child("d").mark) == "f.yaml:6"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E5", 100000.0),
        ("-2.5e+3", -2500.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("7", 7),
        ("-7", -7),
        ("0", 0),
        ("0x1F", 31),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("2024-01-31", "2024-01-31"),
        ("1.2.3", "1.2.3"),
        ("e5", "e5"),
        ("'1e-3'", "1e-3"),
        ('"no"', "no"),
        ("y", "y"),
        (r'"\ud83d\ude00"', "\U0001f600"),
    ],
)
def test_a_scalar_is_what_its_writer_means(text, value):
    read = read_text(f"a: {text}\n", "f.yaml").plain()["a"]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize("word", ["yes", "No", "ON", "off"])
def test_a_bare_word_that_some_read_as_a_boolean_is_refused(word):
    with pytest.raises(
        RecipeError,
        match=rf"^f.yaml:2: a bare '{word}' is text to some readers of YAML and (true|false) to others\nhint: write (true|false), or '{word}' in quotes",
    ):
        read_text(f"a: 1\nb: {word}\n", "f.yaml")


def test_keys_are_text_even_if_they_look_like_something_else():
    assert read_text("no: 1\n5: 2\nnull: 3\n", "f.yaml").plain() == {"no": 1, "5": 2, "null": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\n\na: 3\n", r"f.yaml:4: key 'a' is given twice \(first on line 1\)"),
        ("a:\n  b: 1\n  b: 1\n", r"f.yaml:3: key 'b' is given twice \(first on line 2\)"),
        ("a: 1\nb: c: d\n", r"f.yaml:2: not readable YAML: mapping values are not allowed here\nhint: quote text that holds a colon"),
        ("a:\n\tb: 1\n", r"f.yaml:2: not readable YAML: .*\\t.*\nhint: indent with spaces, not tabs"),
        ("a: [1, 2\nb: 3\n", r"f.yaml:2: not readable YAML: expected ',' or '\]'"),
        ("a: @x\n", r"f.yaml:1: not readable YAML: .*'@' that cannot start any token\nhint: quote text"),
        ("a: 'open\n", r"f.yaml:2: not readable YAML: found unexpected end of stream"),
        ("a: *nothing\n", r"f.yaml:1: not readable YAML: found undefined alias 'nothing'"),
        ("a: 1\n---\nb: 2\n", r"f.yaml:2: not readable YAML: .*another document\nhint: one file holds one recipe"),
        ("a: !!python/name:os.system\n", r"f.yaml:1: not readable YAML: the tag 'tag:yaml.org,2002:python/name:os.system' is not read in recipes"),
        ("a: !x 5\n", r"f.yaml:1: not readable YAML: the tag '!x' is not read"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", r"f.yaml:3: merge keys \(<<\) are not read in recipes\nhint: repeat the keys, or use `extends:`"),
        ("a: 1\n? [x]\n: 2\n", r"f.yaml:2: a key must be text, not a list or a mapping"),
        ("a: 010\n", r"f.yaml:1: a bare '010' is octal to some readers of YAML and decimal to others"),
        ("a: .inf\n", r"f.yaml:1: expected a finite number, got .inf"),
        ("a: .nan\n", r"f.yaml:1: expected a finite number, got .nan"),
        ("a: 1e999\n", r"f.yaml:1: expected a finite number, got 1e999"),
        ("a: 1\nb: \x07\n", r"f.yaml:2: a character that YAML does not allow: '\\x07'"),
        ('a: "\\ud800"\n', r"f.yaml:1: half of a surrogate pair in '\\ud800'"),
    ],
)
def test_what_is_not_plain_yaml_is_refused_with_its_line(text, message):
    with pytest.raises(RecipeError, match=f"^{message}"):
        read_text(text, "f.yaml")


def test_an_alias_repeats_a_value():
    assert read_text("a: &x [1, 2]\nb: *x\n", "f.yaml").plain() == {"a": [1, 2], "b": [1, 2]}


def test_an_alias_bomb_is_refused_before_it_grows():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    with pytest.raises(RecipeError, match=rf"^f.yaml:\d+: aliases repeat to more than {MAX_NODES} values\nhint: write the values out"):
        read_text("\n".join(lines), "f.yaml")


def test_an_alias_inside_itself_is_refused():
    with pytest.raises(RecipeError, match=r"^f.yaml:\d+: nested more than 40 deep by an alias"):
        read_text("a: &a\n  - *a\n", "f.yaml")


def test_depth_and_number_of_values_are_bounded():
    with pytest.raises(RecipeError, match=r"^f.yaml:1: not readable YAML: nested more than 40 deep"):
        read_text("[" * 5000, "f.yaml")
    with pytest.raises(RecipeError, match=rf"not readable YAML: more than {MAX_NODES} values"):
        read_text("- x\n" * (MAX_NODES + 1), "f.yaml")


def test_places_of_an_override_have_no_line():
    assert str(read_text("{a: [1]}", "--set x", has_lines=False).child("a").mark) == "--set x"
    with pytest.raises(RecipeError, match=r"^--set x: not readable YAML"):
        read_text("[1", "--set x", has_lines=False)


def test_a_file_that_is_not_utf8_is_refused_with_its_line(write):
    path = write(b"version: 1\nname: caf\xe9\n")
    with pytest.raises(RecipeError, match=r"^my.yaml:2: not UTF-8: byte 0xe9\nhint: save the file as UTF-8"):
        read_file(path)


def test_a_byte_order_mark_and_windows_line_ends_are_read(write):
    root = read_file(write(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n"))
    assert root.plain() == {"a": 1, "b": 2}
    assert root.child("b").mark.line == 2


def test_a_file_of_more_than_a_mebibyte_is_refused(write):
    with pytest.raises(RecipeError, match=r"^my.yaml: larger than 1 MiB, which no recipe is"):
        read_file(write(b"#" * ((1 << 20) + 1)))


@pytest.mark.skipif(os.name == "nt", reason="folders open differently there")
def test_what_cannot_be_opened_is_said_with_the_reason(tmp_path):
    with pytest.raises(RecipeError, match=r"cannot be read: Is a directory"):
        read_file(tmp_path)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]))
    | st.sampled_from(["no", "1e-3", "010", "0x1F", "", " ", "~", "- a", "a: b", "# c", ".inf", "1_000", "<<", "!x", "&a", "*a", "089", "+.5", "a\n b\n"])
)


@settings(max_examples=200, deadline=None)
@given(st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4), max_leaves=12))
def test_what_is_written_reads_back_as_the_same(value):
    read = read_text(write_yaml({"value": value}), "f.yaml").plain()["value"]
    assert read == value
    assert repr(read) == repr(value)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from(["a", ": ", "- ", "\n", "  ", "[", "]", "{", "}", ",", "&x ", "*x", "!t ", "'", '"', "|", "?", "\t", "1e3", "no", "#", "%", "---\n"])
    ).map("".join)
)
def test_any_text_is_read_or_refused_with_its_place(text):
    try:
        where = str(read_text(text, "f.yaml").mark)
    except RecipeError as error:
        where = error.where
    assert re.fullmatch(r"f.yaml:[1-9][0-9]*", where)
