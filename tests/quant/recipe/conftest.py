"""Recipes written to a folder, and plug-ins that stand for those of the upper floors."""

import textwrap
from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel, Field

import quant.recipe.shipped
from quant.core.registry import Options, Registry

MINIMAL = """\
version: 1
name: minimal
model:
  source: model.onnx
data:
  source: data.csv
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a recipe below an empty current folder; gives its path relative to there."""
    monkeypatch.chdir(tmp_path)

    def write_recipe(text, name="my.yaml"):
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        data = text if isinstance(text, bytes) else textwrap.dedent(text).encode()
        path.write_bytes(data)
        return path

    return write_recipe


@pytest.fixture
def minimal(write):
    return write(MINIMAL, "minimal.yaml")


@pytest.fixture
def shipped_folder(tmp_path_factory, monkeypatch):
    """A folder that stands for the shipped recipes, with `text-sentiment` in it."""
    folder = tmp_path_factory.mktemp("shipped")
    (folder / "text-sentiment.yaml").write_text(MINIMAL.replace("minimal", "text-sentiment"), encoding="utf-8")
    monkeypatch.setattr(quant.recipe.shipped, "shipped", lambda: {path.stem: path for path in sorted(folder.glob("*.yaml"))})
    return folder


class Nested(BaseModel):
    size: int = 1


class Int8:
    """Eight bits.

    More words.
    """

    kind = "int8"

    class Options(Options):
        bits: int = Field(8, ge=2, le=8)
        mode: Literal["static", "dynamic"] = "static"
        nested: Nested = Nested()
        share: float | Literal["all"] = "all"


class Needy:
    """Cannot do without a number."""

    kind = "needy"

    class Options(Options):
        percentile: float


@pytest.fixture
def registries(tmp_path, monkeypatch):
    """The five registries, each with the plug-ins `int8` and `needy`."""
    (tmp_path / "no_plugins_here").mkdir()
    (tmp_path / "no_plugins_here" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    made = {}
    for noun in ("scheme", "target", "calibrator", "metric", "processor"):
        made[noun] = Registry(noun, "no_plugins_here")
        made[noun].add(Int8)
        made[noun].add(Needy)
    return made
