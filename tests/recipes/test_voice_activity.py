"""The labels of `voice-activity`, and what the recipe finds."""

import json
import wave
from pathlib import Path

import numpy as np
import pytest

from quant.errors import DataError
from recipes.voice_activity import recordings

WORDS = [(0.0, 0.05, "<sil>"), (0.05, 0.1, "well"), (0.15, 0.02, "[NOISE]"), (0.17, 0.03, "said(2)")]


@pytest.fixture
def folder(tmp_path):
    with wave.open(str(tmp_path / "one.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(1000)
        file.writeframes(np.arange(215, dtype="<i2").tobytes())
    (tmp_path / "one.json").write_text(json.dumps({"w": [{"b": b, "d": d, "t": t} for b, d, t in WORDS]}))
    return tmp_path


def test_a_frame_is_speech_when_its_middle_lies_in_a_word(folder):
    """Frames of 20 samples at 1000 a second: middles at 10, 30, 50, ... ms; words from 50 to 150 and from 170 to 200 ms."""
    (row,) = recordings(str(folder), frame=20)
    assert row["speech"].tolist() == [0, 0, 1, 1, 1, 1, 1, 0, 1, 1]
    assert row["file"] == "one.wav"
    assert row["audio"].path == folder / "one.wav"


def test_a_folder_without_sounds_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"no \*.wav in this folder\nhint: each NAME.wav has its words in NAME.json"):
        recordings(str(tmp_path))


@pytest.mark.parametrize("text", [None, "{", "[]", "{}"], ids=["no file", "no JSON", "a list", "no words"])
def test_a_sound_without_an_alignment_is_an_error_that_names_it(folder, text):
    file = folder / "one.json"
    file.unlink() if text is None else file.write_text(text)
    with pytest.raises(DataError, match=r"one.json: no alignment of words\nhint: .*`pocketsphinx align` writes it"):
        recordings(str(folder))


@pytest.mark.slow
@pytest.mark.network
def test_fp32_is_as_good_as_a_plain_loop_over_the_frames_says():
    from sklearn.metrics import log_loss, roc_auc_score

    from quant.api import evaluate
    from quant.recipe.load import load_recipe

    recipe = load_recipe(Path("voice-activity")).recipe
    rows = recordings(**recipe.data.arguments)
    speech = np.concatenate([row["speech"] for row in rows])
    scores = np.concatenate([_scores(recipe.model, row["audio"].path) for row in rows])
    assert len(scores) == len(speech) == 770
    assert roc_auc_score(speech, scores) == pytest.approx(0.980, abs=5e-4)  # what is known of this model on these recordings
    found = evaluate("voice-activity")
    assert found["auc"] == pytest.approx(roc_auc_score(speech, scores), abs=1e-9)
    assert found["accuracy"] == pytest.approx(np.mean((scores > 0.5) == speech), abs=1e-9)
    assert found["log-loss"] == pytest.approx(log_loss(speech, scores.astype(np.float64)), rel=1e-5)


def _scores(model, sound):
    import onnxruntime

    from quant.data.sources import fetch

    session = onnxruntime.InferenceSession(fetch(model, base=Path(), where="test"), providers=["CPUExecutionProvider"])
    with wave.open(str(sound)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
    heard = np.concatenate([np.zeros(64, np.float32), samples])
    state, found = np.zeros((2, 1, 128), np.float32), []
    for start in range(0, len(samples) - 511, 512):
        score, state = session.run(None, {"input": heard[None, start : start + 576], "state": state})
        found.append(score.item())
    return np.array(found)
