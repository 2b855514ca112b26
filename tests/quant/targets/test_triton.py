"""A model repository: its layout, its configuration as Triton's own schema reads it, and the artifact within."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from pydantic import ValidationError

from quant.errors import QuantError, RecipeError, TargetError
from quant.graph.runtime import Runtime
from quant.targets import TARGETS, Availability, Shapes, TakesSamples
from quant.targets.model_repository import schema
from quant.targets.model_repository.backends import BACKENDS, REFUSED
from quant.targets.model_repository.schema import parsed

SPEC = importlib.util.spec_from_file_location("zoo", Path(__file__).parents[1] / "graph" / "zoo.py")
zoo = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(zoo)


@pytest.fixture(scope="module", autouse=True)
def has_schema():
    pytest.importorskip("tritonclient", reason="Triton's schema is not installed")


def two(batch="N", *, other=None):
    """Two inputs `a` [batch, 3, length] and `b` [other] and outputs: their product [.., 3, length] and the sum of `b`'s rows [..]."""
    return ir.from_proto(
        zoo.model(
            [zoo.node("Mul", "a b", "y"), zoo.node("ReduceSum", "y axes", "s", keepdims=0)],
            {"a": [batch, 3, "L"], "b": [other or batch, 1, 1]},
            {"y": None, "s": None},
            {"axes": np.array([1, 2])},
        )
    )


def exported(folder, model=None, **options):
    """The repository, its artifact, and its configuration as Triton reads it."""
    target = TARGETS.make("triton", options)
    artifact = target.export(model or two(), folder, scheme="fp32")
    place = folder / options.get("model_name", "model")
    return target, artifact, parsed((place / "config.pbtxt").read_text(encoding="utf-8"))


def test_the_files_lie_where_the_server_looks_for_them(tmp_path):
    _, artifact, config = exported(tmp_path, model_name="products", version=3)
    files = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file())
    assert files == ["products/3/model.onnx", "products/config.pbtxt"] == sorted(artifact.files)
    assert (artifact.main, artifact.target) == ("products/3/model.onnx", "triton")
    assert (config.name, config.backend, config.default_model_filename) == ("products", "onnxruntime", "model.onnx")
    assert list(config.version_policy.specific.versions) == [3]


def test_a_batch_axis_is_left_out_of_the_dimensions_and_open_lengths_are_minus_one(tmp_path):
    _, _, config = exported(tmp_path)
    assert config.max_batch_size == 8
    assert [(i.name, list(i.dims)) for i in config.input] == [("a", [3, -1]), ("b", [1, 1])]
    assert (config.output[0].name, list(config.output[0].dims)) == ("y", [3, -1])
    assert {i.data_type for i in config.input} == {parsed("input { data_type: TYPE_FP32 }").input[0].data_type}


def test_an_output_of_nothing_but_the_batch_axis_is_reshaped(tmp_path):
    _, _, config = exported(tmp_path)
    scalar = config.output[1]
    assert (scalar.name, list(scalar.dims)) == ("s", [1])
    assert scalar.HasField("reshape")
    assert list(scalar.reshape.shape) == []


@pytest.mark.parametrize(
    ("model", "first"),
    [(lambda: two(2), [[2, 3, -1], [2, 1, 1]]), (lambda: two("N", other=1), [[-1, 3, -1], [1, 1, 1]])],
    ids=["fixed", "one input without"],
)
def test_without_a_batch_axis_on_all_of_them_triton_makes_no_batches_and_dimensions_are_whole(tmp_path, model, first):
    _, _, config = exported(tmp_path, model())
    assert config.max_batch_size == 0
    assert [list(i.dims) for i in config.input] == first


def test_batches_of_one_symbol_need_not_be_made(tmp_path):
    _, _, config = exported(tmp_path, max_batch_size=0)
    assert config.max_batch_size == 0
    assert [list(i.dims) for i in config.input] == [[-1, 3, -1], [-1, 1, 1]]


