"""A run of every target that is to be had here: untouched it passes; cut, replaced or zeroed it fails, with every digest made to match."""

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import quant
from quant.core.digest import digest_of_file
from quant.core.documents import Artifact
from quant.report.load import load_report
from quant.report.write import write_report
from quant.targets import TARGETS
from quant.validation.own_files import other_bytes, other_noise
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


def hide(folder, place):
    """Make artifact, report and manifest say what the files are now."""
    artifact = Artifact.load(folder / place / "artifact.json")
    files = {name: digest_of_file(folder / place / name) for name in artifact.files}
    artifact.model_copy(update={"files": files}).save(folder / place / "artifact.json")
    report = load_report(folder)
    rows = tuple(row.model_copy(update={"files": files}) for row in report.candidates)
    write_report(report.model_copy(update={"candidates": rows}).with_digest(), folder)
    told = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    (folder / "manifest.json").unlink()
    told["files"] = {path.relative_to(folder).as_posix(): digest_of_file(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    (folder / "manifest.json").write_text(json.dumps(told, indent=1, sort_keys=True) + "\n", encoding="utf-8")


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
def test_the_untouched_run_passes_and_the_broken_ones_name_the_file(run, tmp_path):
    recipe, folder, work = run
    found = validate(folder, data=recipe, work=work)
    assert found.verdict == "pass", found.sentence
    [place] = [path.relative_to(folder) for path in folder.glob("artifacts/*/int8")]
    name = served(folder / place).relative_to(folder / place)
    shown = (place / name).as_posix()
    for number, how in enumerate((cut, zeroed, replaced)):
        broken = shutil.copytree(folder, tmp_path / f"broken-{number}")
        how(broken / place / name, broken / place.parent / "fp32" / name)
        hide(broken, place)
        found = validate(broken, data=recipe, work=work)
        assert found.verdict == "fail", how
        assert shown in {part for finding in found.findings for part in (finding.where, finding.file)}, [str(finding) for finding in found.findings]
        assert all("\n" not in str(finding) for finding in found.findings), "each finding is a line"
        assert not any(check.check == "files" and check.findings for check in found.checks), "no digest gives it away"


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
