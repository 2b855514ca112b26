"""Static FP8: what is written where, against numbers made by the type itself; and what engines make of it."""

import importlib.util
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from quant.core.dialect import Dialect, Float8
from quant.core.formats import INT8, UINT8, Range
from quant.errors import TargetError
from quant.graph.body import write_body
from quant.graph.importing import raise_opset
from quant.graph.layers import find_layers
from quant.graph.runtime import Runtime
from quant.schemes import SCHEMES, Evidence
from quant.targets import TARGETS, Shapes

SPEC = importlib.util.spec_from_file_location("zoo", Path(__file__).parents[1] / "graph" / "zoo.py")
zoo = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(zoo)
node, draw = zoo.node, zoo.draw

E4M3 = ml_dtypes.float8_e4m3fn
NOTHING = frozenset()
PLAIN = Dialect(
    integer=NOTHING, dynamic=NOTHING, activations=UINT8, operands=INT8, weights=INT8, chained=frozenset({"MatMul"}),
    transparent=NOTHING, melting=NOTHING, integer_bias=frozenset({"Gemm"}), gemm=True, fp8=Float8(frozenset({"Conv", "MatMul", "Gemm"}), 32, 17),
)  # fmt: skip
builds = pytest.mark.skipif(not TARGETS.make("tensorrt-rtx").available().available, reason="TensorRT-RTX is not installed")


def written(proto, dialect=PLAIN, *, largest=3.0, magnitudes=None, **options):
    """The graph of `proto` in FP8, with ranges from `-largest` to `largest`, and its plan."""
    scheme = SCHEMES.make("fp8", {"correct_bias": False, **options})
    model = raise_opset(ir.from_proto(proto), max(dialect.opset, 19))
    plan = scheme.plan(model, find_layers(model), dialect)
    needs = scheme.needs(model, plan, dialect)
    ranges = dict.fromkeys(needs.ranges, Range(-largest, largest)) | needs.known
    done = scheme.apply(model, plan, Evidence(ranges), dialect)
    done = write_body(model, done, magnitudes or {}, dialect.body)
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    return model, done


def reasons(proto, dialect=PLAIN, **options):
    model = ir.from_proto(proto)
    plan = SCHEMES.make("fp8", options).plan(model, find_layers(model), dialect)
    return {c.layer: c.reason for c in plan.layers if c.format != "fp8"}


