"""Windows of tokens, by hand: a tokenizer that knows a few words."""

import json

import numpy as np
import pytest

from quant.errors import DataError, RecipeError

WORDS = ["<s>", "?", "a", "b", "c", "d", "e", "f", "g"]
SPLIT = {"type": "Whitespace"}


@pytest.fixture
def folder(tmp_path):
    model = {"type": "WordLevel", "vocab": {word: number for number, word in enumerate(WORDS)}, "unk_token": "?"}
    special = {"id": 0, "content": "<s>", "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [special], "normalizer": None, "pre_tokenizer": SPLIT}
    (tmp_path / "tokenizer.json").write_text(json.dumps({**whole, "post_processor": None, "decoder": None, "model": model}))
    return tmp_path


@pytest.fixture
def windows(load, folder, jsonl):
    """What is read and what comes next, for the windows of `texts`, in the order of the source."""

    def windows(*texts, **options):
        spec = {"kind": "tokens", **options}
        data = load(source=jsonl([{"text": text} for text in texts]), inputs=spec, splits={"calibration": 1}, model_folder=folder)
        samples = sorted((sample for role in data.roles.values() for sample in role), key=lambda sample: sample.index)
        return [(sample.feeds[0]["input_ids"].tolist(), sample.label.tolist()) for sample in samples]

    return windows


def test_windows_follow_one_another_and_every_token_but_the_first_is_foretold_once(windows):
    # a b c d e f g: "a b c" foretells "b c d", and "d e f" foretells "e f g".
    assert windows("a b c d e f g", length=3) == [([2, 3, 4], [3, 4, 5]), ([5, 6, 7], [6, 7, 8])]


def test_the_rest_of_a_text_is_dropped_and_never_joined_to_the_next(windows):
    assert windows("a b c d e", "f g", "c b a", length=2) == [([2, 3], [3, 4]), ([4, 5], [5, 6]), ([4, 3], [3, 2])]


def test_the_rest_is_kept_where_it_is_long_enough(windows):
    assert windows("a b c d e f", length=3, shortest=2) == [([2, 3, 4], [3, 4, 5]), ([5, 6], [6, 7])]
    assert windows("a b c d e f", "a c e g", length=3, shortest=3) == [([2, 3, 4], [3, 4, 5]), ([2, 4, 6], [4, 6, 8])]


def test_every_window_can_begin_with_the_token_that_the_model_was_trained_to_begin_with(windows):
    assert windows("a b c d e f", length=3, start="<s>") == [([0, 2, 3], [2, 3, 4]), ([0, 5, 6], [5, 6, 7])]


def test_windows_are_the_same_whatever_the_order_of_the_rows(windows):
    assert sorted(windows("a b c d e", "e d c b a", length=2)) == sorted(windows("e d c b a", "a b c d e", length=2))


def test_an_empty_text_has_no_window(windows):
    assert len(windows("", "a b c", "g f e", "  ", length=2)) == 2


def test_other_columns_stay_for_conditions(load, folder, jsonl):
    source = jsonl([{"text": "a b c", "good": 1}, {"text": "d e f", "good": 0}, {"text": "g f e", "good": 1}])
    data = load(source=source, where=[{"column": "good", "equals": 1}], inputs={"kind": "tokens", "length": 2}, splits={"calibration": 1}, model_folder=folder)
    assert sum(map(len, data.roles.values())) == 2


def test_calibration_text_of_its_own_has_no_labels(load, folder, jsonl):
    splits = {"calibration": {"data": {"source": jsonl([{"book": "g f e"}], "books.jsonl"), "inputs": {"kind": "tokens", "column": "book", "length": 2}}}}
    data = load(source=jsonl([{"text": "a b c"}]), inputs={"kind": "tokens", "length": 2}, splits=splits, model_folder=folder)
    assert data.roles["calibration"][0].label is None
    assert data.roles["calibration"][0].feeds[0]["input_ids"].tolist() == [8, 7]
    assert data.roles["evaluation"][0].label.tolist() == [3, 4]


def test_mask_and_positions_are_made_where_the_model_takes_them(load, folder, jsonl, signature):
    data = load(source=jsonl([{"text": "a b c"}, {"text": "c b a"}]), inputs={"kind": "tokens", "length": 2}, splits={"calibration": 1}, model_folder=folder)
    taken = dict.fromkeys(("attention_mask", "position_ids"), ("int64", "N", "T"))
    (feed,) = data.bind(signature(input_ids=("int32", "N", "T"), **taken)).roles["evaluation"][0].feeds
    assert {name: array.tolist() for name, array in feed.items() if name != "input_ids"} == {"attention_mask": [1, 1], "position_ids": [0, 1]}
    assert feed["input_ids"].dtype == np.int32
    (feed,) = data.bind(signature(input_ids=("int64", "N", "T"))).roles["evaluation"][0].feeds
    assert list(feed) == ["input_ids"]


def test_a_window_is_shown_as_its_text(load, folder, jsonl):
    data = load(source=jsonl([{"text": "a b c"}, {"text": "c b a"}]), inputs={"kind": "tokens", "length": 2}, splits={"calibration": 1}, model_folder=folder)
    assert {data.roles[role].display(0) for role in data.roles} == {"a b", "c b"}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"length": 9}, DataError, r"recipe.yaml:data: no text of data.jsonl is long enough: a window takes 10 tokens, and the longest text has 3"),
        ({"length": 9, "start": "<s>"}, DataError, r"a window takes 9 tokens, and the longest text has 3\nhint: set a smaller `length`, or `shortest`"),
        ({"length": 3, "shortest": 4}, DataError, r"recipe.yaml:data.inputs: shortest is 4, more than length \(3\)"),
        ({"start": "<bos>"}, DataError, r"the tokenizer has no token '<bos>'\nhint: leave `start` out"),
        ({"length": 1}, RecipeError, r"option 'length' of processor 'tokens': Input should be greater than or equal to 2, got 1"),
    ],
    ids=["too-short", "too-short-with-start", "shortest", "start", "length"],
)
def test_what_cannot_be_done_is_said(windows, options, error, message):
    with pytest.raises(error, match=message):
        windows("a b c", **options)
