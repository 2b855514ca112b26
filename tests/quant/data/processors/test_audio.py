"""Sounds: PCM of every width, frames and their context."""

import io
import wave

import numpy as np
import pytest

from quant.errors import DataError


def wav(samples, *, width=2, channels=1, rate=16000):
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        if width == 1:
            data = (np.asarray(samples) + 128).astype(np.uint8).tobytes()
        else:
            data = b"".join(int(s).to_bytes(width, "little", signed=True) for s in samples)
        file.writeframes(data)
    return out.getvalue()


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_samples_of_every_width_lie_between_minus_one_and_one(opened, record, width):
    full = 1 << (8 * width - 1)
    (feed,) = opened("audio").feeds(record(audio=wav([-full, -full // 2, 0, full // 4], width=width)))
    assert feed[""].dtype == np.float32
    assert feed[""].tolist() == [-1.0, -0.5, 0.0, 0.25]


def test_channels_become_their_mean(opened, record):
    (feed,) = opened("audio").feeds(record(audio=wav([16384, 0, -16384, -16384], channels=2)))
    assert feed[""].tolist() == [0.25, -0.5]


def test_frames_are_feeds_with_what_came_before_in_front(opened, record):
    samples = [k * 4096 for k in range(1, 8)]
    feeds = opened("audio", frame=3, context=2, input="x", constants={"sr": 16000}).feeds(record(audio=wav(samples)))
    assert [(feed["x"] * 8).tolist() for feed in feeds] == [[0, 0, 1, 2, 3], [2, 3, 4, 5, 6]]
    assert [feed["sr"].shape for feed in feeds] == [(), ()]
    assert int(feeds[0]["sr"]) == 16000


@pytest.mark.parametrize(
    ("audio", "options", "message"),
    [
        (b"no sound", {}, "not a WAV file of PCM samples"),
        (b"", {}, "it ends too early"),
        (wav([1, 2]), {"rate": 8000}, "has 16000 samples a second instead of 8000"),
        (wav([1, 2]), {"frame": 3}, r"has 2 samples, fewer than one frame \(3\)"),
        ([1, 2], {}, "'audio' is no sound file but a list"),
    ],
    ids=["not-wav", "empty", "rate", "short", "list"],
)
def test_what_cannot_be_heard_names_the_row(opened, record, audio, options, message):
    with pytest.raises(DataError, match=f"data row 3: .*{message}"):
        opened("audio", **options).feeds(record(audio=audio))


def test_options_without_sense_are_refused(opened):
    with pytest.raises(DataError, match="frame is 0"):
        opened("audio", frame=0)