def conv(size=3, channels=32, outputs=32, group=1):
    return zoo.model(
        [node("Conv", "x w", "y", "conv", pads=[size // 2] * 4, group=group)],
        {"x": [1, channels, 16, 16]}, {"y": [1, outputs, 16, 16]}, {"w": draw(outputs, channels // group, size, size)},
    )  # fmt: skip


def attention(length=64):
    """Four heads of 32, with projections."""
    nodes = [node("MatMul", f"x w{a}", a, f"project_{a}") for a in "qkv"]
    nodes += [node("Reshape", f"{a} heads", f"{a}r") for a in "qkv"]
    nodes += [node("Transpose", f"{a}r", f"{a}t", perm=[0, 2, 3, 1] if a == "k" else [0, 2, 1, 3]) for a in "qkv"]
    nodes += [node("MatMul", "qt kt", "s", "scores"), node("Mul", "s scale", "sc", "scaled"), node("Softmax", "sc", "p", "softmax", axis=-1)]
    nodes += [node("MatMul", "p vt", "o", "mix"), node("Transpose", "o", "ot", perm=[0, 2, 1, 3]), node("Reshape", "ot whole", "j")]
    nodes += [node("MatMul", "j wo", "y", "project_out")]
    weights = {f"w{a}": draw(128, 128, seed=i) for i, a in enumerate("qkvo")} | {"scale": np.float32(32**-0.5)}
    weights |= {"heads": np.array([0, -1, 4, 32]), "whole": np.array([0, -1, 128])}
    return zoo.model(nodes, {"x": ["B", length, 128]}, {"y": ["B", length, 128]}, weights)


def test_a_product_is_that_of_operands_rounded_by_the_type_itself():
    weight = draw(8, 5)
    proto = zoo.model([node("MatMul", "x w", "y", "product")], {"x": [4, 8]}, {"y": [4, 5]}, {"w": weight})
    model, plan = written(proto, largest=2.5)
    assert plan.quantized == ("product",)
    x = np.append(draw(3, 8, seed=7) * 8, [[3.0, -9.0, 2.5, 1e-4, 0, 2.4, -0.004, 0.7]], axis=0).astype(np.float32)
    scale_x, scale_w = np.float32(2.5 / 448), (np.abs(weight).max(axis=0).astype(np.float64) / 448).astype(np.float32)
    rounded = np.clip(x / scale_x, -448, 448).astype(E4M3).astype(np.float64) * scale_x
    rounded_weight = (weight / scale_w).astype(E4M3).astype(np.float64) * scale_w
    np.testing.assert_allclose(Runtime(model, optimize=False).run({"x": x})["y"], rounded @ rounded_weight, rtol=1e-5, atol=1e-5)


def test_weights_are_stored_in_a_byte_each_with_scales_per_output_channel_and_zero_points_of_their_type():
    model, _ = written(conv())
    weights = {k: v.const_value for k, v in model.graph.initializers.items()}
    assert (weights["conv_weight_quantized"].dtype, weights["conv_weight_quantized"].nbytes) == (ir.DataType.FLOAT8E4M3FN, 32 * 32 * 9)
    assert weights["conv_weight_scale"].shape == (32,)
    assert {weights[k].dtype for k in ("conv_weight_zero_point", "x_zero_point")} == {ir.DataType.FLOAT8E4M3FN}
    whole, _ = written(conv(), per_channel=False)
    assert whole.graph.initializers["conv_weight_scale"].shape == ()


def test_q_and_dq_stand_in_front_of_what_is_quantized_and_nowhere_else_whatever_integers_want():
    proto = zoo.model([node("Gemm", "x w b", "h", "first"), node("MatMul", "h v", "y", "second")], {"x": [4, 8]}, {"y": [4, 5]},
        {"w": draw(8, 6), "b": draw(6), "v": draw(6, 5)})  # fmt: skip
    model, _ = written(proto)
    assert [n.inputs[0].name for n in model.graph if n.op_type == "QuantizeLinear"] == ["x", "h"]
    gemm = next(n for n in model.graph if n.op_type == "Gemm")
    assert gemm.inputs[2].const_value.dtype == ir.DataType.FLOAT
    assert [n.op_type for n in model.graph if n.op_type == "MatMul"] == ["MatMul"]


def test_what_comes_out_of_a_softmax_is_written_from_0_to_1_and_is_not_looked_for():
    proto = attention()
    model = ir.from_proto(proto)
    scheme = SCHEMES.make("fp8")
    plan = scheme.plan(model, find_layers(model), PLAIN)
    needs = scheme.needs(model, plan, PLAIN)
    assert needs.known == {"p": Range(0.0, 1.0)}
    assert set(needs.ranges) == {"x", "qt", "kt", "vt", "j"}
    done, _ = written(proto)
    assert done.graph.initializers["p_scale"].const_value.numpy() == np.float32(1 / 448)
    assert written(proto, products=False)[1].quantized == ("project_q", "project_k", "project_v", "project_out")


FEW = "its outputs sum {0} products each, too few for rounding to FP8 to average out (`fewest_products: {0}` takes it)"


@pytest.mark.parametrize(
    ("proto", "reason"),
    [
        (conv(7), "its kernel has 49 taps, and the target's FP8 convolutions take 32 at most"),
        (conv(channels=16), "it has 16 channels, and the target's FP8 convolutions want 17 at least"),
        (conv(outputs=16), "it has 16 channels, and the target's FP8 convolutions want 17 at least"),
        (conv(channels=32, group=32), FEW.format(9)),
        (conv(5, group=32), FEW.format(25)),
    ],
)
def test_convolutions_that_have_no_fp8_kernel_are_left_out_with_the_reason(proto, reason):
    assert reasons(proto) == {"conv": reason}


def test_the_smallest_and_the_largest_convolutions_that_have_one_are_taken():
    for proto in (conv(5), conv(channels=17, outputs=17), conv(group=2)):
        assert reasons(proto) == {}
    assert reasons(conv(group=32), fewest_products=9) == {}
    assert reasons(conv(channels=16, outputs=16, group=16), fewest_products=9) == {
        "conv": "it has 16 channels, and the target's FP8 convolutions want 17 at least"
    }


def test_a_convolution_that_reads_a_picture_sums_too_few_products_like_one_of_single_channels():
    no_limits = Dialect(**{**vars(PLAIN), "fp8": Float8(frozenset({"Conv"}))})
    assert reasons(conv(channels=3), no_limits) == {"conv": FEW.format(27)}
    assert reasons(conv(channels=3), no_limits, fewest_products=27) == reasons(conv(channels=4), no_limits) == {}


def test_a_target_without_fp8_or_without_its_convolutions_says_so():
    assert reasons(conv(), Dialect(**{**vars(PLAIN), "fp8": None})) == {"conv": "the target does not know FP8"}
    assert reasons(conv(), Dialect(**{**vars(PLAIN), "fp8": Float8(frozenset({"MatMul"}))})) == {"conv": "the target has no FP8 kernel for Conv"}


@pytest.mark.parametrize("kind", [k for k in TARGETS.kinds() if not TARGETS.make(k).ahead_of_time])
@pytest.mark.parametrize("proto", [conv(), attention()], ids=["conv", "attention"])
def test_an_engine_on_this_machine_computes_what_the_graph_says_and_tells_that_it_emulates(kind, proto, tmp_path):
    target = TARGETS.make(kind)
    if not target.available().available or target.dialect.fp8 is None:
        pytest.skip("not here, or without FP8")
    if target.emulates("fp8") is None:
        pytest.skip("computes in FP8, with errors of its own")
    model, _ = written(proto, target.dialect, largest=4.0)
    feed = zoo.feed(proto, 3)
    exact, expected = (Runtime(m, optimize=False).run(feed)["y"] for m in (ir.from_proto(proto), model))
    artifact = target.export(model, tmp_path / "files", scheme="fp8")
    found = target.session(artifact, tmp_path / "files", threads=1).run(feed)["y"]
    noise = np.square(expected - exact).mean()
    # OpenVINO rounds by way of FP16, which moves what lies within 2^-11 of the middle between two codes to the other one.
    assert np.square(found - expected).mean() <= noise / 10


@builds
def test_attention_of_a_fixed_length_is_one_fp8_kernel_in_an_fp16_body_for_any_batch(tmp_path):
    target = TARGETS.make("tensorrt-rtx")
    model, plan = written(attention(), target.dialect, magnitudes={})
    artifact = target.export(model, tmp_path, scheme="fp8", shapes={"x": Shapes((1, 64, 128), (2, 64, 128), (8, 64, 128))})
    audit = target.audit(artifact, tmp_path, plan, {})
    assert {row.layer: row.runs for row in audit.rows} == dict.fromkeys(plan.quantized, "fp8")
    assert {row.kernel for row in audit.rows if row.layer in {"scores", "mix"}} == {"kgen gemm_mha"}
    assert len(plan.quantized) == 6


@builds
def test_a_convolution_is_compiled_in_fp8_and_one_with_too_many_taps_would_not_be(tmp_path):
    target = TARGETS.make("tensorrt-rtx")
    model, plan = written(conv(5), target.dialect)
    (row,) = target.audit(target.export(model, tmp_path / "5", scheme="fp8"), tmp_path / "5", plan, {}).rows
    assert (row.planned, row.runs) == ("fp8", "fp8")
    without_limit = Dialect(**{**vars(target.dialect), "fp8": Float8(frozenset({"Conv"}))})
    model, plan = written(conv(7), without_limit)
    (row,) = target.audit(target.export(model, tmp_path / "7", scheme="fp8"), tmp_path / "7", plan, {}).rows
    assert (row.planned, row.runs) == ("fp8", "fp16")


@pytest.mark.parametrize("capability", ["sm75", "sm80", "sm86"])
def test_fp8_for_a_gpu_without_it_is_refused_before_anything_is_built(capability, tmp_path, monkeypatch):
    def never(*_args, **_kwargs):
        raise AssertionError("an engine was built")

    monkeypatch.setattr("quant.targets.tensorrt_rtx.build_engines", never)
    target = TARGETS.make("tensorrt-rtx", {"compute_capabilities": ["sm89", capability]})
    model, plan = written(conv(), target.dialect)
    assert plan.quantized == ("conv",)
    with pytest.raises(
        TargetError, match=f"GPUs of compute capability {capability} have no fp8\nhint: change `compute_capabilities`, or choose another scheme"
    ):
        target.export(model, tmp_path, scheme="fp8")


def test_blackwell_multiplies_matrices_in_fp8_but_convolves_in_half_precision():
    target = TARGETS.make("tensorrt-rtx", {"compute_capabilities": ["sm89", "sm120"]})
    assert reasons(conv(), target.dialect) == {"conv": "the target has no FP8 kernel for Conv"}
    assert reasons(attention(), target.dialect) == {}
