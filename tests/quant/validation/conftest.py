"""A run whose artifact is validated: a network of a convolution and four products on scikit-learn's digits, with two outputs."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper, save

import quant

LAYERS = ("conv", "dense/first", "dense/second", "dense/third", "dense/last")
RECIPE = {
    "version": 1,
    "name": "digits",
    "model": {"source": "digits.onnx"},
    "data": {"source": "digits.npz", "label": {"column": "y"}, "splits": {"calibration": 64, "evaluation": 400}},
    "schemes": ["int8"],
    "transforms": [],
    "evaluation": {"metrics": ["accuracy"], "batch_size": 32, "agreement_samples": 8},
    "gate": {"max_drop": 0.05},
    "latency": {"requests": 4, "warmup": 1},
    "limits": {"load_s": 0.3, "load_threads": 4},
}


@dataclass(frozen=True)
class Delivered:
    """A finished run, the recipe that it was made by, and a folder in which validations keep what they make anew."""

    recipe: Path
    folder: Path
    work: Path

    def validate(self, folder=None, **told):
        """Validate the run, or a copy of it in `folder`."""
        from quant.validation.validate import validate

        return validate(folder or self.folder, **{"data": self.recipe, "work": self.work, **told})

    def copy(self, place):
        """A copy of the run to be broken."""
        shutil.copytree(self.folder, place)
        return place


def write_model(path):
    """Random features, and a last layer fitted on the first 900 digits."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    random = np.random.default_rng(0)
    weights = {"conv.w": random.normal(size=(8, 1, 3, 3)) / 2, "conv.b": random.normal(size=8) / 4}
    for name, shape in (("first", (288, 64)), ("second", (64, 64)), ("third", (64, 64))):
        weights |= {f"{name}.w": random.normal(size=shape) / np.sqrt(shape[0] / 2), f"{name}.b": random.normal(size=shape[1]) / 4}
    weights = {name: array.astype(np.float32) for name, array in weights.items()}
    windows = np.lib.stride_tricks.sliding_window_view(x[:, 0], (3, 3), axis=(1, 2))
    hidden = np.maximum(np.einsum("nhwij,cij->nchw", windows, weights["conv.w"][:, 0]) + weights["conv.b"][:, None, None], 0).reshape(len(x), -1)
    for name in ("first", "second", "third"):
        hidden = np.maximum(hidden @ weights[f"{name}.w"] + weights[f"{name}.b"], 0)
    solved = np.linalg.lstsq(np.column_stack([hidden, np.ones(len(x))])[:900], np.eye(10)[y][:900], rcond=None)[0].astype(np.float32)
    weights |= {"last.w": np.ascontiguousarray(solved[:-1]), "last.b": solved[-1]}
    save(_model(weights), path)
    np.savez(path.with_name("digits.npz"), x=x, y=y)


def _model(weights):
    nodes = [
        helper.make_node("Conv", ["x", "conv.w", "conv.b"], ["maps"], name="conv"),
        helper.make_node("Relu", ["maps"], ["positive"], name="relu"),
        helper.make_node("Flatten", ["positive"], ["flat"], name="flatten"),
    ]
    before = "flat"
    for name in ("first", "second", "third"):
        last = "embedding" if name == "third" else f"{name}.out"
        nodes.append(helper.make_node("Gemm", [before, f"{name}.w", f"{name}.b"], [f"{name}.sum"], name=f"dense/{name}"))
        nodes.append(helper.make_node("Relu", [f"{name}.sum"], [last], name=f"relu/{name}"))
        before = last
    nodes.append(helper.make_node("Gemm", [before, "last.w", "last.b"], ["logits"], name="dense/last"))
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", width]) for name, width in (("logits", 10), ("embedding", 64))]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1, 8, 8])]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    return helper.make_model(helper.make_graph(nodes, "digits", inputs, outputs, tensors), opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def write_recipe(folder, **changes):
    """The recipe in `folder`, with sections replaced."""
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(RECIPE | changes, sort_keys=False), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def delivered(tmp_path_factory):
    """A run that passed."""
    folder = tmp_path_factory.mktemp("delivered")
    write_model(folder / "digits.onnx")
    recipe = write_recipe(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUANT_CACHE", str(folder / "cache"))
        run = quant.run(recipe, output=folder / "out")
    assert run.report.verdict == "pass", run.report.sentence
    return Delivered(recipe, folder / "out", folder / "work")
