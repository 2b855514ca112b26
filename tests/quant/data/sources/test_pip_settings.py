import pytest

from quant.data.sources.pip_settings import pip_settings
from quant.errors import SourceError


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_later_places_override_earlier_ones(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("sys.prefix", str(tmp_path / "prefix"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "xdg"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "own.conf"))
    write(tmp_path / "xdg/pip/pip.conf", "[global]\nindex-url = https://global.example/simple\ntrusted-host = one\n  two\ncert = /global.pem\n")
    write(
        tmp_path / "home/.config/pip/pip.conf",
        "[global]\nindex-url = https://user.example/simple\nfind-links = /a /b\n[download]\ntimeout = 7\n[install]\nno-index = true\n",
    )
    write(tmp_path / "own.conf", "[global]\nextra_index_url = https://extra.example/a\n")
    monkeypatch.setenv("PIP_CERT", "/env.pem")
    found = pip_settings()
    assert found.index_url == "https://user.example/simple"
    assert found.trusted_hosts == ("one", "two")
    assert found.find_links == ("/a", "/b")
    assert found.extra_index_urls == ("https://extra.example/a",)
    assert (found.cert, found.timeout_s, found.no_index) == ("/env.pem", 7.0, False)


def test_the_null_device_means_no_files(tmp_path):
    write(tmp_path / "home/.config/pip/pip.conf", "[global]\nno-index = true\n")
    assert not pip_settings().no_index


def test_a_file_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    write(tmp_path / "own.conf", "no section\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "own.conf"))
    with pytest.raises(SourceError, match=r"own\.conf: cannot read pip's configuration"):
        pip_settings()
    write(tmp_path / "own.conf", "[global]\ntimeout = soon\n")
    with pytest.raises(SourceError, match=r"timeout 'soon' is no number"):
        pip_settings()