def test_element_types_are_those_of_the_graph(tmp_path):
    kinds = {"f": "FLOAT", "h": "FLOAT16", "i": "INT64", "u": "UINT8", "t": "BOOL"}
    nodes = [zoo.node("Identity", name, f"{name}y") for name in kinds]
    types = {name + end: getattr(zoo.TensorProto, kind) for name, kind in kinds.items() for end in ("", "y")}
    model = zoo.model(nodes, {n: ["N", 2] for n in kinds}, {f"{n}y": ["N", 2] for n in kinds}, types=types)
    _, _, config = exported(tmp_path, ir.from_proto(model))
    names = {i.name: type(config).DESCRIPTOR.file.enum_types_by_name["DataType"].values_by_number[i.data_type].name for i in (*config.input, *config.output)}
    triton = {"f": "TYPE_FP32", "h": "TYPE_FP16", "i": "TYPE_INT64", "u": "TYPE_UINT8", "t": "TYPE_BOOL"}
    assert names == {n + end: t for n, t in triton.items() for end in ("", "y")}


def test_dynamic_batching_and_instances_are_as_the_recipe_says(tmp_path):
    options = {
        "max_batch_size": 16,
        "dynamic_batching": {"preferred_batch_sizes": [4, 8], "max_queue_delay_us": 100},
        "instance_group": {"count": 2, "kind": "gpu", "gpus": [0, 1]},
    }
    _, _, config = exported(tmp_path, **options)
    assert config.max_batch_size == 16
    assert list(config.dynamic_batching.preferred_batch_size) == [4, 8]
    assert config.dynamic_batching.max_queue_delay_microseconds == 100
    [group] = config.instance_group
    assert (group.count, group.kind, list(group.gpus)) == (2, type(group).KIND_GPU, [0, 1])


def test_instances_run_on_what_the_engine_was_made_for(tmp_path):
    _, _, config = exported(tmp_path)
    assert config.instance_group[0].kind == type(config.instance_group[0]).KIND_CPU


def test_the_preferred_sizes_decide_the_largest_batch_when_nothing_else_does(tmp_path):
    _, _, config = exported(tmp_path, dynamic_batching={"preferred_batch_sizes": [32]})
    assert config.max_batch_size == 32


def test_warm_up_requests_hold_zeros_of_the_right_shape(tmp_path):
    _, _, config = exported(tmp_path, warmup={"data": "zero", "shapes": {"a": [3, 5]}, "batch_sizes": [8, 1], "count": 2})
    assert [(w.batch_size, w.count) for w in config.model_warmup] == [(1, 2), (8, 2)]
    inputs = config.model_warmup[0].inputs
    assert {name: (list(i.dims), i.zero_data) for name, i in inputs.items()} == {"a": ([3, 5], True), "b": ([1, 1], True)}


def test_warm_up_requests_have_the_usual_shapes_of_the_data_when_none_is_given(tmp_path):
    target = TARGETS.make("triton", {"warmup": {"data": "random"}})
    target.export(two(), tmp_path, scheme="fp32", shapes={"a": Shapes((1, 3, 2), (4, 3, 7), (8, 3, 9)), "b": Shapes((1, 1, 1), (4, 1, 1), (8, 1, 1))})
    inputs = parsed((tmp_path / "model/config.pbtxt").read_text()).model_warmup[0].inputs
    assert {name: (list(i.dims), i.random_data) for name, i in inputs.items()} == {"a": ([3, 7], True), "b": ([1, 1], True)}


def test_warm_up_requests_hold_real_samples_in_the_byte_order_of_the_server(tmp_path):
    target = TARGETS.make("triton", {"warmup": {"batch_sizes": [1, 3]}})
    assert isinstance(target, TakesSamples)
    assert target.reference_samples == 3
    rows = np.arange(30, dtype=np.float32).reshape(2, 3, 5)
    samples = [{"a": rows[n : n + 1], "b": np.full((1, 1, 1), n, np.float32)} for n in range(2)]
    artifact = target.export(two(), tmp_path, scheme="fp32", samples=samples)
    config = parsed((tmp_path / "model/config.pbtxt").read_text())
    for request, order in zip(config.model_warmup, ([0], [0, 1, 0]), strict=True):
        for name, expected in {"a": rows[order], "b": np.array(order, np.float32)[:, None, None]}.items():
            told = request.inputs[name]
            stored = np.fromfile(tmp_path / "model/warmup" / told.input_data_file, dtype="<f4")
            np.testing.assert_array_equal(stored.reshape(request.batch_size, *told.dims), expected)
            assert f"model/warmup/{told.input_data_file}" in artifact.files


