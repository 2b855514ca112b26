"""The mutation bench: a delivered run is broken in every way there is, openly and with all digests made to match; validation finds and names each."""

import importlib.util
import itertools
from pathlib import Path

import numpy as np
import pytest
import yaml
from onnx import load, numpy_helper, save

import quant

SPEC = importlib.util.spec_from_file_location("mutations", Path(__file__).with_name("mutations.py"))
bench = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(bench)

QUICK = {"a scale is doubled", "the report is edited"}
CASES = [
    pytest.param(name, hidden, marks=() if name in QUICK and hidden else pytest.mark.slow, id=f"{name}, {'hidden' if hidden else 'open'}")
    for name, hidden in itertools.product(bench.MUTATIONS, (False, True))
]


@pytest.fixture(scope="session")
def others(delivered, tmp_path_factory):
    """Runs to take things from: `noise` was calibrated on noise, `other` is of another model."""
    folder = tmp_path_factory.mktemp("others")
    source = delivered.recipe.parent
    random = np.random.default_rng(1)
    recipe = yaml.safe_load(delivered.recipe.read_text(encoding="utf-8"))
    np.savez(folder / "noise.npz", x=random.normal(size=(64, 1, 8, 8)).astype(np.float32))
    model = load(source / "digits.onnx")
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(random.permutation(numpy_helper.to_array(tensor).reshape(-1)).reshape(tensor.dims), tensor.name))
    save(model, folder / "other.onnx")
    data = {**recipe["data"], "source": str(source / "digits.npz")}
    noise = {"samples": "rest", "data": {"source": str(folder / "noise.npz"), "kind": "npz"}}
    runs = {
        "noise": {"model": {"source": str(source / "digits.onnx")}, "data": {**data, "splits": {"calibration": noise, "evaluation": 400}}},
        "other": {"model": {"source": str(folder / "other.onnx")}, "data": data},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUANT_CACHE", str(folder / "cache"))
        for name, changes in runs.items():
            path = folder / f"{name}.yaml"
            path.write_text(yaml.safe_dump({**recipe, **changes}), encoding="utf-8")
            quant.run(path, output=folder / name)
    return folder


def test_there_are_more_than_twenty_ways():
    assert len(bench.MUTATIONS) >= 20


@pytest.mark.parametrize(("name", "hidden"), CASES)
def test_a_broken_run_fails_and_what_is_broken_is_named(name, hidden, delivered, request, tmp_path):
    broken = delivered.copy(tmp_path / "broken")
    mutation = bench.MUTATIONS[name]
    mutation.apply(broken, None if name in QUICK else request.getfixturevalue("others"))
    if hidden:
        bench.rehash(broken)
    found = delivered.validate(broken)
    assert found.verdict == "fail"
    named = {part for finding in found.findings for part in (finding.where, finding.tensor, finding.file)}
    assert mutation.named in named, [str(finding) for finding in found.findings]
    by_digest = [check for check in found.checks if check.check in {"files", "artifact-files"} and check.status == "failed"]
    assert bool(by_digest) == (not hidden), "hidden: no digest gives it away"


@pytest.mark.parametrize("turn", [0, *(pytest.param(turn, marks=pytest.mark.slow) for turn in range(1, 20))])
def test_the_untouched_run_passes_every_time(turn, delivered, tmp_path):
    found = delivered.validate(**({"work": None} if turn == 0 else {"folder": delivered.copy(tmp_path / "same")}))
    assert found.verdict == "pass", found.sentence
    assert found.findings == ()
    assert {check.status for check in found.checks} == {"ok", "skipped"}
    assert {check.check for check in found.checks if check.status == "skipped"} == {"limits"}
