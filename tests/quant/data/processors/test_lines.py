"""Lines of text drawn as pictures."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import ImageFont

from quant.errors import DataError


@pytest.fixture
def font(tmp_path):
    """Pillow's own built-in font, as a file."""
    found = ImageFont.load_default(20)
    if not isinstance(found, ImageFont.FreeTypeFont):
        pytest.skip("this Pillow was built without FreeType")
    (tmp_path / "font.ttf").write_bytes(found.font_bytes)
    return "font.ttf"


def draw(opened, record, font, text, **options):
    (feed,) = opened("lines", fonts=[font], **options).feeds(record(text=text))
    return feed[""]


def test_a_line_is_three_equal_channels_of_the_height_asked_for(opened, record, font):
    picture = draw(opened, record, font, "Hello world")
    assert picture.dtype == np.float32
    assert picture.shape[:2] == (3, 48)
    assert np.array_equal(picture[0], picture[2])
    assert -1 <= picture.min() < picture.max() <= 1


def test_the_width_follows_the_text(opened, record, font):
    short, long = (draw(opened, record, font, text).shape[2] for text in ("word", "a line of many words"))
    assert long > 3 * short


def test_ink_lies_inside_and_paper_around_it(opened, record, font):
    """Without blur, noise or rotation the corners are paper, brighter than 225, and some of the middle is ink, darker than 60."""
    levels = draw(opened, record, font, "HHHH", rotation=0, blur=0, noise=0, mean=0, std=1) * 255
    assert levels[0, [0, 0, -1, -1], [0, -1, 0, -1]].min() >= 225
    assert levels[0, 10:-10, 10:-10].min() < 61


def test_the_same_text_gives_the_same_picture_whatever_stands_around_it(opened, record, font):
    one, two = opened("lines", fonts=[font]), opened("lines", fonts=[font])
    two.feeds(record(text="something else first"))
    np.testing.assert_array_equal(one.feeds(record(text="same"))[0][""], two.feeds(record(text="same"))[0][""])
    assert one.digest == two.digest


def test_another_seed_draws_another_picture(opened, record, font):
    one, two = (draw(opened, record, font, "same", seed=seed) for seed in (0, 1))
    assert one.shape != two.shape or not np.array_equal(one, two)


def test_the_text_is_the_label(load, font, tmp_path):
    (tmp_path / "a.txt").write_text("one line\nanother line\nlast line\n")
    data = load(source="a.txt", inputs={"kind": "lines", "fonts": [font]}, splits={"calibration": 1})
    assert {sample.label for samples in data.roles.values() for sample in samples} == {"one line", "another line", "last line"}


def test_the_digest_follows_the_font(opened, font, tmp_path):
    shutil.copy(tmp_path / font, tmp_path / "copy.ttf")
    with (tmp_path / "other.ttf").open("wb") as file:
        file.write((tmp_path / font).read_bytes() + b"\0")
    digests = [opened("lines", fonts=[name]).digest for name in (font, "copy.ttf", "other.ttf")]
    assert digests[0] == digests[1] != digests[2]


def test_what_cannot_be_drawn_is_said(opened, record, font, tmp_path):
    with pytest.raises(DataError, match="data row 3: 'text' is empty"):
        draw(opened, record, font, "  ")
    Path(tmp_path / "no.ttf").write_bytes(b"no font")
    with pytest.raises(DataError, match=r"not a font: 'no.ttf'"):
        opened("lines", fonts=["no.ttf"])
    with pytest.raises(DataError, match="at least one font"):
        opened("lines", fonts=[])
