"""A cache, a home folder and settings that are each test's own; small packages in a local folder of links."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from quant.data.sources import network


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """No setting of this machine, no cache of this user, no waiting."""
    for name in [name for name in os.environ if name.upper().startswith(("PIP_", "NPM_CONFIG_", "HF_", "QUANT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("QUANT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("NPM_CONFIG_GLOBALCONFIG", str(tmp_path / "no-npmrc"))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(network, "PAUSE_S", 0.0)


def tar_bytes(files: dict[str, bytes], *, links: dict[str, str] | None = None, mode: str = "w:gz") -> bytes:
    """A tar archive with these files and symbolic links."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return out.getvalue()


def zip_bytes(files: dict[str, bytes]) -> bytes:
    """A zip archive with these files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


@pytest.fixture
def make_tar():
    return tar_bytes


@pytest.fixture
def make_zip():
    return zip_bytes


@pytest.fixture
def links(tmp_path, monkeypatch) -> Path:
    """A folder of links with `toy` 1.0 (wheel and sdist) and 1.1 (wheel); the sdist's setup.py leaves a mark if it is run."""
    folder = tmp_path / "links"
    folder.mkdir()
    mark = tmp_path / "was-run"
    (folder / "toy-1.0-py3-none-any.whl").write_bytes(zip_bytes({"toy/__init__.py": b"", "toy/model/net.onnx": b"net", "toy/model/vocab.txt": b"a\nb\n"}))
    (folder / "toy-1.1-py3-none-any.whl").write_bytes(zip_bytes({"toy/__init__.py": b""}))
    inner = tar_bytes({"ratings/movies.txt": b"1.5\tgood\n", "ratings/tweets.txt": b"0\tmeh\n"})
    sdist = {
        "toy-1.0/setup.py": f"open({str(mark)!r}, 'w').close()".encode(),
        "toy-1.0/pyproject.toml": b"[build-system]\nrequires = []\n",
        "toy-1.0/extra/ratings.tar.gz": inner,
        "toy-1.0/extra/wrapped.zip": zip_bytes({"deep/ratings.tar.gz": inner}),
    }
    (folder / "toy-1.0.tar.gz").write_bytes(tar_bytes(sdist))
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return folder
