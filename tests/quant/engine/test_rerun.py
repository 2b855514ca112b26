"""A second run computes nothing, a fresh one gives the same bytes, a killed one goes on, and two do not get in each other's way."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import quant
from quant.engine.lock import locked, part_folder, remove_left_parts
from quant.errors import RunError
from quant.report.load import load_report

TOP = Path(__file__).resolve().parents[3]
UNTIMED = {"report.html", "report.md", "report.json", "junit.xml", "manifest.json"}
"""Files that show times."""


def _files(folder):
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.rglob("*")) if p.is_file()}


def _untimed(report):
    found = json.loads(report.to_json())
    del found["timings"]
    return found


def _start(project, cache):
    command = [sys.executable, "-m", "quant.cli", "run", str(project.recipe), "--output", str(project.output)]
    environment = {**os.environ, "QUANT_CACHE": str(cache), "PYTHONPATH": str(TOP)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_second_run_computes_nothing_and_writes_the_same_bytes(finished, monkeypatch, tmp_path):
    monkeypatch.setenv("QUANT_CACHE", str(finished.cache))
    again = quant.run(finished.project.recipe, output=tmp_path / "again")
    stages = again.report.timings.stages
    assert set(stages.values()) == {0.0}, stages
    assert set(stages) == set(finished.run.report.timings.stages)
    assert _untimed(again.report) == _untimed(finished.run.report)
    assert again.report.results_digest == finished.run.report.results_digest
    before, after = _files(finished.project.output), _files(tmp_path / "again")
    assert set(before) == set(after)
    assert {name for name in before if before[name] != after[name]} <= UNTIMED
    assert len({name for name in before if name.startswith("artifacts/")}) >= 8


def test_a_run_of_its_own_gives_the_same_results_on_one_thread(finished, monkeypatch, tmp_path):
    monkeypatch.setenv("QUANT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("QUANT_THREADS", "1")
    fresh = quant.run(finished.project.recipe, output=tmp_path / "fresh")
    assert set(fresh.report.timings.stages.values()) != {0.0}
    one, two = _untimed(fresh.report), _untimed(finished.run.report)
    for report in (one, two):
        for candidate in report["candidates"]:
            candidate.pop("latency_ratio")
    assert one == two
    assert fresh.report.results_digest == finished.run.report.results_digest
    before, after = _files(finished.project.output), _files(tmp_path / "fresh")
    assert {name for name in {*before, *after} if before.get(name) != after.get(name)} <= UNTIMED


def test_the_manifest_names_every_file_with_its_digest(finished):
    told = json.loads((finished.project.output / "manifest.json").read_text())["files"]
    found = _files(finished.project.output)
    del found["manifest.json"]
    assert told == found
    for candidate in finished.run.report.candidates:
        for name, digest in candidate.files.items():
            assert told[f"{candidate.artifact}/{name}"] == digest


def test_another_option_recomputes_only_what_depends_on_it(finished, monkeypatch, tmp_path):
    monkeypatch.setenv("QUANT_CACHE", str(finished.cache))
    found = quant.run(finished.project.recipe, output=tmp_path / "out", overrides=["gate.max_drop=0.2"])
    computed = {name for name, seconds in found.report.timings.stages.items() if seconds}
    assert computed == {f"gate:{c.scheme} on {c.target}" for c in found.report.candidates}
    plain = ["transforms=[]"]  # a search of ranges may find the same ones whatever the calibrator, and then nothing behind it is computed again
    quant.run(finished.project.recipe, output=tmp_path / "out", overrides=plain)
    found = quant.run(finished.project.recipe, output=tmp_path / "out", overrides=[*plain, "calibration.calibrator=minmax"])
    computed = {name for name, seconds in found.report.timings.stages.items() if seconds}
    assert computed == {
        "apply:int8 on onnxruntime",
        "evaluate:int8 on onnxruntime",
        "audit:int8 on onnxruntime",
        "agree:int8 on onnxruntime",
        "gate:int8 on onnxruntime",
        "measure:onnxruntime",
    }


def test_a_scheme_of_another_name_gets_an_artifact_of_its_own_name(project):
    project.write({"schemes": ["int8-dynamic"]})
    quant.run(project.recipe, output=project.output)
    project.write({"schemes": [{"kind": "int8-dynamic", "name": "other"}]})
    quant.run(project.recipe, output=project.output)
    assert json.loads((project.output / "artifacts/onnxruntime/other/artifact.json").read_text())["scheme"] == "other"
    assert not (project.output / "artifacts/onnxruntime/int8-dynamic").exists()


@pytest.mark.slow
def test_a_killed_run_goes_on_and_leaves_nothing_behind(finished, make_project, tmp_path):
    """It is killed while each stage is being computed, while the run is being written, and at moments in between."""
    project = make_project(tmp_path / "project")
    shutil.copy(finished.project.recipe, project.recipe)
    cache = tmp_path / "cache"
    stages = cache / "stages"
    moments = [(stages / name, delay) for name in ("import", "check", "calibrate", "evaluate", "apply", "audit", "measure") for delay in (0, 0.01)]
    left = sum(_kill_when_begun(project, cache, *moment) for moment in [*moments, (project.output, 0)])
    assert left >= 4, "most of the kills must have hit a stage half-way"
    process = _start(project, cache)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert "Pass" in out
    assert load_report(project.output).results_digest == finished.run.report.results_digest
    _check_manifest(project.output)
    assert not [p for p in project.output.rglob("*") if p.name.startswith(".")]
    assert not list(stages.rglob("*.part")), "what killed runs had begun"


def _kill_when_begun(project, cache, folder, delay):
    """Start a run and kill it `delay` seconds after it has begun to fill a part of `folder`; whether it left that part."""
    process = _start(project, cache)
    while not list(folder.glob(".*.part")) and process.poll() is None:
        time.sleep(0.001)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    if (project.output / "report.json").exists():
        load_report(project.output)  # whole
    if (project.output / "manifest.json").exists():
        _check_manifest(project.output)
    return bool(list(folder.glob(".*.part")))


def _check_manifest(folder):
    told = json.loads((folder / "manifest.json").read_text())["files"]
    assert {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in told} == told


def test_a_run_that_is_killed_while_it_writes_leaves_no_half_and_is_taken_up(project, monkeypatch):
    """The process dies at each step of putting the new run in place of the old one."""
    from quant.engine import folder as writing

    project.write({"schemes": ["int8-dynamic"]})
    first = quant.run(project.recipe, output=project.output)
    swap = writing._swap
    for step in range(7):
        done = []

        def dies(new, place, done=done, step=step):
            if len(done) == step:
                raise KeyboardInterrupt
            done.append(place.name)
            swap(new, place)

        monkeypatch.setattr(writing, "_swap", dies)
        with pytest.raises(KeyboardInterrupt):
            quant.run(project.recipe, output=project.output)
        assert load_report(project.output).results_digest == first.report.results_digest
        monkeypatch.setattr(writing, "_swap", swap)
    again = quant.run(project.recipe, output=project.output)
    assert again.report.results_digest == first.report.results_digest
    _check_manifest(project.output)
    assert not [p for p in project.output.rglob("*") if p.name.startswith(".")]


def test_what_a_dead_process_began_is_removed_and_what_a_living_one_fills_is_not(tmp_path):
    script = f"import sys, os; sys.path.insert(0, {str(TOP)!r})\nfrom pathlib import Path\nfrom quant.engine.lock import part_folder\n"
    script += f"with part_folder(Path({str(tmp_path)!r}), 'dead') as part:\n    (part / 'half').write_text('x')\n    os.kill(os.getpid(), 9)\n"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    [left] = tmp_path.glob(".dead.*.part")
    with part_folder(tmp_path, "living") as part:
        remove_left_parts(tmp_path)
        assert part.is_dir()
        assert not left.exists()
    assert list(tmp_path.iterdir()) == []


def test_a_stage_that_fails_leaves_nothing_in_the_cache(tmp_path):
    from quant.engine.cache import StageCache

    def fail(folder):
        (folder / "half").write_text("x")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        StageCache(tmp_path).stage("import", {"a": 1}, fail)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
    assert list((tmp_path / "import").iterdir()) == []


def test_two_processes_that_compute_the_same_stage_agree(tmp_path):
    from quant.engine.cache import StageCache

    def produce(folder):
        (folder / "result").write_text("outer")
        inner = StageCache(tmp_path).stage("import", {"a": 1}, lambda other: (other / "result").write_text("inner"))
        assert (inner / "result").read_text() == "inner"

    place = StageCache(tmp_path).stage("import", {"a": 1}, produce)
    assert (place / "result").read_text() == "inner"
    assert [p.name for p in place.parent.iterdir()] == [place.name]


def test_a_second_run_into_the_same_folder_is_turned_away_and_the_first_completes(cli, project):
    with locked(project.output):
        outcome = cli("run", project.recipe, "--output", project.output)
        assert outcome.code == 2
        assert f"{project.output}: another run is using this folder (process {os.getpid()})" in outcome.err
        assert "hint: wait for it, or give another --output" in outcome.err
    assert not project.output.exists()


def test_a_lock_that_its_holder_removed_is_not_taken_for_held(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    with locked(folder):
        (folder / "kept").write_text("x")
    assert [p.name for p in folder.iterdir()] == ["kept"]
    with locked(folder), pytest.raises(RunError, match="another run is using this folder"), locked(folder):
        pass


@pytest.mark.slow
def test_two_runs_at_once_into_one_folder(make_project, tmp_path):
    project = make_project(tmp_path / "project")
    first = _start(project, tmp_path / "cache")
    while not (project.output / ".lock").exists():
        assert first.poll() is None, first.communicate()
        time.sleep(0.01)
    second = _start(project, tmp_path / "cache")
    out, err = second.communicate()
    assert second.returncode == 2
    assert "another run is using this folder" in err
    assert out == ""
    assert first.communicate()[1] == ""
    assert first.returncode == 0
    _check_manifest(project.output)
