from pathlib import Path

import pytest

from quant.core.cache_folder import cache_folder
from quant.errors import RunError


def test_the_variable_comes_first_then_the_place_of_the_platform(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("QUANT_CACHE", "~/mine")
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("QUANT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "quant-toolkit"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == tmp_path / ".cache" / "quant-toolkit"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache_folder() == tmp_path / "Library" / "Caches" / "quant-toolkit"


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch):
    def no_home(_cls):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", classmethod(no_home))
    monkeypatch.delenv("QUANT_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with pytest.raises(RunError, match="no home folder") as caught:
        cache_folder()
    assert "QUANT_CACHE" in caught.value.hint
