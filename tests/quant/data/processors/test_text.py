"""Tokens, against ids found by hand from a small vocabulary."""

import json

import numpy as np
import pytest

from quant.errors import DataError

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing", "##ed", "the", "game", "a", "!"]


@pytest.fixture
def folder(tmp_path):
    """A model's folder with a WordPiece tokenizer, written as JSON by hand; its own rules pad to 16 and cut to 6."""
    special = [
        {"id": i, "content": t, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        for i, t in enumerate(VOCABULARY[:4])
    ]
    cls, sep = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}
    first, second = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    tokenizer = {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 6, "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": {"Fixed": 16}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
        "added_tokens": special,
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [cls, first, sep],
            "pair": [cls, first, sep, second, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
            "special_tokens": {t: {"id": t, "ids": [VOCABULARY.index(t)], "tokens": [t]} for t in ("[CLS]", "[SEP]")},
        },
        "decoder": None,
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {token: i for i, token in enumerate(VOCABULARY)},
        },
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    return tmp_path


def ids(feed, name="input_ids"):
    return feed[name].tolist()


def test_words_are_cut_into_the_longest_pieces_known(opened, record, folder):
    (feed,) = opened("text", model_folder=folder).feeds(record(text="Playing games!"))
    # [CLS] play ##ing [UNK] ("games" has no "##s") ! [SEP]
    assert ids(feed) == [2, 4, 5, 1, 10, 3]
    assert ids(feed, "attention_mask") == [1] * 6
    assert ids(feed, "token_type_ids") == [0] * 6
    assert {array.dtype for array in feed.values()} == {np.dtype(np.int64)}


def test_the_tokenizer_s_own_padding_is_switched_off_and_its_cut_kept(opened, record, folder):
    processor = opened("text", model_folder=folder)
    assert ids(processor.feeds(record(text="a"))[0]) == [2, 9, 3]
    assert ids(processor.feeds(record(text="the game the game the game"))[0]) == [2, 7, 8, 7, 8, 3]


def test_max_length_counts_special_tokens(opened, record, folder):
    processor = opened("text", model_folder=folder, max_length=4)
    assert ids(processor.feeds(record(text="the game played"))[0]) == [2, 7, 8, 3]
    assert ids(opened("text", model_folder=folder, max_length=9).feeds(record(text="the game the game the"))[0]) == [2, 7, 8, 7, 8, 7, 3]


def test_padding_to_max_length_is_under_the_mask(opened, record, folder):
    (feed,) = opened("text", model_folder=folder, max_length=5, padding="max_length").feeds(record(text="game"))
    assert ids(feed) == [2, 8, 3, 0, 0]
    assert ids(feed, "attention_mask") == [1, 1, 1, 0, 0]


def test_several_columns_are_several_feeds(opened, record, folder):
    feeds = opened("text", ("a", "b"), model_folder=folder, column=["a", "b"]).feeds(record(a="the", b="game"))
    assert [ids(feed) for feed in feeds] == [[2, 7, 3], [2, 8, 3]]


def test_a_second_text_stands_in_the_same_feed_with_its_own_type(opened, record, folder):
    (feed,) = opened("text", ("a", "b"), model_folder=folder, column="a", second="b").feeds(record(a="the", b="game"))
    assert ids(feed) == [2, 7, 3, 8, 3]
    assert ids(feed, "token_type_ids") == [0, 0, 0, 1, 1]


def test_inputs_can_be_chosen_and_renamed(opened, record, folder):
    (feed,) = opened("text", model_folder=folder, inputs=["input_ids"]).feeds(record(text="the"))
    assert list(feed) == ["input_ids"]
    (feed,) = opened("text", model_folder=folder, inputs={"input_ids": "tokens"}).feeds(record(text="the"))
    assert ids(feed, "tokens") == [2, 7, 3]


def test_the_mask_is_left_out_only_where_nothing_is_padded(opened, folder):
    assert opened("text", model_folder=folder).traits.optional == {"attention_mask", "token_type_ids"}
    longest = opened("text", model_folder=folder, padding="longest").traits
    assert longest.optional == {"token_type_ids"}
    assert longest.pad_values == {"input_ids": 0, "attention_mask": 0, "token_type_ids": 0}


def test_ids_become_the_integers_that_the_model_takes(load, folder, signature):
    (folder / "a.txt").write_text("the game\na game\nplaying\n")
    data = load(source="a.txt", inputs={"kind": "text", "tokenizer": "tokenizer.json"}, splits={"calibration": 1})
    (feed,) = data.bind(signature(input_ids=("int32", "N", "T"))).roles["evaluation"][0].feeds
    assert list(feed) == ["input_ids"]
    assert feed["input_ids"].dtype == np.int32


def test_longest_padding_makes_one_batch_of_texts_of_all_lengths(load, folder, signature):
    from quant.data.batches import batches

    (folder / "a.txt").write_text("the game\na\nplaying the game\n")
    spec = {"kind": "text", "tokenizer": "tokenizer.json", "padding": "longest", "inputs": ["input_ids", "attention_mask"]}
    data = load(source="a.txt", inputs=spec, splits={"calibration": 1})
    sig = signature(input_ids=("int64", "N", "T"), attention_mask=("int64", "N", "T"))
    samples = data.bind(sig).roles["evaluation"]
    (batch,) = batches(samples, sig.inputs, batch_size=4)
    lengths = [len(sample.feeds[0]["input_ids"]) for sample in samples]
    assert batch.feed["attention_mask"].sum(axis=1).tolist() == lengths
    assert batch.feed["input_ids"].shape == (2, max(lengths))


def test_the_digest_follows_the_tokenizer(opened, folder):
    before = opened("text", model_folder=folder).digest
    assert opened("text", tokenizer="tokenizer.json").digest == before
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace('"lowercase": true', '"lowercase": false'))
    assert opened("text", model_folder=folder).digest != before


@pytest.mark.parametrize("value", [None, "", "  "])
def test_an_empty_text_names_the_row(opened, record, folder, value):
    with pytest.raises(DataError, match="data row 3: 'text' is empty"):
        opened("text", model_folder=folder).feeds(record(text=value))


def test_a_tokenizer_that_is_missing_or_broken_is_said(opened, tmp_path):
    with pytest.raises(DataError, match=r"(?s)recipe.yaml:7: no tokenizer is given.*set `tokenizer:`"):
        opened("text")
    with pytest.raises(DataError, match=r"no tokenizer.json in the model's folder"):
        opened("text", model_folder=tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(DataError, match=r"tokenizer\.json: not a tokenizer"):
        opened("text", model_folder=tmp_path)


def test_options_without_sense_are_refused(opened, folder):
    with pytest.raises(DataError, match="padding to max_length needs a max_length"):
        opened("text", model_folder=folder, padding="max_length")
    with pytest.raises(DataError, match="max_length is 0"):
        opened("text", model_folder=folder, max_length=0)


def test_a_person_sees_the_text(opened, record, folder):
    assert opened("text", model_folder=folder).display(record(text="the  game\n" * 30)) == ("the game " * 30)[:79].rstrip() + "…"
