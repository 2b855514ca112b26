"""Importing the notebook's room brings nothing heavy."""

import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]


def test_importing_quant_notebook_is_light():
    script = "import sys, quant.notebook; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=TOP).stdout.split()
    assert not {"torch", "onnx", "onnxruntime", "numpy", "pydantic", "plotly", "pandas", "ipywidgets", "IPython", "PIL"} & set(loaded)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    import quant.notebook

    with pytest.raises(AttributeError, match="no attribute 'Exploder'"):
        quant.notebook.Exploder  # noqa: B018 - looking is enough
    assert "Explorer" in dir(quant.notebook)
