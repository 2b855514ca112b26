"""The whole of `build_engine.py` on a GPU that is not one."""

import json
import sys

import numpy as np
import pytest

from quant.targets import TARGETS
from quant.targets.nvidia.engine_host import command
from quant.targets.nvidia.engine_host.cuda import Cuda


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("quant.targets.nvidia.engine_host.timing.WARM_UP_MS", 0.0)
    monkeypatch.setattr("quant.targets.nvidia.engine_host.timing.LEAST_SECONDS", 0.0)


GEMM = {
    "Name": "gemm_myl0_1",
    "LayerType": "gemm",
    "Inputs": [{"Name": "x", "Datatype": "Half"}],
    "Constants": [{"Name": "w", "Datatype": "Half"}],
    "Outputs": [{"Name": "y", "Datatype": "Half"}],
    "Metadata": "[ONNX Layer: gemm]",
}


@pytest.fixture
def folder(tmp_path, fp16_gemm):
    """The folder of a small FP16 model, with reference inputs."""
    model, feeds = fp16_gemm
    TARGETS.make("tensorrt", {"workspace_mib": 64, "builder_optimization_level": 5}).export(model, tmp_path, scheme="fp16", samples=feeds)
    return tmp_path


def build(folder, gpu, monkeypatch, *arguments, library=None, **options):
    library = library or gpu.Library()
    trt = gpu.fake_trt(library, **{"layers": [GEMM], **options})
    monkeypatch.setitem(sys.modules, "tensorrt", trt)
    monkeypatch.setattr(command, "Cuda", lambda: Cuda(library))
    return command.main(arguments, folder=folder), trt


def test_an_engine_that_is_as_it_should_be_ends_with_0_and_leaves_everything_behind(folder, gpu, monkeypatch, capsys):
    code, trt = build(folder, gpu, monkeypatch)
    said = capsys.readouterr().out
    assert code == 0
    assert "building for sm89 with TensorRT 11.4.0" in said
    assert "layers: 1 of 1 run as planned" in said
    assert "agrees" in said
    assert "GPU compute: median 2 ms" in said
    assert {"model.engine", "layers.json", "build.log", "timing.cache", "result.json"} <= {p.name for p in folder.iterdir()}
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert (result["gpu"], result["outputs"][0]["agrees"], result["times"]["iterations"]) == ("sm89", True, 10)
    assert trt.said.network == 1  # strongly typed, which version 10 has to be told
    assert ("builder_optimization_level", 5) in trt.said.config
    assert ("set_memory_pool_limit", "MemoryPoolType.WORKSPACE", 64 << 20) in trt.said.config
    assert ("clear_flag", "BuilderFlag.TF32") in trt.said.config


def test_an_output_that_is_too_far_off_ends_with_1(folder, gpu, monkeypatch, capsys):
    code, _ = build(folder, gpu, monkeypatch, change=lambda array: array + np.float32(0.1))
    assert code == 1
    assert "DIFFERS" in capsys.readouterr().out


def test_a_layer_that_runs_otherwise_ends_with_1_and_is_named(folder, gpu, monkeypatch, capsys):
    floats = [{"Name": "x", "Datatype": "Float"}]
    code, _ = build(folder, gpu, monkeypatch, layers=[{**GEMM, "Inputs": floats, "Constants": floats}])
    assert code == 1
    assert "gemm   fp16     fp32  gemm" in capsys.readouterr().out


def test_a_layer_that_is_not_in_the_list_proves_nothing(folder, gpu, monkeypatch, capsys):
    code, _ = build(folder, gpu, monkeypatch, layers=[])
    assert code == 0
    assert "(not found)" in capsys.readouterr().out


def test_what_was_measured_goes_into_the_next_build(folder, gpu, monkeypatch):
    for times in (b"+times", b"+times+times"):
        build(folder, gpu, monkeypatch, "--no-run")
        assert (folder / "timing.cache").read_bytes() == times


def test_a_model_that_tensorrt_refuses_ends_with_2_and_the_reason(folder, gpu, monkeypatch, capsys):
    code, _ = build(folder, gpu, monkeypatch, refuses=True)
    assert code == 2
    assert capsys.readouterr().err == "error: Odd 'odd': no such operator\n"
    assert (folder / "build.log").is_file()


def test_a_gpu_without_the_formats_of_the_model_is_refused_before_building(folder, gpu, monkeypatch, capsys):
    settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    (folder / "settings.json").write_text(json.dumps({**settings, "formats": ["fp8"]}), encoding="utf-8")
    code, trt = build(folder, gpu, monkeypatch, library=gpu.Library(capability=(8, 0)))
    assert (code, trt.said.network) == (2, None)
    assert "this model needs fp8, which GPUs of compute capability sm80 do not have" in capsys.readouterr().err


def test_a_machine_without_a_driver_ends_with_2(folder, gpu, monkeypatch, capsys):
    code, _ = build(folder, gpu, monkeypatch, library=gpu.Library(driver=False))
    assert code == 2
    assert "CUDA driver version is insufficient" in capsys.readouterr().err


def test_a_machine_without_tensorrt_ends_with_2(folder, capsys):
    assert command.main(["--module", "no_such_module"], folder=folder) == 2
    assert capsys.readouterr().err == "error: No module named 'no_such_module'; pip install no-such-module\n"


def test_without_a_reference_nothing_is_compared_and_that_is_said(folder, gpu, monkeypatch, capsys):
    (folder / "reference.npz").unlink()
    code, _ = build(folder, gpu, monkeypatch)
    assert code == 0
    assert "outputs: not compared, there is no reference" in capsys.readouterr().out


@pytest.mark.parametrize(
    "case",
    [
        ({"hardware_compatibility_level": "ampere_plus"}, ("hardware_compatibility_level", "HardwareCompatibilityLevel.AMPERE_PLUS")),
        ({"version_compatible": True}, ("set_flag", "BuilderFlag.VERSION_COMPATIBLE")),
        ({"weight_streaming": True}, ("set_flag", "BuilderFlag.WEIGHT_STREAMING")),
        ({"refit": True}, ("set_flag", "BuilderFlag.REFIT")),
        ({"strip_plan": True}, ("set_flag", "BuilderFlag.REFIT_IDENTICAL")),
        ({"max_aux_streams": 0}, ("max_aux_streams", 0)),
    ],
)
def test_options_reach_the_builder(tmp_path, gpu, monkeypatch, fp16_gemm, case):
    (options, expected), (model, feeds) = case, fp16_gemm
    TARGETS.make("tensorrt", options).export(model, tmp_path, scheme="fp16", samples=feeds)
    code, trt = build(tmp_path, gpu, monkeypatch)
    assert code == 0
    assert expected in trt.said.config
    assert trt.said.refitted == ([str(tmp_path / "model.onnx")] if "strip_plan" in options else [])
