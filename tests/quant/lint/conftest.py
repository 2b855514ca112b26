"""Smallest graphs that break one rule each, TensorRT-RTX to ask about them, and the linter."""

import importlib.util
from pathlib import Path

import onnx
import pytest


def _load(name):
    spec = importlib.util.spec_from_file_location(f"lint_{name}", Path(__file__).parent / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_drawing, _oracle = _load("drawing"), _load("oracle")
CASES = [case for name in ("cases_quantizers", "cases_layers", "cases_types") for case in _load(name).cases(_drawing)]


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", CASES, ids=[case.name for case in CASES])


@pytest.fixture(scope="session")
def cases():
    return CASES


@pytest.fixture
def drawing():
    """A new graph to draw."""
    return _drawing.Drawing


@pytest.fixture(scope="session")
def rtx():
    """TensorRT-RTX, which is optional; without it, only the linter's half is tested."""
    pytest.importorskip("tensorrt_rtx_bindings", reason="TensorRT-RTX is not installed")
    oracle = _oracle.Oracle()
    yield oracle
    oracle.close()


@pytest.fixture
def lint(tmp_path):
    """Checks a model (a proto or a drawing); gives what was found. With `to`, mends it into that file."""
    from quant.lint.check import check

    def run(model, *, to=None, **options):
        path = tmp_path / "model.onnx"
        onnx.save(model.model() if hasattr(model, "model") else model, path)
        return check(path, mend_to=to, **options)

    return run
