"""Small data sets in files, loaded as a recipe would."""

import json

import numpy as np
import pytest

from quant.core.signature import Signature, TensorSpec
from quant.data.load import load_data
from quant.recipe.schema import DataSpec


@pytest.fixture
def load(tmp_path):
    def load(*, trust_code=False, model_folder=None, **spec):
        def where(location):
            return "recipe.yaml:" + ".".join(map(str, location))

        return load_data(DataSpec.model_validate(spec), base=tmp_path, where=where, trust_code=trust_code, model_folder=model_folder)

    return load


@pytest.fixture
def npz(tmp_path):
    def npz(name="data.npz", **arrays):
        np.savez(tmp_path / name, **arrays)
        return name

    return npz


@pytest.fixture
def jsonl(tmp_path):
    def jsonl(rows, name="data.jsonl"):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return name

    return jsonl


@pytest.fixture
def signature():
    def signature(outputs=(("out", ("N", 2)),), **inputs):
        """`name=(dtype, axis, axis, ...)`."""
        specs = tuple(TensorSpec(name, dtype, tuple(shape)) for name, (dtype, *shape) in inputs.items())
        return Signature(specs, tuple(TensorSpec(name, "float32", shape) for name, shape in outputs))

    return signature
