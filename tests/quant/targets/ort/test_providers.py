"""ONNX Runtime's providers for GPUs, as far as a machine without one can see: what they are told, and what is said when they are missing."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper
from pydantic import ValidationError

from quant.core.documents import Artifact, LayerChoice, PrecisionPlan
from quant.core.formats import INT8
from quant.errors import TargetError
from quant.targets import TARGETS
from quant.targets.ort.providers import ProviderOptions, provider_list

TENSORRT = {
    "provider": "tensorrt",
    "device_id": 1,
    "engine_cache": "engines",
    "timing_cache": "timings",
    "workspace_mib": 2,
    "builder_optimization_level": 4,
    "cuda_graph": True,
    "hardware_compatible": True,
    "detailed_build_log": True,
    "context_model": True,
    "weight_stripped": True,
    "profiles": {"x": {"min": [1, 3], "opt": [4, 3], "max": [8, 3]}, "m": {"min": [1], "opt": [2], "max": [2]}},
}


def graph(*nodes, dtype=TensorProto.FLOAT, weights=()):
    x, y = (helper.make_tensor_value_info(name, dtype, ["N", 3]) for name in "xy")
    made = helper.make_model(helper.make_graph(list(nodes), "g", [x], [y], list(weights)), opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(made, full_check=True)
    return ir.from_proto(made)


def test_every_option_of_tensorrt_has_its_name_in_onnx_runtime():
    [(first, settings), (second, cuda), (third, cpu)] = provider_list(ProviderOptions.model_validate(TENSORRT))
    assert (first, second, third) == ("TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider")
    assert settings == {
        "device_id": "1",
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": "engines",
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": "timings",
        "trt_max_workspace_size": "2097152",
        "trt_builder_optimization_level": "4",
        "trt_cuda_graph_enable": "1",
        "trt_engine_hw_compatible": "1",
        "trt_detailed_build_log": "1",
        "trt_dump_ep_context_model": "1",
        "trt_weight_stripped_engine_enable": "1",
        "trt_profile_min_shapes": "x:1x3,m:1",
        "trt_profile_opt_shapes": "x:4x3,m:2",
        "trt_profile_max_shapes": "x:8x3,m:2",
    }
    assert (cuda, cpu) == ({"device_id": "1"}, {})


def test_nothing_is_said_where_the_providers_own_default_will_do():
    assert provider_list(ProviderOptions(provider="tensorrt"))[0] == ("TensorrtExecutionProvider", {})
    assert provider_list(ProviderOptions()) == [("CPUExecutionProvider", {})]


def test_cuda_has_its_own_name_for_graphs():
    assert provider_list(ProviderOptions(provider="cuda", cuda_graph=True))[0] == ("CUDAExecutionProvider", {"enable_cuda_graph": "1"})


def test_older_tensorrt_is_allowed_the_types_that_the_graph_has():
    options = ProviderOptions(provider="tensorrt")
    scale = helper.make_tensor("s", TensorProto.FLOAT, [], [0.1])
    pair = graph(
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"], output_dtype=3), helper.make_node("DequantizeLinear", ["q", "s"], ["y"]), weights=[scale]
    )
    cast = graph(helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16), helper.make_node("Cast", ["h"], ["y"], to=TensorProto.FLOAT))
    assert provider_list(options, graph(helper.make_node("Relu", ["x"], ["y"])))[0][1] == {}
    assert provider_list(options, pair)[0][1] == {"trt_int8_enable": "1"}
    assert provider_list(options, cast)[0][1] == {"trt_fp16_enable": "1"}
    assert provider_list(options, graph(helper.make_node("Relu", ["x"], ["y"]), dtype=TensorProto.FLOAT16))[0][1] == {"trt_fp16_enable": "1"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"engine_cache": "x"}, "provider 'cpu' has no option 'engine_cache'"),
        ({"provider": "cuda", "workspace_mib": 3}, "provider 'cuda' has no option 'workspace_mib'"),
        ({"device_id": 0}, "provider 'cpu' has no option 'device_id'"),
        ({"provider": "rocm"}, "provider"),
    ],
)
def test_options_of_another_provider_are_refused(options, said):
    with pytest.raises(ValidationError, match=said):
        TARGETS.get("onnxruntime").Options.model_validate(options)


def test_the_dialect_is_that_of_the_provider():
    tensorrt, cuda = (TARGETS.make("onnxruntime", {"provider": name}) for name in ("tensorrt", "cuda"))
    assert (tensorrt.dialect.activations, tensorrt.dialect.body, tensorrt.dialect.integer_bias) == (INT8, "fp16", frozenset())
    assert tensorrt.dialect == TARGETS.make("tensorrt-rtx").dialect
    assert not cuda.dialect.integer
    assert not cuda.dialect.dynamic


def test_each_provider_says_what_it_emulates():
    said = {name: TARGETS.make("onnxruntime", {"provider": name}).emulates for name in ("cpu", "cuda", "tensorrt")}
    assert "computes FP16 in FP32" in said["cpu"]("fp16")
    assert said["cuda"]("fp16") is None
    assert "has no kernels for int8" in said["cuda"]("int8")
    assert said["tensorrt"]("int8") is None


@pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
def test_a_provider_that_this_build_lacks_is_said_with_how_to_get_it(provider, monkeypatch):
    import onnxruntime as ort

    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    here = TARGETS.make("onnxruntime", {"provider": provider}).available()
    wanted = {"cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}[provider]
    assert here.reason == f"this build of ONNX Runtime has no {wanted}; it has CPUExecutionProvider"
    assert here.install == f"pip install onnxruntime-gpu=={ort.__version__} in place of onnxruntime, with a GPU"


class Started:
    """A session that ONNX Runtime could start with `names`."""

    def __init__(self, names):
        self.names = names
        self.asked = None

    def __call__(self, _source, _options, *, providers):
        self.asked = providers
        return self

    def get_providers(self):
        return self.names


@pytest.fixture
def written(tmp_path):
    target = TARGETS.make("onnxruntime", TENSORRT)
    return target, target.export(graph(helper.make_node("Relu", ["x"], ["y"])), tmp_path, scheme="fp32"), tmp_path


def test_a_session_is_given_the_providers_with_their_settings(written, monkeypatch):
    import onnxruntime as ort

    target, artifact, folder = written
    started = Started(["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"])
    monkeypatch.setattr(ort, "InferenceSession", started)
    target.session(artifact, folder, threads=1)
    assert started.asked == provider_list(target.options)


def test_onnx_runtime_falling_back_in_silence_is_refused(written, monkeypatch):
    import onnxruntime as ort

    target, artifact, folder = written
    monkeypatch.setattr(ort, "InferenceSession", Started(["CPUExecutionProvider"]))
    with pytest.raises(TargetError, match="could not start TensorrtExecutionProvider, and would run the model with CPUExecutionProvider"):
        target.session(artifact, folder, threads=1)


def test_what_is_within_tensorrt_is_not_claimed_to_be_seen(written):
    target, artifact, folder = written
    plan = PrecisionPlan(scheme="int8", base="int8", layers=(LayerChoice(layer="conv", op="Conv", format="int8", reason="test"),))
    [row] = target.audit(artifact, folder, plan, {"conv": "y"}).rows
    assert (row.runs, row.kernel, row.agrees) == ("unknown", "(within TensorRT)", False)


def test_the_cpu_is_what_runs_when_nothing_is_said(tmp_path):
    target = TARGETS.make("onnxruntime")
    artifact = target.export(graph(helper.make_node("Relu", ["x"], ["y"])), tmp_path, scheme="fp32")
    session = target.session(artifact, tmp_path, threads=1)
    assert session.providers == ("CPUExecutionProvider",)
    np.testing.assert_array_equal(session.run({"x": np.array([[-1, 0, 2]], np.float32)})["y"], [[0, 0, 2]])
    assert isinstance(artifact, Artifact)


def test_triton_is_told_of_tensorrt_within_onnx_runtime(tmp_path):
    pytest.importorskip("tritonclient", reason="Triton's schema is not installed")
    from quant.targets.model_repository.schema import parsed

    target = TARGETS.make("triton", {"engine": {"kind": "onnxruntime", **TENSORRT}, "instance_group": {"count": 2}})
    target.export(graph(helper.make_node("Relu", ["x"], ["y"])), tmp_path, scheme="fp32")
    config = parsed((tmp_path / "model/config.pbtxt").read_text())
    [accelerator] = config.optimization.execution_accelerators.gpu_execution_accelerator
    assert accelerator.name == "tensorrt"
    assert accelerator.parameters["trt_max_workspace_size"] == "2097152"
    assert "device_id" not in accelerator.parameters
    assert config.instance_group[0].kind == type(config.instance_group[0]).KIND_GPU
    assert config.max_batch_size == 2, "the smallest of the profiles' largest batches"
