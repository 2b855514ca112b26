"""TensorRT without a GPU: what is exported for one, and what is said of it; and with a GPU that is not one."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from pydantic import ValidationError

from quant.api import audit, run
from quant.core.documents import LayerChoice, PrecisionPlan
from quant.errors import TargetError
from quant.graph.runtime import Runtime
from quant.targets import TARGETS, Shapes
from quant.targets.nvidia.gpu import missing

RTX = pytest.mark.skipif(importlib.util.find_spec("tensorrt_rtx") is None, reason="TensorRT-RTX is not installed")
here = pytest.mark.skipif(missing("tensorrt") is None, reason="there is a GPU for TensorRT here")
FILES = {"README.txt", "build_engine.py", "expected_precisions.json", "model.onnx", "profiles.json", "settings.json", "trtexec.sh"}
REFERENCE = {"reference.npz", "tolerances.json"}


def gemm(dtype=TensorProto.FLOAT, rows=4):
    """A Gemm whose activations and weights are codes of `dtype`, or FP32."""
    random = np.random.default_rng(0)
    floats, operands, nodes = random.normal(size=(32, 64)).astype(np.float32), ["x", "w"], []
    weights = [numpy_helper.from_array(floats, "w")]
    if dtype != TensorProto.FLOAT:
        codes = helper.tensor_dtype_to_np_dtype(dtype)
        weights = [numpy_helper.from_array(np.clip(np.rint(floats * 30), -127, 127).astype(codes), "w"), numpy_helper.from_array(np.zeros((), codes), "z")]
        weights += [numpy_helper.from_array(np.float32(s), n) for n, s in (("sx", 0.03), ("sw", 1 / 30))]
        nodes = [helper.make_node("QuantizeLinear", ["x", "sx", "z"], ["xq"], "q"), helper.make_node("DequantizeLinear", ["xq", "sx", "z"], ["xd"], "x_dq")]
        nodes.append(helper.make_node("DequantizeLinear", ["w", "sw", "z"], ["wd"], "w_dq"))
        operands = ["xd", "wd"]
    nodes.append(helper.make_node("Gemm", operands, ["y"], "gemm", transB=1))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, n]) for name, n in (("x", 64), ("y", 32))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    return ir.from_proto(helper.make_model(graph, ir_version=11, opset_imports=[helper.make_opsetid("", 23)]))


def feeds(rows=4):
    return [{"x": np.random.default_rng(seed).normal(size=(rows, 64)).astype(np.float32)} for seed in range(2)]


PLAN = PrecisionPlan(scheme="int8", base="int8", layers=(LayerChoice(layer="gemm", op="Gemm", format="int8", reason="test"),))


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr("quant.targets.tensorrt.missing", lambda _module: "TensorRT is not installed here")


@pytest.fixture
def a_gpu(monkeypatch):
    """A host with a GPU, whose engines are empty files."""
    monkeypatch.setattr("quant.targets.tensorrt.missing", lambda _module: None)
    monkeypatch.setattr("quant.targets.tensorrt.Cuda", type("Gpu", (), {"capability": lambda _self: "sm80"}))
    asked = []

    def build(module, model, files, profile, settings):
        asked.append((module, model.name, profile, settings))
        ((capability, parts),) = files.items()
        assert capability == ""
        parts.engine.write_bytes(b"engine")
        parts.log.write_text("", encoding="utf-8")
        row = {"name": "gemm_0", "kind": "gemm", "inputs": ["Int8"], "constants": ["Int8"], "outputs": ["Float"], "nodes": ["gemm"]}
        parts.layers.write_text(json.dumps([row]), encoding="utf-8")

    monkeypatch.setattr("quant.targets.tensorrt.build_engines", build)
    return asked


@pytest.mark.usefixtures("no_gpu")
def test_the_export_holds_all_that_a_gpu_host_needs_and_each_file_has_a_digest(tmp_path):
    artifact = TARGETS.make("tensorrt").export(gemm(TensorProto.INT8), tmp_path, scheme="int8", samples=feeds())
    names = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert set(artifact.files) == names
    assert FILES | REFERENCE | {"model.onnx.data", "engine_host/command.py"} == {n for n in names if not n.startswith("engine_host/")} | {
        "engine_host/command.py"
    }
    assert artifact.size_bytes == sum((tmp_path / n).stat().st_size for n in ("model.onnx", "model.onnx.data"))
    with np.load(tmp_path / "reference.npz", allow_pickle=False) as kept:
        runtime = Runtime(tmp_path / "model.onnx", optimize=False)
        for i, feed in enumerate(feeds()):
            np.testing.assert_array_equal(kept[f"{i}/input/x"], feed["x"])
            np.testing.assert_array_equal(kept[f"{i}/output/y"], runtime.run(feed)["y"])


@pytest.mark.usefixtures("no_gpu")
def test_the_same_graph_and_data_give_the_same_bytes(tmp_path):
    made = [TARGETS.make("tensorrt").export(gemm(TensorProto.INT8), tmp_path / n, scheme="int8", samples=feeds()) for n in ("first", "second")]
    assert made[0] == made[1]


@pytest.mark.usefixtures("no_gpu")
def test_without_samples_there_is_no_reference(tmp_path):
    artifact = TARGETS.make("tensorrt").export(gemm(), tmp_path, scheme="fp32")
    assert not REFERENCE & set(artifact.files)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(("dtype", "planned"), [(TensorProto.INT8, "int8"), (TensorProto.FLOAT8E4M3FN, "fp8"), (TensorProto.FLOAT, "fp32")])
def test_expected_precisions_are_those_that_the_graph_says(tmp_path, dtype, planned):
    TARGETS.make("tensorrt").export(gemm(dtype), tmp_path, scheme="x")
    (row,) = json.loads((tmp_path / "expected_precisions.json").read_text(encoding="utf-8"))
    dequantizers = [] if planned == "fp32" else ["w_dq", "x_dq"]
    assert row == {"layer": "gemm", "op": "Gemm", "node": "gemm", "planned": planned, "weighted": True, "dequantizers": dequantizers}


@pytest.mark.usefixtures("no_gpu")
def test_profile_and_options_are_in_the_line_of_trtexec(tmp_path):
    options = {"workspace_mib": 512, "builder_optimization_level": 4, "hardware_compatibility_level": "ampere_plus", "version_compatible": True}
    options |= {
        "exclude_lean_runtime": True,
        "weight_streaming": True,
        "refit": True,
        "strip_plan": True,
        "tf32": True,
        "max_aux_streams": 1,
        "timing_cache": None,
    }
    shapes = {"x": Shapes((1, 64), (4, 64), (8, 64))}
    TARGETS.make("tensorrt", options).export(gemm(rows="N"), tmp_path, scheme="fp32", shapes=shapes)
    words = (tmp_path / "trtexec.sh").read_text(encoding="utf-8").replace("\\\n", " ").split("exec trtexec", 1)[1].split()
    shape_words = ["--minShapes=x:1x64", "--optShapes=x:4x64", "--maxShapes=x:8x64"]
    flags = ["--versionCompatible", "--excludeLeanRuntime", "--allowWeightStreaming", "--refit", "--stripWeights"]
    values = ["--memPoolSize=workspace:512", "--builderOptimizationLevel=4", "--maxAuxStreams=1", "--hardwareCompatibilityLevel=ampere+"]
    ends = ["--profilingVerbosity=detailed", "--exportLayerInfo=layers.json", '"$@"']
    assert words == ["--onnx=model.onnx", "--stronglyTyped", "--saveEngine=model.engine", *shape_words, *flags, *values, *ends]
    assert json.loads((tmp_path / "profiles.json").read_text(encoding="utf-8")) == {"x": {"min": [1, 64], "opt": [4, 64], "max": [8, 64]}}
    assert subprocess.run(["sh", "-n", tmp_path / "trtexec.sh"], check=False).returncode == 0


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("tensorrt-rtx", {"compute_capabilities": ["sm89", "sm80"]}),
        ("tensorrt", {"compute_capability": "sm80"}),
        ("tensorrt", {"compute_capability": "sm90", "hardware_compatibility_level": "ampere_plus"}),
    ],
)
def test_fp8_is_refused_for_gpus_without_it_before_anything_is_built(tmp_path, monkeypatch, kind, options):
    def never(*_args, **_kwargs):
        raise AssertionError("an engine was built")

    monkeypatch.setattr("quant.targets.tensorrt_rtx.build_engines", never)
    monkeypatch.setattr("quant.targets.tensorrt.build_engines", never)
    with pytest.raises(TargetError, match="GPUs of compute capability sm80 have no fp8") as caught:
        TARGETS.make(kind, options).export(gemm(TensorProto.FLOAT8E4M3FN), tmp_path, scheme="fp8")
    assert "another scheme" in caught.value.hint
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("capability", ["sm89", "sm90", "sm100", "sm120"])
def test_fp8_is_taken_for_gpus_that_have_it(tmp_path, capability):
    artifact = TARGETS.make("tensorrt", {"compute_capability": capability}).export(gemm(TensorProto.FLOAT8E4M3FN), tmp_path, scheme="fp8")
    assert json.loads((tmp_path / "settings.json").read_text(encoding="utf-8"))["formats"] == ["fp8"]
    assert artifact.main == "model.onnx"


@pytest.mark.usefixtures("a_gpu")
def test_the_gpu_that_is_here_is_held_to_as_well(tmp_path):
    with pytest.raises(TargetError, match="sm80 have no fp8"):
        TARGETS.make("tensorrt").export(gemm(TensorProto.FLOAT8E4M3FN), tmp_path, scheme="fp8")


@pytest.mark.usefixtures("no_gpu")
def test_without_an_engine_nothing_is_audited_and_the_reason_is_said(tmp_path):
    target = TARGETS.make("tensorrt")
    artifact = target.export(gemm(TensorProto.INT8), tmp_path, scheme="int8")
    found = target.audit(artifact, tmp_path, PLAN, {})
    assert (found.rows, found.unaudited) == ((), "no engine was built here (TensorRT is not installed here); build_engine.py audits it on a GPU host")
    assert target.ahead_of_time
    assert "no engine was built here" in target.emulates("int8")
    assert "TensorRT is not installed here" in target.available().note


@pytest.mark.usefixtures("no_gpu")
def test_the_session_computes_the_very_graph_that_the_engine_is_built_from(tmp_path):
    target = TARGETS.make("tensorrt")
    artifact = target.export(gemm(TensorProto.INT8), tmp_path, scheme="int8")
    (feed, _) = feeds()
    found = target.session(artifact, tmp_path, threads=1).run(feed)["y"]
    np.testing.assert_array_equal(found, Runtime(tmp_path / "model.onnx", optimize=False).run(feed)["y"])


def test_where_there_is_a_gpu_the_engine_is_built_audited_and_weighed(tmp_path, a_gpu):
    target = TARGETS.make("tensorrt", {"timing_cache": "/var/cache/times", "builder_optimization_level": 5})
    assert (target.ahead_of_time, target.emulates("int8")) == (False, None)
    artifact = target.export(gemm(TensorProto.INT8), tmp_path, scheme="int8")
    ((module, model, profile, settings),) = a_gpu
    assert (module, model, profile) == ("tensorrt", "model.onnx", {})
    assert (settings["timing_cache"], settings["builder_optimization_level"]) == ("/var/cache/times", 5)
    assert artifact.size_bytes == len(b"engine")
    assert not {"model.engine", "build.log", "layers.json"} & set(artifact.files)
    (row,) = target.audit(artifact, tmp_path, PLAN, {}).rows
    assert (row.runs, row.kernel, row.agrees) == ("int8", "gemm", True)


def test_a_relative_timing_cache_lies_in_the_folder_of_the_artifact(tmp_path, a_gpu):
    TARGETS.make("tensorrt").export(gemm(), tmp_path, scheme="fp32")
    assert a_gpu[0][3]["timing_cache"] == str(tmp_path / "timing.cache")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compute_capability": "sm70"}, "sm75"),
        ({"builder_optimization_level": 6}, "less than or equal to 5"),
        ({"hardware_compatibility_level": "all"}, "ampere_plus"),
        ({"exclude_lean_runtime": True}, "exclude_lean_runtime needs version_compatible"),
        ({"timing_cache": ""}, "at least 1 character"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, message):
    with pytest.raises(ValidationError, match=message):
        TARGETS.make("tensorrt", options)


def build_engine(folder, *arguments):
    command = [sys.executable, "-P", folder / "build_engine.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder.parent)


@pytest.fixture
def exported(tmp_path, no_gpu):
    del no_gpu
    TARGETS.make("tensorrt").export(gemm(TensorProto.INT8), tmp_path / "files", scheme="int8", samples=feeds())
    return tmp_path / "files"


# TensorRT-RTX has the same form, and builds without a GPU: what is exported is really run.
@RTX
def test_what_is_exported_builds_and_audits_with_tensorrt_rtx(exported):
    done = build_engine(exported, "--module", "tensorrt_rtx", "--compute-capability", "sm89")
    assert (done.returncode, done.stderr) == (0, "")
    assert "layers: 1 of 1 run as planned" in done.stdout
    assert "outputs: not compared, the engine was not run" in done.stdout
    (row,) = json.loads((exported / "result.json").read_text(encoding="utf-8"))["audit"]
    assert (row["layer"], row["runs"], row["kernel"], row["agrees"]) == ("gemm", "int8", "gemm", True)
    assert (exported / "model.engine").stat().st_size > 1000
    assert json.loads((exported / "layers.json").read_text(encoding="utf-8"))


@RTX
def test_what_is_exported_tells_a_layer_that_runs_otherwise(exported):
    path = exported / "expected_precisions.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"planned": "int8"', '"planned": "fp8"'), encoding="utf-8")
    done = build_engine(exported, "--module", "tensorrt_rtx", "--compute-capability", "sm89")
    assert done.returncode == 1
    assert "gemm   fp8      int8  gemm" in done.stdout


def test_what_is_exported_says_what_it_needs(exported):
    done = build_engine(exported, "--module", "no_such_module")
    assert (done.returncode, done.stderr) == (2, "error: No module named 'no_such_module'; pip install no-such-module\n")


def test_what_is_exported_imports_nothing_but_numpy_and_itself(exported):
    script = "import sys; sys.modules['tensorrt'] = None; sys.path.insert(0, '.'); import engine_host.command, engine_host.running, engine_host.comparing\n"
    script += "print(*sorted({m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)))"
    where = f"import sys; sys.path.append({str(Path(np.__file__).parents[1])!r})\n"
    found = subprocess.run([sys.executable, "-S", "-c", where + script], capture_output=True, text=True, check=True, cwd=exported)
    assert {name for name in found.stdout.split() if not name.startswith("_")} <= {"engine_host", "numpy", "tensorrt"}


@here
def test_a_whole_run_says_everywhere_that_nothing_was_audited(project):
    project.write({"targets": ["tensorrt"], "schemes": ["int8"]})
    report = run(project.recipe, output=project.output).report
    (candidate,) = report.candidates
    assert (candidate.status, candidate.audit, candidate.latency_ratio) == ("measured", (), None)
    assert candidate.unaudited.startswith("no engine was built here")
    assert "(emulated, not audited)" in report.sentence
    texts = {name: (project.output / name).read_text(encoding="utf-8") for name in ("report.md", "report.html", "report.json")}
    assert "Not audited: no engine was built here" in texts["report.md"]
    assert "Not audited: no engine was built here" in texts["report.html"]
    assert "run every layer as planned" not in "".join(texts.values())
    files = project.output / "artifacts" / "tensorrt" / "int8"
    with np.load(files / "reference.npz", allow_pickle=False) as kept:
        assert {name.split("/")[0] for name in kept.files} == {str(i) for i in range(TARGETS.get("tensorrt").reference_samples)}
    with pytest.raises(TargetError, match="there is nothing to audit: no engine was built here"):
        audit(files)


@pytest.mark.usefixtures("no_gpu")
def test_convolutions_are_in_fp8_only_for_gpus_that_have_kernels_for_it():
    operators = {c: TARGETS.make("tensorrt", {"compute_capability": c}).dialect.fp8.operators for c in ("sm90", "sm100")}
    assert operators["sm90"] - operators["sm100"] == {"Conv"}
