"""A whole project in a folder: a small network on scikit-learn's digits, its data, and a recipe that runs in seconds."""

import copy
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

RECIPE = {
    "version": 1,
    "name": "digits",
    "model": {"source": "digits.onnx"},
    "data": {"source": "digits.npz", "label": {"column": "y"}, "splits": {"calibration": 64, "evaluation": 700}},
    "schemes": ["int8"],
    "evaluation": {"metrics": ["accuracy"]},
    "gate": {"max_drop": 0.05},
    "latency": {"requests": 2, "warmup": 0},
}


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str


class Project:
    """A folder with a model, data and a recipe."""

    def __init__(self, folder):
        self.folder = folder
        self.output = folder / "out"
        self.recipe = folder / "recipe.yaml"
        self.write()

    def write(self, changes=None):
        """Write the recipe with `changes` put over it; a value of None takes the key out."""
        self.recipe.write_text(yaml.safe_dump(_over(copy.deepcopy(RECIPE), changes or {}), sort_keys=False), encoding="utf-8")
        return self.recipe

    def data(self, **arrays):
        """Replace arrays of the data."""
        with np.load(self.folder / "digits.npz") as stored:
            kept = {name: stored[name] for name in stored.files}
        np.savez(self.folder / "digits.npz", **{name: array for name, array in {**kept, **arrays}.items() if array is not None})

    def weights(self, **arrays):
        """Replace weights of the model."""
        model = onnx.load(self.folder / "digits.onnx")
        for tensor in model.graph.initializer:
            if tensor.name in arrays:
                tensor.CopyFrom(numpy_helper.from_array(arrays[tensor.name], tensor.name))
        onnx.save(model, self.folder / "digits.onnx")


def _over(values, changes):
    for key, value in changes.items():
        if value is None:
            values.pop(key, None)
        elif isinstance(value, dict) and isinstance(values.get(key), dict):
            _over(values[key], value)
        else:
            values[key] = value
    return values


@dataclass(frozen=True)
class Digits:
    """Images, labels, and the weights of a network that reads them."""

    x: np.ndarray
    y: np.ndarray
    weights: dict


@pytest.fixture(scope="session")
def digits():
    """Images `[n, 64]` in 0..1 as float32 and labels `[n]`, the network's weights: random features and a linear layer fitted on the first 900."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    random = np.random.default_rng(0)
    w0, b0 = (random.normal(size=shape).astype(np.float32) / 4 for shape in ((64, 48), (48,)))
    hidden = np.maximum(x @ w0 + b0, 0)
    solved = np.linalg.lstsq(np.column_stack([hidden, np.ones(len(x))])[:900], np.eye(10)[y][:900], rcond=None)[0].astype(np.float32)
    return Digits(x, y, {"w0": w0, "b0": b0, "w1": solved[:-1], "b1": solved[-1]})


@pytest.fixture(scope="session")
def digits_model(digits):
    """The network: images `x` in, `embedding` `[N, 48]` and `logits` `[N, 10]` out, the logits first."""
    nodes = [
        helper.make_node("Gemm", ["x", "w0", "b0"], ["hidden"], name="dense/first"),
        helper.make_node("Relu", ["hidden"], ["embedding"], name="relu"),
        helper.make_node("Gemm", ["embedding", "w1", "b1"], ["logits"], name="dense/second"),
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", width]) for name, width in (("logits", 10), ("embedding", 48))]
    weights = [numpy_helper.from_array(array, name) for name, array in digits.weights.items()]
    graph = helper.make_graph(nodes, "digits", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 64])], outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


@pytest.fixture(scope="session")
def make_project(digits, digits_model):
    """Makes a `Project` in a folder."""

    def make(folder: Path) -> Project:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "digits.onnx").write_bytes(digits_model)
        np.savez(folder / "digits.npz", x=digits.x, y=digits.y)
        return Project(folder)

    return make


@pytest.fixture
def project(make_project, tmp_path, monkeypatch):
    """A project of the test's own. The first inference of each artifact, in a process of its own, is measured in `finished` alone."""
    from quant.engine import timing

    monkeypatch.setattr(timing, "measure_first_runs", lambda *_arguments, **_options: {})
    return make_project(tmp_path / "project")


@pytest.fixture(scope="session")
def finished(make_project, tmp_path_factory):
    """A run that is over, of three schemes, and its project and cache; not to be changed."""
    import quant

    folder = tmp_path_factory.mktemp("finished")
    project = make_project(folder / "project")
    project.write({"schemes": ["fp16", "int8-dynamic", "int8"], "evaluation": {"metrics": ["accuracy", {"kind": "top-k", "k": 3}]}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUANT_CACHE", str(folder / "cache"))
        run = quant.run(project.recipe, output=project.output)
    return Finished(project, run, folder / "cache")


@dataclass(frozen=True)
class Finished:
    """A run that is over."""

    project: Project
    run: object
    cache: Path


@pytest.fixture
def cli(capsys, monkeypatch):
    """Runs `quant` in this process."""

    def run(*arguments):
        from quant.cli import main

        monkeypatch.setattr(sys, "argv", ["quant", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        code = ended.value.code
        return Outcome(0 if code is None else code, printed.out, printed.err)

    return run


@pytest.fixture
def refused(cli, project):
    """Runs the project's recipe, which must be refused: exit code 2, a message, no traceback, and nothing in the output folder. Gives the message."""

    def run(changes=None, *arguments):
        if changes is not None:
            project.write(changes)
        before = sorted(project.output.rglob("*")) if project.output.exists() else None
        outcome = cli("run", project.recipe, "--output", project.output, *arguments)
        assert outcome.code == 2, outcome
        assert outcome.err.startswith("error: "), outcome.err
        assert "Traceback" not in outcome.err
        assert outcome.out == ""
        assert (sorted(project.output.rglob("*")) if project.output.exists() else None) == before, "something was left in the output folder"
        return outcome.err

    return run
