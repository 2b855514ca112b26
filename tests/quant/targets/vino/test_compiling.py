"""What OpenVINO is told, and what it would do untold."""

import numpy as np
import pytest

from quant.errors import TargetError
from quant.targets.vino.compiling import GROUP, compile_model, settings

openvino = pytest.importorskip("openvino", reason="OpenVINO is an optional extra: pip install 'quant-toolkit[openvino]'")
HINT = "INFERENCE_PRECISION_HINT"


def doubled():
    from openvino import opset13 as ops

    x = ops.parameter([-1, 4], np.float32, name="x")
    return openvino.Model([ops.add(x, x)], [x])


def test_threads_are_bound_to_cores_only_when_they_take_all(monkeypatch):
    monkeypatch.setenv("QUANT_THREADS", "4")
    assert [settings(n)["ENABLE_CPU_PINNING"] for n in (1, 2, 4, 8)] == [False, False, True, True]
    monkeypatch.setenv("QUANT_THREADS", "1")
    assert settings(1)["ENABLE_CPU_PINNING"] is False


def test_float_layers_are_float_whatever_the_processor_would_rather_do():
    assert compile_model(doubled(), threads=1).get_property(HINT).get_type_name() == "f32"


def test_the_precision_cannot_be_left_to_the_file():
    """The day this fails, it can be: then artifacts should say it, as they say their groups."""
    model = doubled()
    model.set_rt_info("f32", ["runtime_options", HINT])
    model.set_rt_info("64", ["runtime_options", GROUP])
    untold = openvino.Core().get_property("CPU", HINT)
    if untold.get_type_name() == "f32":
        pytest.skip("on this CPU the default is f32 anyhow")
    compiled = openvino.Core().compile_model(model, "CPU")
    assert compiled.get_property(HINT) == untold
    assert compiled.get_property(GROUP) == 64


def test_what_cannot_be_compiled_is_told_with_its_place():
    with pytest.raises(TargetError, match=r"^a product: OpenVINO cannot compile the model: "):
        compile_model(doubled(), threads=1, where="a product", NO_SUCH_SETTING="1")
