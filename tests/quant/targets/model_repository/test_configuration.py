"""Configurations of engines that are not built here: TensorRT's, with CUDA graphs and an engine for each GPU; TorchScript's numbered names."""

import pytest

from quant.core.signature import Signature, TensorSpec
from quant.errors import TargetError
from quant.targets.model_repository.backends import BACKENDS
from quant.targets.model_repository.configuration import Served, configuration
from quant.targets.model_repository.options import RepositoryOptions
from quant.targets.model_repository.schema import has_schema, parsed
from quant.targets.model_repository.text import Word, as_text, entries
from quant.targets.model_repository.warmup import requests

IMAGES = Signature((TensorSpec("x", "float32", ("N", 3, 8, 8)),), (TensorSpec("y", "float32", ("N", 10)),))


@pytest.fixture(autouse=True)
def _schema():
    if not has_schema():
        pytest.skip("Triton's schema is not installed")


def read(backend, signature=IMAGES, *, most=None, accelerator=None, **options):
    kind = BACKENDS[backend]
    served = Served(kind, f"model{kind.suffix}", signature, RepositoryOptions(**options), kind.devices[0], most, accelerator)
    return parsed(configuration(served, requests(served, None, shapes={}, samples=())))


def test_tensorrt_replays_a_graph_of_every_preferred_batch_and_the_largest():
    config = read("tensorrt", max_batch_size=8, cuda_graphs=True, dynamic_batching={"preferred_batch_sizes": [4]})
    assert config.backend == "tensorrt"
    assert config.optimization.cuda.graphs
    found = [(spec.batch_size, {name: list(shape.dim) for name, shape in spec.input.items()}) for spec in config.optimization.cuda.graph_spec]
    assert found == [(4, {"x": [3, 8, 8]}), (8, {"x": [3, 8, 8]})]
    assert config.instance_group[0].kind == type(config.instance_group[0]).KIND_GPU


def test_graphs_of_a_model_with_other_open_lengths_are_left_to_triton():
    texts = Signature((TensorSpec("x", "int64", ("N", "L")),), (TensorSpec("y", "float32", ("N", 2)),))
    config = read("tensorrt", texts, cuda_graphs=True)
    assert config.optimization.cuda.graphs
    assert not config.optimization.cuda.graph_spec


def test_each_gpu_has_its_own_engine():
    config = read("tensorrt", compute_capabilities=["8.0", "8.9"])
    assert dict(config.cc_model_filenames) == {"8.0": "model.sm80.engine", "8.9": "model.sm89.engine"}


def test_an_engine_with_a_profile_takes_no_larger_batches():
    assert read("tensorrt", most=32).max_batch_size == 32
    with pytest.raises(TargetError, match="max_batch_size is 64, and the engine's profile ends at batches of 32"):
        read("tensorrt", most=32, max_batch_size=64)


def test_torchscript_goes_by_position():
    config = read("torch", warmup={"data": "zero"})
    assert (config.backend, config.default_model_filename) == ("pytorch", "model.pt")
    assert ([i.name for i in config.input], [o.name for o in config.output]) == (["INPUT__0"], ["OUTPUT__0"])
    assert list(config.model_warmup[0].inputs) == ["INPUT__0"]


def test_openvino_has_no_instances_on_a_gpu():
    with pytest.raises(TargetError, match="Triton's backend 'openvino' has no instances of kind 'gpu'\nhint: it has cpu"):
        read("openvino", instance_group={"kind": "gpu"})


def test_onnx_runtime_is_told_of_tensorrt_by_its_accelerator():
    config = read("onnxruntime", accelerator=("tensorrt", {"trt_engine_cache_enable": "1"}))
    [accelerator] = config.optimization.execution_accelerators.gpu_execution_accelerator
    assert (accelerator.name, dict(accelerator.parameters)) == ("tensorrt", {"trt_engine_cache_enable": "1"})


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (TensorSpec("x", "float32", None), "tensor 'x': Triton must be told the number of axes"),
        (TensorSpec("x", "complex64", (2,)), "tensor 'x': Triton has no type for complex64"),
    ],
)
def test_tensors_that_triton_cannot_be_told_of_are_refused(spec, said):
    with pytest.raises(TargetError, match=said):
        read("onnxruntime", Signature((spec,), IMAGES.outputs))


def test_text_is_read_back_as_it_was_meant():
    text = as_text({"name": 'quo"te\n', "max_batch_size": 3, "input": [{"dims": [1, -1], "data_type": Word("TYPE_BOOL")}], "metric_tags": entries({"a": "b"})})
    config = parsed(text)
    assert (config.name, config.max_batch_size, list(config.input[0].dims), dict(config.metric_tags)) == ('quo"te\n', 3, [1, -1], {"a": "b"})


def test_an_empty_list_is_left_out():
    assert as_text({"dims": [], "reshape": {}}) == "reshape {}\n"
