"""A run of every target that is to be had here: untouched it passes; cut, zeroed or replaced by FP32's, its file is named."""

import importlib.util
import shutil
from pathlib import Path

import numpy as np
import pytest

import quant
from quant.engine.bind import bind
from quant.engine.cache import StageCache
from quant.engine.candidates import Workshop
from quant.engine.prepare import prepare
from quant.recipe.load import load_recipe
from quant.targets import TARGETS
from quant.validation.check import CHECKS
from quant.validation.fresh import Serving
from quant.validation.own_files import other_bytes, other_noise
from quant.validation.subject import Delivery, Subject
from quant.validation.validate import validate

SPEC = importlib.util.spec_from_file_location("delivered", Path(__file__).with_name("conftest.py"))
house = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(house)


def cut(path, _fp32):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zeroed(path, _fp32):
    """An eighth of the file, from its middle on: weights, in a file that holds any."""
    data = bytearray(path.read_bytes())
    start, length = len(data) // 2, len(data) // 8
    data[start : start + length] = bytes(length)
    path.write_bytes(data)


def replaced(path, fp32):
    shutil.copyfile(fp32, path)


def served(place):
    """The file of an artifact that machines are given, the largest: weights or an engine."""
    return max((path for path in place.rglob("*") if path.is_file() and path.suffix not in {".log", ".xml", ".json", ".pbtxt"}), key=lambda p: p.stat().st_size)


@pytest.fixture(scope="module", params=TARGETS.kinds())
def run(request, tmp_path_factory):
    """(recipe, run, work) of a run of INT8 on one target."""
    here = TARGETS.make(request.param).available()
    if not here.available:
        pytest.skip(here.reason)
    folder = tmp_path_factory.mktemp("target")
    house.write_model(folder / "digits.onnx")
    changes = {
        "targets": [request.param],
        "data": {**house.RECIPE["data"], "splits": {"calibration": 16, "evaluation": 200}},
        "gate": {"max_drop": 0.2},
        "limits": {"load_s": 0.1, "load_threads": 2},
    }
    recipe = house.write_recipe(folder, **changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUANT_CACHE", str(folder / "cache"))
        patch.setattr("quant.engine.timing.measure_first_runs", lambda *_arguments, **_options: {})
        quant.run(recipe, output=folder / "out")
    return recipe, folder / "out", folder / "work"


@pytest.mark.slow
def test_the_untouched_run_passes_and_of_a_broken_artifact_the_file_is_named(run, tmp_path):
    """Digests are not looked at: what is made anew, and a fresh process, find what is broken."""
    recipe, folder, work = run
    found = validate(folder, data=recipe, work=work)
    assert found.verdict == "pass", found.sentence
    cache, bound = StageCache(work / "stages"), bind(load_recipe(recipe), trust_code=False)
    delivery = Delivery(folder, Workshop(bound, prepare(bound, cache, trust_code=False), cache), own_recipe=False, serving=Serving(0.1, 2), scratch=tmp_path)
    [place] = [path.relative_to(folder) for path in folder.glob("artifacts/*/int8")]
    name = served(folder / place).relative_to(folder / place)
    for how in (cut, zeroed, replaced):
        broken = shutil.copytree(folder / place, tmp_path / how.__name__)
        how(broken / name, folder / place.parent / "fp32" / name)
        subject = Subject(delivery, "int8", place.parent.name, broken, place.as_posix())
        checks = ["identity", *(["reload"] if how in {cut, zeroed} else [])]  # a library with zeros in it may end the process that loads it
        findings = [finding for check in checks for finding in CHECKS.make(check).look(subject).findings]
        assert (place / name).as_posix() in {finding.file for finding in findings}, (how, findings)


def test_an_engine_may_change_the_order_of_its_bytes_and_nothing_else(tmp_path):
    made, found = tmp_path / "made", tmp_path / "found"
    made.write_bytes(bytes([246, 247, 0, 1, 2]))
    for data, said in (
        (bytes([247, 246, 0, 2, 1]), ""),
        (bytes([247, 246, 0, 2]), "is not what is made anew (4 bytes, 5 were expected)"),
        (bytes([0, 0, 0, 2, 1]), "is not what is made anew, in whatever order its parts are: at least 2 of 5 bytes are others"),
    ):
        found.write_bytes(data)
        assert other_bytes(made, found) == said


def test_fp32_under_another_name_is_too_exact_and_other_rounding_is_not():
    random = np.random.default_rng(0)
    fp32 = random.normal(size=1000)
    one, other = (fp32 + np.round(random.normal(size=1000)) / 64 for _ in range(2))
    assert other_noise(one, other, fp32) == ""
    assert other_noise(one, one, fp32) == ""
    assert "it is not computed in the planned formats" in other_noise(fp32 * (1 + 2.0**-24), other, fp32)
    assert other_noise(fp32 * (1 + 2.0**-24), fp32, fp32) == "", "an artifact in FP32 may be as exact as FP32"
    assert other_noise(np.array([np.nan, 1.0]), np.array([1.0, 1.0]), np.array([1.0, 1.0])) == "", "told by the odd requests"