def test_samples_of_another_shape_than_the_first_are_not_mixed_with_it(tmp_path):
    samples = [{"a": np.full((1, 3, n), n, np.float32), "b": np.ones((1, 1, 1), np.float32)} for n in (2, 4)]
    target = TARGETS.make("triton", {"warmup": {"batch_sizes": [2]}})
    target.export(two(), tmp_path, scheme="fp32", samples=samples)
    assert np.fromfile(tmp_path / "model/warmup/a.2", dtype="<f4").tolist() == [2.0] * 12


def test_a_model_without_a_batch_axis_is_sent_one_request_as_it_is(tmp_path):
    samples = [{"a": np.ones((2, 3, 4), np.float32), "b": np.ones((2, 1, 1), np.float32)}]
    TARGETS.make("triton", {"warmup": {}}).export(two(2), tmp_path, scheme="fp32", samples=samples)
    [request] = parsed((tmp_path / "model/config.pbtxt").read_text()).model_warmup
    assert (request.batch_size, {name: list(i.dims) for name, i in request.inputs.items()}) == (0, {"a": [2, 3, 4], "b": [2, 1, 1]})


def test_samples_are_asked_for_only_where_they_are_used():
    assert not isinstance(TARGETS.make("triton"), TakesSamples)


def test_openvino_is_served_by_its_own_backend(tmp_path):
    if not TARGETS.make("openvino").available().available:
        pytest.skip("OpenVINO is not installed")
    _, artifact, config = exported(tmp_path, engine={"kind": "openvino"})
    assert (config.backend, config.default_model_filename) == ("openvino", "model.xml")
    assert {"model/1/model.xml", "model/1/model.bin", "model/config.pbtxt"} == set(artifact.files)


def test_the_artifact_within_is_what_is_run(tmp_path):
    target, artifact, _ = exported(tmp_path, engine="onnxruntime")
    feed = {"a": np.ones((2, 3, 4), np.float32), "b": np.full((2, 1, 1), 3, np.float32)}
    found = target.session(artifact, tmp_path, threads=1).run(feed)
    expected = Runtime(two(), optimize=False).run(feed)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def test_it_is_whatever_the_engine_within_is():
    for kind in set(BACKENDS) & set(TARGETS):
        inner, outer = TARGETS.make(kind), TARGETS.make("triton", {"engine": {"kind": kind}})
        assert outer.dialect == inner.dialect
        assert outer.ahead_of_time == inner.ahead_of_time
        assert outer.emulates("fp16") == inner.emulates("fp16")
        assert outer.available().available == inner.available().available


def test_the_same_options_write_the_same_bytes(tmp_path):
    texts = {exported(tmp_path / name)[1].digest for name in ("one", "two")}
    assert len(texts) == 1


def test_every_target_is_served_or_refused_with_a_reason():
    for kind in TARGETS:
        if kind in BACKENDS:
            assert TARGETS.make("triton", {"engine": kind}).options.engine == {"kind": kind}
        else:
            assert kind in REFUSED
            with pytest.raises(RecipeError, match=re.escape(REFUSED[kind])):
                TARGETS.make("triton", {"engine": {"kind": kind}})


