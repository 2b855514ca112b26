"""The output folder and the cache: other people's things are left alone, and a full disk leaves everything as it was."""

import errno
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

import quant


def test_a_folder_that_holds_other_things_is_left_alone(refused, project):
    project.output.mkdir()
    (project.output / "thesis.txt").write_text("years of work")
    said = refused()
    assert f"{project.output}: is not empty and holds no run" in said
    assert (project.output / "thesis.txt").read_text() == "years of work"


def test_a_file_is_no_output_folder(refused, project):
    project.output.write_text("a file")
    said = refused()
    assert f"{project.output}: is a file, not a folder" in said
    assert "--output" in said
    assert project.output.read_text() == "a file"


def test_a_file_in_the_way_of_the_output_folder_is_named(cli, project):
    (project.folder / "file").write_text("x")
    outcome = cli("run", project.recipe, "--output", project.folder / "file" / "out")
    assert outcome.code == 2
    assert "cannot write here" in outcome.err
    assert "hint: " in outcome.err


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no /proc")
def test_an_output_folder_that_nobody_can_write_to_is_refused(cli, project):
    outcome = cli("run", project.recipe, "--output", "/proc/quant/out")
    assert outcome.code == 2
    assert "/proc/quant/out" in outcome.err
    assert "Traceback" not in outcome.err


def test_a_run_over_an_earlier_one_takes_its_place(project):
    project.write({"schemes": ["int8-dynamic", "int8"]})
    quant.run(project.recipe, output=project.output)
    assert (project.output / "calibration").exists()
    project.write({"schemes": ["int8-dynamic"]})
    quant.run(project.recipe, output=project.output)
    assert {p.name for p in (project.output / "artifacts/onnxruntime").iterdir()} == {"fp32", "int8-dynamic"}
    assert not (project.output / "calibration").exists()


def test_parent_folders_are_made_and_go_again_when_nothing_was_left(cli, project, tmp_path):
    output = tmp_path / "a" / "b" / "out"
    project.write({"model": {"source": "nowhere.onnx"}})
    assert cli("run", project.recipe, "--output", output).code == 2
    assert not (tmp_path / "a").exists()


FULL = "no space left on the disk"


def _full(*_arguments, **_options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_is_full_when_the_run_is_written_leaves_the_folder_as_it_was(refused, project, monkeypatch):
    from quant.engine import folder as writing

    project.write({"schemes": ["int8-dynamic"]})
    quant.run(project.recipe, output=project.output)
    before = {p: p.read_bytes() for p in project.output.rglob("*") if p.is_file()}
    monkeypatch.setattr(writing, "write_report", _full)
    said = refused({"schemes": ["int8"]})
    assert f"{project.output}: {FULL}" in said
    assert "free some space" in said
    assert {p: p.read_bytes() for p in project.output.rglob("*") if p.is_file()} == before


def test_a_disk_that_is_full_when_a_new_run_is_written_leaves_no_folder(refused, project, monkeypatch):
    from quant.engine import folder as writing

    monkeypatch.setattr(writing, "write_report", _full)
    assert FULL in refused({"schemes": ["int8-dynamic"]})
    assert not project.output.exists()
    monkeypatch.undo()
    quant.run(project.recipe, output=project.output)


@contextmanager
def _tiny_disk(folder, kib):
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(folder)], check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip("this user may not mount a disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # weights may be mapped still


@pytest.mark.parametrize("kib", [8, 32, 64, 128])
def test_a_cache_on_a_full_disk_is_said_to_be_full(refused, tmp_path, monkeypatch, kib):
    with _tiny_disk(tmp_path / "disk", kib) as disk:
        monkeypatch.setenv("QUANT_CACHE", str(disk / "cache"))
        said = refused({"schemes": ["int8"]})
        assert FULL in said
        assert str(disk) in said
        assert not list(disk.rglob("*.part"))


@pytest.mark.parametrize("kib", [8, 32, 48])
def test_an_output_folder_on_a_full_disk_is_said_to_be_full(cli, project, tmp_path, kib):
    with _tiny_disk(tmp_path / "disk", kib) as disk:
        outcome = cli("run", project.recipe, "--output", disk / "out")
        assert outcome.code == 2
        assert f"{disk / 'out'}: {FULL}" in outcome.err
        assert not (disk / "out").exists()


def test_a_cache_that_is_a_file_is_named(refused, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("QUANT_CACHE", str(tmp_path / "file"))
    said = refused()
    assert "cannot write here" in said
    assert str(tmp_path / "file") in said


@pytest.mark.parametrize("spoil", [lambda file: file.unlink(), lambda file: file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:])])
@pytest.mark.parametrize("pattern", ["import/*/model.onnx.data", "calibrate/*/histograms.npy", "apply/*/files/model.onnx", "evaluate/*/predictions.npz"])
def test_a_damaged_part_of_the_cache_changes_nothing(project, pattern, spoil):
    """Somebody, or a disk, has removed or changed a file of a finished stage."""
    project.write({"schemes": ["int8"], "evaluation": {"metrics": ["accuracy"]}})
    before = quant.run(project.recipe, output=project.output)
    for file in (project.folder.parent / "quant-cache" / "stages").glob(pattern):
        spoil(file)
    again = project.folder / "again"
    assert quant.run(project.recipe, output=again).report.results_digest == before.report.results_digest
    model = Path("artifacts", "onnxruntime", "int8", "model.onnx")
    assert (again / model).read_bytes() == (project.output / model).read_bytes()
