import ctypes

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from quant.targets.nvidia.engine_host import cuda as cuda_module
from quant.targets.nvidia.engine_host.building import make_log
from quant.targets.nvidia.engine_host.cuda import Cuda, CudaError
from quant.targets.nvidia.engine_host.running import Engine, EngineError

WEIGHTS = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def model(tmp_path):
    """`y = x @ WEIGHTS + n`, with any number of rows."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Cast", ["n"], ["f"], to=1), helper.make_node("Add", ["m", "f"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4]), helper.make_tensor_value_info("n", TensorProto.INT64, [1])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])]
    made = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(WEIGHTS, "w")]), ir_version=10)
    made.opset_import[0].version = 20
    onnx.save(made, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def engine_of(gpu, model, *, library=None, options=None, **named):
    library = library or gpu.Library()
    trt = gpu.fake_trt(library, **(options or {}))
    return Engine(trt, make_log(trt), str(model).encode(), cuda=Cuda(library), **named), library, trt


def feed(rows, seed=0):
    return {"x": np.random.default_rng(seed).normal(size=(rows, 4)).astype(np.float32), "n": np.array([seed])}


@pytest.mark.parametrize("cuda_graph", [True, False])
def test_every_batch_gives_its_own_outputs_whatever_its_size(gpu, model, cuda_graph):
    engine, _, _ = engine_of(gpu, model, cuda_graph=cuda_graph)
    assert (engine.inputs, engine.outputs) == (("x", "n"), ("y",))
    for rows, seed in ((2, 1), (5, 2), (2, 3), (0, 4)):
        given = feed(rows, seed)
        np.testing.assert_allclose(engine.run(given)["y"], given["x"] @ WEIGHTS + seed, rtol=1e-5)


def test_a_graph_is_captured_once_for_each_shape_after_one_plain_inference(gpu, model):
    engine, library, _ = engine_of(gpu, model)
    for rows in (2, 2, 1, 2):
        engine.run(feed(rows))
    order = [c for c in library.calls if c.startswith(("execute", "cudaStreamBegin", "cudaStreamEnd", "cudaGraphInst", "cudaGraphLaunch"))]
    capture = ["execute_async_v3", "cudaStreamBeginCapture", "execute_async_v3", "cudaStreamEndCapture", "cudaGraphInstantiateWithFlags", "cudaGraphLaunch"]
    assert order == [*capture, "cudaGraphLaunch", *capture, "cudaGraphLaunch"]


def test_a_larger_batch_moves_its_memory_and_forgets_graphs_with_the_old_addresses(gpu, model):
    engine, library, _ = engine_of(gpu, model)
    engine.run(feed(2))
    before = len(library.memory)
    engine.run(feed(8))
    assert len(library.memory) == before
    assert library.calls.count("cudaFree") == 2
    given = feed(2, 7)
    np.testing.assert_allclose(engine.run(given)["y"], given["x"] @ WEIGHTS + 7, rtol=1e-5)
    assert library.calls.count("cudaStreamBeginCapture") == 3


def test_an_input_that_the_engine_reads_on_the_host_is_left_there(gpu, model):
    engine, library, _ = engine_of(gpu, model, options={"host_inputs": ("n",)})
    for seed in (1, 2):
        given = feed(2, seed)
        np.testing.assert_allclose(engine.run(given)["y"], given["x"] @ WEIGHTS + seed, rtol=1e-5)
    assert len(library.memory) == 2


def test_a_shape_that_the_engine_is_not_built_for_is_told(gpu, model):
    engine, _, _ = engine_of(gpu, model)
    with pytest.raises(EngineError, match=r"not built for 'x' of shape \[2, 5\]"):
        engine.run({"x": np.zeros((2, 5), np.float32), "n": np.array([0])})


def test_memory_is_given_back_with_the_engine(gpu, model):
    engine, library, _ = engine_of(gpu, model)
    engine.run(feed(2))
    assert library.memory
    del engine
    assert not library.memory


def test_weights_are_put_into_an_engine_without_any(gpu, model):
    _, _, trt = engine_of(gpu, model, weights_from=model)
    assert trt.said.refitted == [str(model)]


def test_inferences_are_timed_between_events(gpu, model, monkeypatch):
    engine, library, _ = engine_of(gpu, model)
    monkeypatch.setattr("quant.targets.nvidia.engine_host.timing.WARM_UP_MS", 0.0)
    monkeypatch.setattr("quant.targets.nvidia.engine_host.timing.LEAST_SECONDS", 0.0)
    times = engine.time(feed(2))
    assert (times.iterations, times.compute.median) == (10, 2.0)
    last = library.calls[-5:]
    assert last == ["cudaEventRecord", "cudaGraphLaunch", "cudaEventRecord", "cudaStreamSynchronize", "cudaEventElapsedTime"]


def test_cuda_says_what_is_wrong_in_its_own_words(gpu):
    with pytest.raises(CudaError, match=r"cudaGetDeviceCount: CUDA driver version is insufficient for CUDA runtime version \(error 35\)"):
        Cuda(gpu.Library(driver=False)).devices()


def test_the_capability_of_the_gpu_is_read(gpu):
    assert Cuda(gpu.Library(capability=(12, 0))).capability() == "sm120"


def test_without_the_library_it_says_what_is_missing(monkeypatch):
    def nothing(_name):
        raise OSError

    monkeypatch.setattr(ctypes, "CDLL", nothing)
    monkeypatch.setattr(cuda_module, "_in_wheels", lambda: iter(()))
    with pytest.raises(CudaError, match="libcudart"):
        Cuda()
