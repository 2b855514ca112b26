"""Weights in 4 bits, from calibration to what engines run."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from pydantic import ValidationError

from calibrators import CALIBRATORS
from quant.core.table import CalibrationTable
from quant.data.samples import Sample
from quant.graph.layers import find_layers
from quant.graph.model import read_model, signature
from quant.graph.runtime import Runtime
from quant.schemes import SCHEMES
from quant.stages.apply import apply
from quant.stages.calibrate import calibrate
from quant.stages.running import Feeding
from quant.targets import TARGETS, Shapes

SCALE = 1 / 11  # of weights of 128 rows, so that rows keep their size
ENGINES = [kind for kind in TARGETS.kinds() if TARGETS.make(kind).dialect.int4 is not None]
RUNNING = [kind for kind in ENGINES if TARGETS.make(kind).emulates("int4") is None or TARGETS.make(kind).ahead_of_time]
METHODS = ("rtn", "gptq", "awq")
AHEAD = Shapes((1, 8), (4, 8), (4, 8))


class Sentences:
    """Samples of eight indices each; a few of the table's rows are far larger than the others, in a few channels."""

    role, digest = "calibration", "made"

    def __init__(self, count, seed):
        self.rows = np.random.default_rng(seed).integers(0, 256, (count, 8))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, position):
        return Sample(position, ({"i": self.rows[position]},))

    def __iter__(self):
        return (self[i] for i in range(len(self)))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Rows of a table -> LayerNormalization with channels of very different size -> two products -> a sum -> Relu -> Gemm."""
    r = np.random.default_rng(0)
    gain = np.where(np.arange(128) % 32 == 5, 20.0, 1.0).astype(np.float32)
    weights = {
        "table": r.normal(size=(256, 128)).astype(np.float32),
        "gain": gain,
        "offset": np.zeros(128, np.float32),
        **{name: (r.normal(size=(128, 128)) * SCALE).astype(np.float32) for name in ("wa", "wb")},
        "wc": (r.normal(size=(64, 128)) * SCALE).astype(np.float32),
        "bc": r.normal(size=64).astype(np.float32),
    }
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["e"], name="embed"),
        helper.make_node("LayerNormalization", ["e", "gain", "offset"], ["n"], name="norm"),
        helper.make_node("MatMul", ["n", "wa"], ["a"], name="first"),
        helper.make_node("MatMul", ["n", "wb"], ["b"], name="second"),
        helper.make_node("Add", ["a", "b"], ["s"], name="sum"),
        helper.make_node("Relu", ["s"], ["h"], name="relu"),
        helper.make_node("ReduceMean", ["h"], ["p"], name="pool", axes=[1], keepdims=0),
        helper.make_node("Gemm", ["p", "wc", "bc"], ["y"], name="last", transB=1),
    ]
    inputs = [helper.make_tensor_value_info("i", TensorProto.INT64, ["batch", 8])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 64])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in weights.items()])
    made = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    onnx.checker.check_model(made, full_check=True)
    file = tmp_path_factory.mktemp("model") / "model.onnx"
    onnx.save(made, file)
    return file


def carried_out(path, target, **options):
    """The graph for a target, and the plan as it was carried out."""
    scheme, dialect = SCHEMES.make("int4", options), target.dialect
    model = read_model(path)
    plan = scheme.plan(model, find_layers(model), dialect)
    needs = scheme.needs(model, plan, dialect)
    table = CalibrationTable("", "", 0, {}, {})
    if needs.moments or dialect.body != "fp32":
        feeding = Feeding(signature(model), 4)
        table = calibrate(path, Sentences(64, seed=1), [], feeding, magnitudes=dialect.body != "fp32", digest="", moments=needs.moments)
    quantized, done, _ = apply(path, scheme, plan=plan, table=table, calibrator=CALIBRATORS.make("minmax"), dialect=dialect)
    return quantized, done


def error(path, model):
    """Mean squared error of the output over new samples, as a share of its power; the graph as it is written."""
    runtimes = Runtime(path), Runtime(model, optimize=False)
    feed = {"i": Sentences(64, seed=2).rows}
    exact, found = (r.run(feed)["y"].astype(np.float64) for r in runtimes)
    return np.square(found - exact).mean() / np.square(exact).mean()


@pytest.mark.parametrize("kind", RUNNING)
def test_every_planned_layer_runs_in_int4(path, tmp_path, kind):
    target = TARGETS.make(kind)
    if not target.available().available or kind in {"triton", "tensorrt"}:
        pytest.skip("not here, or it wraps what another target builds")
    model, plan = carried_out(path, target)
    assert {c.layer: c.format for c in plan.layers} == dict.fromkeys(("embed", "first", "second", "last"), "int4")
    shapes = {"shapes": {"i": AHEAD}} if target.ahead_of_time else {}
    artifact = target.export(model, tmp_path, scheme="int4", **shapes)
    outputs = {layer.name: layer.node.outputs[0].name for layer in find_layers(read_model(path))}
    rows = target.audit(artifact, tmp_path, plan, outputs).rows
    assert {row.layer: row.runs for row in rows} == dict.fromkeys(outputs, "int4")


def test_codes_that_look_at_data_lose_less_than_those_that_do_not(path):
    target = TARGETS.make("onnxruntime")
    errors = {method: error(path, carried_out(path, target, method=method, search=False, embeddings=False)[0]) for method in METHODS}
    assert errors["gptq"] < errors["rtn"]
    assert errors["awq"] < errors["rtn"]
    # A block of 32 normal weights reaches 2 times their spread: a step of 2/7 of it, whose noise is 1/12 of its square.
    assert errors["rtn"] < 6 * (2 / 7) ** 2 / 12  # three products in a row, each with at most twice that


def test_factors_of_awq_are_folded_into_what_makes_the_input_and_the_plan_says_so(path):
    model, plan = carried_out(path, TARGETS.make("onnxruntime"), method="awq")
    said = {c.layer: c.reason for c in plan.layers}
    assert said["first"] == said["second"]
    assert "less error, folded into norm" in said["first"]
    norm = next(n for n in model.graph if n.name == "norm")
    assert {reader.op_type for reader, _ in norm.outputs[0].uses()} == {"MatMulNBits"}


def test_rounding_to_the_nearest_needs_no_data(path):
    model = read_model(path)
    for kind in ENGINES:
        scheme, dialect = SCHEMES.make("int4", {"method": "rtn"}), TARGETS.make(kind).dialect
        needs = scheme.needs(model, scheme.plan(model, find_layers(model), dialect), dialect)
        assert (needs.ranges, needs.moments, needs.magnitudes) == ({}, {}, False)


def test_layers_that_read_the_same_tensor_share_its_moments(path):
    scheme, dialect, model = SCHEMES.make("int4"), TARGETS.make("onnxruntime").dialect, read_model(path)
    assert scheme.needs(model, scheme.plan(model, find_layers(model), dialect), dialect).moments == {"n": 128, "p": 128}


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_product_in_nbits_equals_the_same_codes_behind_dequantize(path, symmetric):
    """The same codes in two forms, both read back and computed as ONNX defines them."""
    targets = TARGETS.make("onnxruntime", {"accuracy_level": 1}), TARGETS.make("onnxruntime", {"int4": "dequantize"})
    models = [carried_out(path, target, method="gptq", symmetric=symmetric, embeddings=False)[0] for target in targets]
    feed = {"i": Sentences(16, seed=3).rows}
    found = [Runtime(model, optimize=False).run(feed)["y"] for model in models]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-4)  # float32 sums of 128 products in another order


def test_zero_points_make_the_error_less_where_weights_lie_to_one_side(path, tmp_path):
    model = ir.load(path)
    for name in ("wa", "wb", "wc"):
        value = model.graph.initializers[name]
        value.const_value = ir.tensor(np.abs(value.const_value.numpy()), name=name)
    shifted = tmp_path / "model.onnx"
    ir.save(model, shifted)
    target = TARGETS.make("onnxruntime")
    errors = [error(shifted, carried_out(shifted, target, method="rtn", symmetric=symmetric, embeddings=False)[0]) for symmetric in (True, False)]
    assert errors[1] < errors[0] / 2  # fifteen steps over the range instead of seven


def test_an_engine_without_zero_points_says_so():
    target, model = TARGETS.make("tensorrt-rtx"), zoo_product()
    plan = SCHEMES.make("int4", {"symmetric": False}).plan(model, find_layers(model), target.dialect)
    assert {c.reason for c in plan.layers} == {"the target knows no zero points (`symmetric: true`)"}


def zoo_product():
    weight = numpy_helper.from_array(np.zeros((128, 8), np.float32), "w")
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", s]) for n, s in (("x", 128), ("y", 8))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], name="mm")], "g", infos[:1], infos[1:], [weight])
    return ir.from_proto(helper.make_model(graph))


@pytest.mark.parametrize(("option", "value"), [("block_size", 48), ("method", "hqq"), ("damping", 0), ("bits", 4)])
def test_options_that_mean_nothing_are_refused(option, value):
    with pytest.raises(ValidationError, match=option):
        SCHEMES.make("int4", {option: value})
