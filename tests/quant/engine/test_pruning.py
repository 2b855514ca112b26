"""Room in the cache: what no run can find again goes, all else stays."""

from __future__ import annotations

import json
import os
import time

import pytest

from quant.engine.cache import StageCache
from quant.engine.pruning import held, prune

DAY = 86400


def made(root, stage, key, content=b"12345678"):
    return StageCache(root).stage(stage, {"key": key}, lambda folder: (folder / "file").write_bytes(content))


def aged(place, days):
    then = time.time() - days * DAY
    for path in (*place.rglob("*"), place):
        os.utime(path, (then, then))


def of_other(place, **changed):
    key = json.loads((place / "key.json").read_text())
    (place / "key.json").write_text(json.dumps({**key, **changed}))


def test_only_what_another_version_or_library_has_made_is_useless(tmp_path):
    kept, by_code, by_library = made(tmp_path, "calibrate", 1), made(tmp_path, "apply:int8", 2), made(tmp_path, "apply:fp16", 3)
    of_other(by_code, code="0" * 64)
    of_other(by_library, libraries={"numpy": "1.0"})
    assert held(tmp_path).results == 3
    assert held(tmp_path, useless=True).results == 2
    assert set(held(tmp_path, useless=True).stages) == {"apply"}
    removed = prune(tmp_path)
    assert removed.results == 2
    assert removed.size_bytes > 2 * 8
    assert kept.is_dir()
    assert not by_code.exists()
    assert not by_library.exists()
    assert held(tmp_path).results == 1
    assert not list(tmp_path.rglob("*.part"))


def test_what_was_used_lately_stays_and_a_run_that_uses_a_result_says_so(tmp_path):
    old, used = made(tmp_path, "apply", 1), made(tmp_path, "apply", 2)
    aged(old, 40)
    aged(used, 40)
    assert held(tmp_path, unused_days=30).results == 2
    assert made(tmp_path, "apply", 2) == used  # found, by another process
    assert prune(tmp_path, unused_days=30).results == 1
    assert used.is_dir()
    assert not old.exists()


@pytest.mark.parametrize("key", [b"", b"[]", b"\xff"])
def test_a_result_whose_key_is_damaged_is_useless(key, tmp_path):
    place = made(tmp_path, "apply", 1)
    (place / "key.json").write_bytes(key)
    assert prune(tmp_path).results == 1


def test_what_a_killed_run_left_on_its_way_stays_for_a_day(tmp_path):
    place = StageCache(tmp_path).scratch("train", {"key": 1})
    place.mkdir(parents=True)
    (place / "checkpoint").write_bytes(b"1234")
    assert prune(tmp_path).results == 0
    aged(place, 2)
    assert prune(tmp_path) == held(tmp_path / "nothing").__class__(1, 4, {"unfinished": 4})
    assert not place.exists()


def test_an_empty_or_missing_cache_holds_nothing(tmp_path):
    assert held(tmp_path / "missing").results == prune(tmp_path / "missing").results == 0


def test_the_command_tells_and_makes_room(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from quant.cli import app

    monkeypatch.setenv("QUANT_CACHE", str(tmp_path))
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "model").write_bytes(bytes(1000))
    of_other(made(tmp_path / "stages", "apply", 1), code="0" * 64)

    def told(*arguments):
        return CliRunner().invoke(app, ["cache", *arguments])

    assert "no run can use 1 of them any more" in told().stdout
    found = json.loads(told("--json").stdout)
    assert (found["sources_bytes"], found["results"]["results"], found["useless"]["results"], found["removed"]) == (1000, 1, 1, None)
    assert "removed: 1 results" in told("--prune").stdout
    assert json.loads(told("--json").stdout)["results"]["results"] == 0
    assert (tmp_path / "sources" / "model").is_file()
    assert told("--unused", "3").exit_code == 2
