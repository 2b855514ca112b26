"""Pictures, against the same steps in NumPy."""

import io

import numpy as np
import pytest
from PIL import Image

from quant.data.record import Blob
from quant.errors import DataError


def encode(picture, form="PNG", **kwargs):
    out = io.BytesIO()
    picture.save(out, form, **kwargs)
    return out.getvalue()


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)


@pytest.fixture
def made(opened, record):
    def made(image, **options):
        (feed,) = opened("image", **options).feeds(record(image=image))
        (array,) = feed.values()
        return array

    return made


def test_pixels_become_channels_first_between_zero_and_one(made, pixels):
    array = made(encode(Image.fromarray(pixels)))
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, (pixels.transpose(2, 0, 1) / 255).astype(np.float32))


def test_channels_last_bgr_and_gray(made, pixels):
    png = encode(Image.fromarray(pixels))
    np.testing.assert_array_equal(made(png, layout="nhwc", scale=1), pixels.astype(np.float32))
    np.testing.assert_array_equal(made(png, color="bgr", scale=1), pixels[:, :, ::-1].transpose(2, 0, 1).astype(np.float32))
    luma = pixels @ np.array([0.299, 0.587, 0.114])  # ITU-R 601, as JPEG has it
    gray = made(png, color="gray", scale=1)
    assert gray.shape == (1, 8, 12)
    assert np.abs(gray[0] - luma).max() <= 0.51  # rounded to whole levels