REFUSALS = {
    "fixed batch": (
        lambda: two(2),
        {"max_batch_size": 4},
        "max_batch_size is 4, and Triton cannot make batches for this model: the first axis of input 'a' has the",
    ),
    "unequal batch": (
        lambda: two("N", other="M"),
        {"max_batch_size": 4},
        "the first axes of inputs 'a' and 'b' are called N and M: they need not be equally long",
    ),
    "batching": (lambda: two(2), {"dynamic_batching": {}}, "dynamic_batching needs a batch axis: the first axis of input 'a' has the fixed length 2"),
    "batching of none": (two, {"max_batch_size": 0, "dynamic_batching": {}}, "dynamic_batching needs a max_batch_size of 1 or more, and it is 0"),
    "gpus of a cpu": (two, {"instance_group": {"kind": "cpu", "gpus": [0]}}, "instance_group names `gpus`, and its kind is cpu"),
    "graphs": (two, {"cuda_graphs": True}, "Triton's backend 'onnxruntime' knows no cuda_graphs; only that of TensorRT engines does"),
    "capabilities": (two, {"compute_capabilities": ["8.9"]}, "Triton's backend 'onnxruntime' knows no compute_capabilities"),
    "warm-up samples": (two, {"warmup": {}}, "warm-up is to be done with samples, and there are none\nhint: give `warmup: {data: zero}`"),
    "warm-up shape": (two, {"warmup": {"data": "zero"}}, r"warm-up needs a shape for input 'a', whose dimensions without the batch axis are \[3, -1\]"),
    "warm-up input": (two, {"warmup": {"shapes": {"c": [1]}}}, "`warmup.shapes` names 'c', which is no input"),
    "warm-up rank": (
        two,
        {"warmup": {"data": "zero", "shapes": {"a": [5]}}},
        r"gives input 'a' the shape \[5\], and the model wants \[3, -1\] without the batch axis",
    ),
    "warm-up batch": (
        two,
        {"warmup": {"data": "zero", "batch_sizes": [9], "shapes": {"a": [3, 1]}}},
        "a warm-up request of 9 samples is more than max_batch_size, 8",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_the_model_or_its_backend_cannot_do_is_refused(case, tmp_path):
    model, options, said = REFUSALS[case]
    with pytest.raises(TargetError, match=said):
        exported(tmp_path, model(), **options)


WRONG = {
    "name the target whose artifact is served": {"engine": {}},
    r"options of engine 'onnxruntime': unknown key 'providr' \(did you mean 'provider'\?\)": {"engine": {"kind": "onnxruntime", "providr": 3}},
    "options of engine 'onnxruntime': device_id: Input should be": {"engine": {"kind": "onnxruntime", "device_id": "x"}},
    "a preferred batch size of 8 is more than max_batch_size, 4": {"max_batch_size": 4, "dynamic_batching": {"preferred_batch_sizes": [8]}},
    "model_name": {"model_name": "a/b"},
    "version": {"version": 0},
    "compute_capabilities": {"compute_capabilities": ["sm89"]},
}


@pytest.mark.parametrize("said", WRONG)
def test_wrong_options_are_refused_when_the_recipe_is_bound(said):
    with pytest.raises(ValidationError, match=said):
        TARGETS.get("triton").Options.model_validate(WRONG[said])


def test_an_engine_that_is_none_has_the_nearest_named():
    with pytest.raises(RecipeError, match="unknown target 'openvno'\nhint: did you mean 'openvino'"):
        TARGETS.make("triton", {"engine": "openvno"})


def test_without_the_schema_it_writes_unchecked_and_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(schema, "_schema", lambda: None)
    target = TARGETS.make("triton")
    assert "written unchecked: pip install 'quant-toolkit[triton]'" in target.available().note
    artifact = target.export(two(), tmp_path, scheme="fp32")
    monkeypatch.undo()
    assert parsed((tmp_path / "model/config.pbtxt").read_text()).max_batch_size == 8
    assert "model/config.pbtxt" in artifact.files


def test_an_engine_that_is_missing_within_is_said(monkeypatch):
    monkeypatch.setattr(TARGETS.get("onnxruntime"), "available", lambda _self: Availability(available=False, reason="it is not there", install="get it"))
    here = TARGETS.make("triton").available()
    assert (here.available, here.reason, here.install) == (False, "the engine within, onnxruntime: it is not there", "get it")


def test_what_the_schema_does_not_know_is_refused():
    with pytest.raises(TargetError, match=r"Triton's schema refuses the configuration: .*max_batch"):
        parsed("max_batch: 3")
    assert issubclass(TargetError, QuantError)


def test_an_engine_that_no_gpu_here_can_build_leaves_all_that_builds_it_in_its_place(tmp_path):
    target = TARGETS.make("triton", {"engine": "tensorrt", "cuda_graphs": True, "model_name": "net"})
    if not target.ahead_of_time:
        pytest.skip("this machine has a GPU: the engine is built")
    shapes = {"a": Shapes((1, 3, 2), (2, 3, 4), (4, 3, 9)), "b": Shapes((1, 1, 1), (2, 1, 1), (4, 1, 1))}
    assert isinstance(target, TakesSamples)
    artifact = target.export(two(), tmp_path, scheme="fp32", shapes=shapes, samples=[])
    config = parsed((tmp_path / "net/config.pbtxt").read_text())
    assert (config.backend, config.default_model_filename, config.max_batch_size) == ("tensorrt", "model.engine", 4)
    assert {"net/1/model.onnx", "net/1/build_engine.py", "net/config.pbtxt"} <= set(artifact.files)
    feed = {"a": np.ones((2, 3, 4), np.float32), "b": np.full((2, 1, 1), 3, np.float32)}
    assert list(target.session(artifact, tmp_path, threads=1).run(feed)) == ["y", "s"]
