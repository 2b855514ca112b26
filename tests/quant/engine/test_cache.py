"""The cache of stage results gives what was written, or makes it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from quant.engine.cache import StageCache


class Producer:
    """Writes a result, and counts how often."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, folder: Path) -> None:
        self.runs += 1
        (folder / "files").mkdir()
        (folder / "files" / "model.onnx").write_bytes(b"the right bytes")
        (folder / "plan.json").write_text("{}", encoding="utf-8")


def damaged(place: Path, how: str) -> None:
    model = place / "files" / "model.onnx"
    match how:
        case "a changed byte":
            model.write_bytes(b"the wrong bytes")
        case "an empty file":
            model.write_bytes(b"")
        case "a missing file":
            (place / "plan.json").unlink()
        case "a file too many":
            (place / "files" / "other").write_bytes(b"")
        case "a damaged key":
            (place / "key.json").write_text("{", encoding="utf-8")
        case "no key":
            (place / "key.json").unlink()


def test_a_result_is_made_once(tmp_path: Path) -> None:
    produce = Producer()
    first = StageCache(tmp_path).stage("apply:int8", {"a": 1}, produce)
    assert StageCache(tmp_path).stage("apply:int8", {"a": 1}, produce) == first
    assert produce.runs == 1


@pytest.mark.parametrize("how", ["a changed byte", "an empty file", "a missing file", "a file too many", "a damaged key", "no key"])
def test_a_damaged_result_is_made_again(how: str, tmp_path: Path) -> None:
    produce = Producer()
    place = StageCache(tmp_path).stage("apply:int8", {"a": 1}, produce)
    damaged(place, how)
    cache = StageCache(tmp_path)
    assert cache.stage("apply:int8", {"a": 1}, produce) == place
    assert produce.runs == 2
    assert cache.seconds["apply:int8"] > 0
    assert sorted(p.relative_to(place).as_posix() for p in place.rglob("*") if p.is_file()) == ["files/model.onnx", "key.json", "plan.json"]
    assert (place / "files" / "model.onnx").read_bytes() == b"the right bytes"
    assert [p.name for p in place.parent.iterdir()] == [place.name]