def test_scale_mean_and_std_of_each_channel(made, pixels):
    array = made(encode(Image.fromarray(pixels)), mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    expected = (pixels / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    np.testing.assert_allclose(array, expected.transpose(2, 0, 1), rtol=1e-6, atol=1e-6)


def test_a_centre_crop_takes_the_middle(made, pixels):
    array = made(encode(Image.fromarray(pixels)), crop=[4, 6], scale=1, layout="nhwc")
    np.testing.assert_array_equal(array, pixels[2:6, 3:9].astype(np.float32))


@pytest.mark.parametrize(
    ("size", "blocks", "bound"),
    [([8, 6], (8, 1, 6, 2, 3), 0.5), ([4, 12], (4, 2, 12, 1, 3), 0.5), (4, (4, 2, 6, 2, 3), 1.0)],
    ids=["width", "height", "both"],
)
def test_halving_with_a_box_is_the_mean(made, pixels, size, blocks, bound):
    """Each direction rounds to whole levels once: half a level, and half a level more for the second one."""
    array = made(encode(Image.fromarray(pixels)), resize=size, resample="box", scale=1, layout="nhwc")
    means = pixels.reshape(blocks).mean(axis=(1, 3))
    assert array.shape == means.shape
    assert np.abs(array - means).max() <= bound


@pytest.mark.parametrize(("size", "resize", "expected"), [((300, 200), 100, (100, 150)), ((200, 301), 100, (150, 100)), ((30, 20), [7, 9], (7, 9))])
def test_sizes_after_resizing(made, size, resize, expected):
    assert made(encode(Image.new("RGB", size)), resize=resize).shape[1:] == expected


def test_bicubic_is_the_cubic_of_keys_with_a_half(made):
    """Doubling one row: weights of the cubic convolution with a = -1/2 at distances 1/4, 3/4, 5/4, 7/4."""
    row = np.array([10, 50, 200, 90, 30, 120], np.uint8)
    picture = Image.fromarray(np.repeat(row[None], 6, axis=0))
    array = made(encode(picture), resize=[12, 12], resample="bicubic", scale=1, color="gray")[0, 6]

    def weight(x):
        x = abs(x)
        return (1.5 * x - 2.5) * x * x + 1 if x < 1 else ((-0.5 * x + 2.5) * x - 4) * x + 2 if x < 2 else 0.0

    for position in range(4, 8):  # away from the edges
        centre = (position + 0.5) / 2
        expected = sum(weight(centre - (i + 0.5)) * float(row[i]) for i in range(6))
        assert abs(array[position] - min(max(expected, 0), 255)) <= 0.51 + 0.01 * 255 / 128  # whole levels, weights in fixed point


def test_exif_turns_the_picture(made, pixels):
    picture = Image.fromarray(pixels)
    exif = picture.getexif()
    exif[0x0112] = 6  # to be turned clockwise by 90 degrees
    array = made(encode(picture, "PNG", exif=exif), scale=1, layout="nhwc")
    np.testing.assert_array_equal(array, np.rot90(pixels, k=-1).astype(np.float32))


def test_transparency_is_put_on_white(made):
    rgba = np.array([[[10, 20, 30, 0], [10, 20, 30, 255]]], np.uint8)
    array = made(encode(Image.fromarray(rgba)), scale=1, layout="nhwc")
    np.testing.assert_array_equal(array, [[[255, 255, 255], [10, 20, 30]]])


def test_a_palette_with_a_transparent_colour_is_put_on_white(made):
    picture = Image.new("P", (2, 1))
    picture.putpalette([10, 20, 30, 200, 100, 50])
    picture.putpixel((1, 0), 1)
    array = made(encode(picture, transparency=0), scale=1, layout="nhwc")
    np.testing.assert_array_equal(array, [[[255, 255, 255], [200, 100, 50]]])


def test_sixteen_bits_become_eight(made):
    deep = np.array([[0, 257 * 7, 65535]], np.uint16)
    array = made(encode(Image.fromarray(deep)), scale=1, layout="nhwc")
    np.testing.assert_array_equal(array[0, :, 0], [0, 7, 255])


def test_cmyk_becomes_rgb(made):
    array = made(encode(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "TIFF"), scale=1, layout="nhwc")
    np.testing.assert_array_equal(array[8, 8], [255, 0, 0])


def test_arrays_and_pictures_are_taken_as_they_are(made, pixels):
    for image in (pixels, pixels.tolist(), Image.fromarray(pixels)):
        np.testing.assert_array_equal(made(image, scale=1, layout="nhwc"), pixels.astype(np.float32))


def test_a_text_is_a_file_name_beside_the_table(made, pixels, tmp_path, opened, record):
    (tmp_path / "a.png").write_bytes(encode(Image.fromarray(pixels)))
    np.testing.assert_array_equal(made("a.png", scale=1, layout="nhwc"), pixels.astype(np.float32))
    processor = opened("image")
    assert processor.content(record(image="a.png")) == processor.content(record(image=Blob(tmp_path / "a.png")))
    with pytest.raises(DataError, match=r"b\.png: cannot be read"):
        processor.content(record(image="b.png"))


def test_integer_inputs_keep_whole_pixels(made, pixels):
    png = encode(Image.fromarray(pixels))
    np.testing.assert_array_equal(made(png, dtype="uint8", layout="nhwc"), pixels)
    np.testing.assert_array_equal(made(png, dtype="int8", mean=128, layout="nhwc"), pixels.astype(int) - 128)


def test_the_input_is_nameless_until_it_is_named(opened, record, pixels):
    assert list(opened("image").feeds(record(image=pixels))[0]) == [""]
    assert list(opened("image", input="pixel_values").feeds(record(image=pixels))[0]) == ["pixel_values"]


@pytest.mark.parametrize("cut", [0, 20, 60])
def test_a_broken_picture_is_named(made, pixels, cut):
    data = encode(Image.fromarray(pixels))[: -200 if cut == 60 else cut]
    with pytest.raises(DataError, match="data row 3: the picture cannot be decoded"):
        made(data)


@pytest.mark.parametrize(
    ("image", "message"),
    [(np.zeros((4, 4, 3), np.float32), "is no picture: float32"), (np.zeros(4, np.uint8), r"is no picture: uint8 \[4\]"), (3, "is no picture but a int")],
    ids=["floats", "one-axis", "number"],
)
def test_what_is_no_picture_is_refused(made, image, message):
    with pytest.raises(DataError, match=message):
        made(image)


def test_a_picture_smaller_than_the_crop_is_refused(made, pixels):
    with pytest.raises(DataError, match=r"(?s)the picture \(8 x 12\) is smaller than the crop \(9 x 9\).*resize"):
        made(encode(Image.fromarray(pixels)), crop=9)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"mean": [1, 2]}, "mean has 2 numbers for 3 channels"), ({"std": 0}, "std is 0"), ({"crop": 0}, "crop is 0"), ({"resize": [0, 3]}, "resize is")],
    ids=["mean", "std", "crop", "resize"],
)
def test_options_without_sense_are_refused(opened, options, message):
    with pytest.raises(DataError, match=message):
        opened("image", **options)
