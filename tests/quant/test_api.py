"""What `import quant` offers."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import quant
from quant import api
from quant.errors import QuantError

TOP = Path(__file__).resolve().parents[2]


def test_every_public_name_is_there_documented_and_typed():
    assert set(api.__all__) == set(quant.__all__)
    for name in api.__all__:
        found = getattr(quant, name)
        assert found is getattr(api, name)
        assert inspect.getdoc(found), name
        if inspect.isfunction(found):
            signature = inspect.signature(found)
            assert signature.return_annotation is not inspect.Signature.empty, name
            assert all(p.annotation is not inspect.Parameter.empty for p in signature.parameters.values()), name
            assert all(f"{p}:" in inspect.getdoc(found) for p in signature.parameters), name


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'quant' has no attribute 'rnu'"):
        quant.rnu  # noqa: B018 - looking is enough
    assert set(quant.__all__) <= set(dir(quant))


def test_importing_quant_is_light():
    script = "import sys, quant; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=TOP).stdout.split()
    assert not {"torch", "onnx", "onnxruntime", "numpy", "pydantic", "transformers", "datasets"} & set(loaded)


@pytest.mark.slow
def test_type_checkers_see_what_is_imported_late(tmp_path):
    (tmp_path / "use.py").write_text("import quant\n\nreveal_type(quant.run)\nreveal_type(quant.load_report)\n")
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "use.py"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(TOP), "MYPYPATH": str(TOP)},
    )
    if "No module named mypy" in found.stderr:
        pytest.skip("no mypy here")
    assert "quant.engine.run.Run" in found.stdout, found
    assert "quant.report.document.Report" in found.stdout


def test_paths_may_be_text(project):
    run = quant.run(str(project.recipe), output=str(project.output), overrides=["schemes=[int8-dynamic]"])
    assert run.folder == project.output
    assert quant.load_report(str(project.output)).results_digest == run.report.results_digest
    assert quant.load_recipe(str(project.recipe)).recipe.name == "digits"
    assert quant.inspect(str(project.folder / "digits.onnx")).opset == 21


def test_calibrate_gives_the_statistics_of_what_is_quantized(project, digits):
    table = quant.calibrate(project.recipe)
    assert table.samples == 64
    assert set(table.statistics) == {"x", "embedding"}
    seen = table.statistics["x"]
    assert seen.count == 64 * 64
    assert 0 <= seen.minimum <= seen.maximum <= float(digits.x.max())


def test_evaluate_gives_the_metrics_of_fp32(project, finished):
    assert quant.evaluate(project.recipe) == {"accuracy": finished.run.report.baseline.value}


def test_compare_finds_a_run_equal_to_itself(finished):
    assert quant.compare(finished.run.report, quant.load_report(finished.project.output)).same_results


def test_errors_are_of_one_family(tmp_path):
    with pytest.raises(QuantError):
        quant.load_recipe(tmp_path / "nowhere.yaml")
    with pytest.raises(QuantError):
        quant.load_report(tmp_path)
    with pytest.raises(QuantError):
        quant.inspect(tmp_path / "nowhere.onnx")


def test_library_code_prints_nothing(project, capfd):
    quant.run(project.recipe, output=project.output, overrides=["schemes=[int8-dynamic]"])
    assert capfd.readouterr() == ("", "")


def test_metric_code_runs_only_when_it_is_trusted_and_counts_in_what_is_kept(project, monkeypatch):
    code = project.folder / "own_metric.py"
    code.write_text("def right(outputs, label):\n    return float(outputs[0]['logits'].argmax() == label)\n")
    project.write({"evaluation": {"metrics": [{"kind": "function", "function": "own_metric:right"}]}})
    with pytest.raises(QuantError, match="--trust-code"):
        quant.evaluate(project.recipe)
    first = quant.evaluate(project.recipe, trust_code=True)["function"]
    assert 0.8 < first < 1
    monkeypatch.delitem(sys.modules, "own_metric")
    code.write_text("def right(outputs, label):\n    return 1 - float(outputs[0]['logits'].argmax() == label)  # changed\n")
    assert quant.evaluate(project.recipe, trust_code=True)["function"] == pytest.approx(1 - first)
