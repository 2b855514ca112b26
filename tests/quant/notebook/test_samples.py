"""Samples as HTML."""

import io

import numpy as np
import pytest
from PIL import Image

from quant.data.record import Blob
from quant.notebook.samples import sample_html


def test_a_text_is_escaped_and_cut():
    page = sample_html({"text": "<script>alert(1)</script>"}, "<script>alert(1)</script>" + "x" * 1000)
    assert page.startswith("&lt;script&gt;")
    assert "<" not in page
    assert len(page) < 500


@pytest.mark.parametrize("form", ["PNG", "GIF", "BMP"])
def test_a_picture_is_drawn_anew(tmp_path, form):
    held = io.BytesIO()
    Image.new("RGB", (10, 6), (200, 30, 30)).save(held, format=form)
    (tmp_path / "a").write_bytes(held.getvalue())
    page = sample_html({"file": "a", "bytes": Blob(tmp_path / "a")}, "a")
    assert page.startswith('<img alt="" src="data:image/png;base64,')


@pytest.mark.parametrize("content", [b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", b"<script>alert(1)</script>", b""])
def test_what_is_no_picture_is_not_shown_as_one(tmp_path, content):
    (tmp_path / "a.svg").write_bytes(content)
    assert sample_html({"bytes": Blob(tmp_path / "a.svg")}, "a.svg") == "a.svg"


def test_planes_of_numbers_are_pictures_and_rows_are_not():
    assert "data:image/png" in sample_html({"x": np.arange(64.0).reshape(8, 8)}, "")
    assert "data:image/png" in sample_html({"x": np.zeros((8, 8, 3), np.uint8)}, "")
    assert sample_html({"x": np.arange(64.0)}, "array [64]") == "array [64]"
    assert sample_html({"x": np.zeros((2, 64))}, "array [2, 64]") == "array [2, 64]"
