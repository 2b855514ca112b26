"""Code that a recipe names cannot end a run with an exit code of its own."""

import pytest

import quant
from quant.errors import RunError


@pytest.mark.parametrize("moment", ["when it is imported", "when it is called"])
def test_code_that_exits_is_an_error_and_no_verdict(project, moment):
    code = "import sys\n\ndef score(outputs, label):\n    sys.exit(0)\n" if moment == "when it is called" else "import sys\n\nsys.exit(0)\n"
    (project.folder / "mine.py").write_text(code, encoding="utf-8")
    project.write({"evaluation": {"metrics": [{"kind": "function", "function": "mine.py:score"}]}})
    with pytest.raises(RunError, match="ended the process, with exit code 0") as told:
        quant.run(project.recipe, output=project.output, trust_code=True)
    assert "must return its result" in told.value.hint
    assert not project.output.exists()


@pytest.mark.parametrize("call", [quant.calibrate, quant.evaluate])
def test_neither_can_it_end_the_other_commands(project, call):
    (project.folder / "mine.py").write_text("import sys\n\ndef score(outputs, label):\n    sys.exit(0)\n", encoding="utf-8")
    project.write({"evaluation": {"metrics": [{"kind": "function", "function": "mine.py:score"}]}})
    with pytest.raises(RunError, match="ended the process, with exit code 0"):
        call(project.recipe, trust_code=True)


def test_a_metric_from_a_file_beside_the_recipe_is_used(project):
    (project.folder / "mine.py").write_text("def score(outputs, label):\n    return float(outputs[0]['logits'].argmax() == label)\n", encoding="utf-8")
    project.write({"evaluation": {"metrics": [{"kind": "function", "function": "mine.py:score"}, "accuracy"]}})
    found = quant.run(project.recipe, output=project.output, trust_code=True).report.baseline.metrics
    assert found["function"] == found["accuracy"] > 0.5
