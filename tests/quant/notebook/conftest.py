"""A recipe whose plans can be explored."""

import onnx
import pytest

MARKUP = "<img src=x onerror=alert(1)>"
SCRIPT = "<script>alert(1)</script>"
PLANNED = {
    "schemes": ["int8", "int8-dynamic"],
    "data": {"splits": {"calibration": 64, "search": 100, "evaluation": 300}},
    "targets": ["onnxruntime"],
    "plan": {"minimize": "size", "schemes": ["int8"]},
    "transforms": [],
}


@pytest.fixture(scope="session")
def explored(make_project, tmp_path_factory):
    """A project with a plan; the first layer has a name that would act in a page that does not escape it."""
    project = make_project(tmp_path_factory.mktemp("explored") / "project")
    path = project.folder / "digits.onnx"
    model = onnx.load(path)
    model.graph.node[0].name = MARKUP
    onnx.save(model, path)
    project.write(PLANNED)
    return project


@pytest.fixture(scope="session")
def study(explored, tmp_path_factory):
    """Its plans."""
    from quant.engine.mixing.study import study

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUANT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield study(explored.recipe)


@pytest.fixture
def state(study):
    """A plan to look at."""
    from quant.notebook.state import State

    return State(study)
