"""A long call that is interrupted leaves what was finished; the next one goes on from there."""

import pytest

import quant
from quant.engine import run as running


def test_an_interrupted_call_keeps_the_stages_that_were_finished(project, monkeypatch):
    def interrupted(*_arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(running, "time_artifacts", interrupted)
        with pytest.raises(KeyboardInterrupt):
            quant.run(project.recipe, output=project.output)
    assert not (project.output / "report.json").exists()
    stages = quant.run(project.recipe, output=project.output).report.timings.stages
    done = {name.split(":")[0] for name, seconds in stages.items() if seconds == 0.0}
    assert {"import", "calibrate", "apply", "evaluate"} <= done
