"""Files appear whole or not at all, and a disk's troubles are told in plain words."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

import pytest

from quant.core.files import disk_errors, whole_file, whole_folder, write_bytes, write_text
from quant.errors import RunError


class Stop(Exception):  # noqa: N818 - an interruption, not an error
    pass


def names(folder):
    return sorted(p.name for p in folder.rglob("*"))


def test_a_file_is_there_when_the_block_ends_and_not_before(tmp_path):
    path = tmp_path / "deep/er/file.bin"
    with whole_file(path) as part:
        part.write_bytes(b"half")
        assert not path.exists()
        assert part.parent == path.parent
    assert path.read_bytes() == b"half"
    assert names(tmp_path) == ["deep", "er", "file.bin"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.parametrize("exception", [Stop, KeyboardInterrupt, MemoryError])
def test_after_an_exception_the_old_file_stands_and_nothing_is_left(tmp_path, exception):
    path = tmp_path / "file"
    write_text(path, "old")
    with pytest.raises(exception), whole_file(path) as part:  # noqa: PT012
        part.write_bytes(b"half of the n")
        raise exception
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_text_has_the_same_bytes_everywhere(tmp_path):
    write_text(tmp_path / "t", "ä\nb\n")
    assert (tmp_path / "t").read_bytes() == "ä\nb\n".encode()
    write_bytes(tmp_path / "b", b"\r\n\0")
    assert (tmp_path / "b").read_bytes() == b"\r\n\0"


def test_a_folder_takes_the_place_of_the_old_one_as_a_whole(tmp_path):
    path = tmp_path / "run"
    with whole_folder(path) as part:
        (part / "a").write_text("1")
        assert not path.exists()
    with whole_folder(path) as part:
        (part / "b").write_text("2")
        assert names(path) == ["a"]
    assert names(tmp_path) == ["b", "run"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


@pytest.mark.parametrize("exception", [Stop, KeyboardInterrupt])
def test_after_an_exception_the_old_folder_stands_and_nothing_is_left(tmp_path, exception):
    path = tmp_path / "run"
    with whole_folder(path) as part:
        (part / "a").write_text("1")
    with pytest.raises(exception), whole_folder(path) as part:  # noqa: PT012
        (part / "b").write_text("2")
        raise exception
    assert names(tmp_path) == ["a", "run"]


def test_a_kill_while_the_old_folder_is_removed_leaves_the_new_one_whole(tmp_path, monkeypatch):
    path = tmp_path / "run"
    with whole_folder(path) as part:
        (part / "a").write_text("1")

    def killed(_path, **_options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("quant.core.files.shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt), whole_folder(path) as part:
            (part / "b").write_text("2")
    assert names(path) == ["b"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("write", [lambda p: write_text(p, "x"), lambda p: write_bytes(p, b"x")])
def test_a_full_disk_is_told_with_the_path_and_leaves_nothing(tmp_path, monkeypatch, code, write):
    def full(*_args, **_kwargs):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "write_text", full)
    monkeypatch.setattr(Path, "write_bytes", full)
    path = tmp_path / "big.onnx"
    expected = f"{path}: no space left on the disk\nhint: free some space, or choose another folder; the run goes on where it stopped"
    with pytest.raises(RunError, match="^" + re.escape(expected) + "$"):
        write(path)
    assert names(tmp_path) == []


def test_a_disk_that_fills_while_a_folder_is_written_leaves_nothing(tmp_path):
    path = tmp_path / "run"
    with pytest.raises(RunError, match=re.escape(f"{path}: no space left on the disk\nhint: free some space")), whole_folder(path) as part:  # noqa: PT012
        (part / "a").write_text("1")
        raise OSError(errno.ENOSPC, "full")
    assert names(tmp_path) == []


def test_a_file_where_a_folder_should_be_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "x.json"
    with pytest.raises(RunError, match=re.escape(f"{path}: cannot write here: ") + ".*\nhint: choose a folder that you may write to$"):
        write_text(path, "x")
    with pytest.raises(RunError, match=re.escape(f"{tmp_path / 'file'}: cannot write here: Not a directory\nhint: ")), whole_folder(tmp_path / "file"):
        pass
    assert (tmp_path / "file").read_text() == ""


def test_a_folder_where_a_file_should_be_is_told(tmp_path):
    with pytest.raises(RunError, match=re.escape(f"{tmp_path}: cannot write here: Is a directory\nhint: give the name of a file")):
        write_text(tmp_path, "x")
    with pytest.raises(RunError, match=re.escape(".: cannot write here: Is a directory")):
        write_text(Path(), "x")


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="only Linux has a folder in which nothing can be made")
@pytest.mark.parametrize("whole", [whole_file, whole_folder])
def test_a_folder_in_which_nothing_can_be_made_is_told(whole):
    with pytest.raises(RunError, match=re.escape("/proc: nothing can be made in this folder\nhint: choose a folder that")), whole(Path("/proc/x")):
        pass


def test_a_folder_that_cannot_be_moved_is_told_and_stands(tmp_path, monkeypatch):
    """The folder that one works in, or one that a disk is mounted on."""
    (tmp_path / "kept").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match=re.escape(f".: cannot write here: {os.strerror(errno.EBUSY)}")), whole_folder(Path()):
        pass
    assert names(tmp_path) == ["kept"]


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.EPERM])
@pytest.mark.parametrize("whole", [whole_file, whole_folder])
def test_a_place_that_may_not_be_written_is_told(tmp_path, monkeypatch, code, whole):
    def refused(*_args, **_kwargs):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("quant.core.files.tempfile.mkstemp", refused)
    monkeypatch.setattr("quant.core.files.tempfile.mkdtemp", refused)
    path = tmp_path / "x"
    expected = f"{path}: cannot write here: {os.strerror(code)}\nhint: choose a folder that you may write to"
    with pytest.raises(RunError, match="^" + re.escape(expected) + "$"), whole(path):
        pass


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_told(tmp_path):
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(RunError, match="cannot write here: Permission denied"):
            write_text(tmp_path / "x", "x")
    finally:
        tmp_path.chmod(0o755)


def test_a_name_that_is_too_long_is_told(tmp_path):
    with pytest.raises(RunError, match="cannot write here: File name too long"):
        write_text(tmp_path / ("x" * 300), "x")


def test_other_errors_of_the_system_stay_what_they_are(tmp_path):
    with pytest.raises(OSError, match="broken") as caught, disk_errors(tmp_path):
        raise OSError(errno.EIO, "broken")
    assert not isinstance(caught.value, RunError)
