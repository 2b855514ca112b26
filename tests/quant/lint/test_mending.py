"""A mended graph computes what the graph computed, and TensorRT-RTX takes it."""

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator


def _run(path, **feed):
    return ReferenceEvaluator(str(path)).run(None, feed)[0]


@pytest.fixture
def mended(lint, rtx, tmp_path):
    """Mends a drawing; the copy must have no errors left, pass ONNX's checker, and be taken by TensorRT-RTX. Gives both files and what was mended."""

    def run(drawing):
        done = lint(drawing, to=tmp_path / "mended.onnx")
        assert done.count("error") == 0, done.findings
        onnx.checker.check_model(str(tmp_path / "mended.onnx"), full_check=True)
        said = rtx.ask(tmp_path / "mended.onnx")
        assert said["accepted"], said["said"]
        return tmp_path / "model.onnx", tmp_path / "mended.onnx", done.mended.places, said["layers"]

    return run


@pytest.fixture
def x():
    return (np.random.default_rng(3).normal(size=(8, 64)) * 3).astype(np.float32)


def test_unsigned_codes_around_128_become_signed_codes_around_0(drawing, mended, x):
    g = drawing(21)
    g.input("x", [8, 64], "f32")
    pair = g.dequantize(g.quantize("x", zero=128, dtype="u8"), zero=128, dtype="u8")
    weight = g.dequantize(g.weight(np.random.default_rng(0).integers(0, 256, (64, 64)), "u8"), np.full(64, 0.01), np.full(64, 128), dtype="u8", axis=1)
    g.output(g.node("MatMul", [pair, weight]), [8, 64], "f32")
    old, new, places, layers = mended(g)
    assert places == {"Q01": 3}
    np.testing.assert_array_equal(_run(old, x=x), _run(new, x=x))
    assert any("gemm" in line and line.count("Datatype: Int8") >= 2 for line in layers)


def test_unsigned_codes_that_something_else_reads_too_are_left(drawing, lint, tmp_path):
    g = drawing(21)
    g.input("x", [8, 64], "f32")
    codes = g.quantize("x", zero=128, dtype="u8")
    g.output(g.dequantize(codes, zero=128, dtype="u8"), [8, 64], "f32")
    g.output(g.node("Cast", [codes], to=6), [8, 64], "i32")
    assert lint(g, to=tmp_path / "mended.onnx").mended.places == {}


def test_zeros_take_the_number_of_the_scales(drawing, mended):
    g = drawing(21)
    g.input("x", [8, 64], "f32")
    weight = g.dequantize(g.random((64, 64), "i8"), np.full(64, 0.01), 0, axis=1)
    g.output(g.node("MatMul", [g.pair("x", zero=0), weight]), [8, 64], "f32")
    _, new, places, _ = mended(g)
    assert places == {"Q06": 1}
    assert [t.dims for t in onnx.load(new).graph.initializer if t.name.endswith("_zeros")] == [[64]]


@pytest.mark.parametrize("channels", [False, True])
def test_coarse_int4_scales_are_repeated_for_each_block(drawing, mended, channels):
    g = drawing(21)
    g.input("x", [8, 256], "f32")
    scale = np.random.default_rng(1).uniform(0.01, 0.1, 64) if channels else 0.05
    weight = g.dequantize(g.random((256, 64), "i4"), scale, **({"axis": 1} if channels else {}))
    g.output(g.node("MatMul", ["x", weight]), [8, 64], "f32")
    old, new, places, layers = mended(g)
    assert places == {"Q22": 1}
    value = np.random.default_rng(2).normal(size=(8, 256)).astype(np.float32)
    np.testing.assert_array_equal(_run(old, x=value), _run(new, x=value))
    assert any("ReplCastMulCastFc" in line or "ReplCastMulFc" in line for line in layers), layers


def test_one_block_along_the_whole_axis_becomes_two(drawing, mended):
    g = drawing(21)
    g.input("x", [8, 128], "f32")
    scale = np.random.default_rng(1).uniform(0.01, 0.1, (1, 64))
    g.output(g.node("MatMul", ["x", g.dequantize(g.random((128, 64), "i4"), scale, axis=0, block_size=128)]), [8, 64], "f32")
    old, new, places, layers = mended(g)
    assert places == {"Q22": 1}
    value = np.random.default_rng(2).normal(size=(8, 128)).astype(np.float32)
    np.testing.assert_array_equal(_run(old, x=value), _run(new, x=value))
    assert any("ReplCastMulCastFc" in line or "ReplCastMulFc" in line for line in layers), layers


def test_constants_are_stored_in_the_type_of_what_they_are_used_with(drawing, mended, x):
    g = drawing()
    g.input("x", [8, 64])
    y = g.node("Add", [g.node("MatMul", ["x", g.random((64, 64), "f32")]), g.random((64,), "f32", seed=1)])
    g.output(g.node("LayerNormalization", [y, g.weight(np.ones(64)), g.weight(np.zeros(64))]), [8, 64])
    _, new, places, _ = mended(g)
    assert places == {"T01": 1, "T03": 1, "T04": 2}
    assert _run(new, x=x.astype(np.float16)).dtype == np.float16


def test_a_constant_that_half_cannot_hold_is_left(drawing, lint, tmp_path):
    g = drawing()
    g.input("x", [8, 64])
    g.output(g.node("Add", ["x", g.weight(np.full(64, 1e6))]), [8, 64])
    done = lint(g, to=tmp_path / "mended.onnx")
    assert done.mended.places == {}
    assert [f.rule for f in done.findings] == ["T01"]


def test_an_output_gets_the_type_that_it_is_declared_as(drawing, mended, x):
    g = drawing()
    g.input("x", [8, 64])
    g.output(g.node("Relu", ["x"]), [8, 64], "f32")
    _, new, places, layers = mended(g)
    assert places == {"T05": 1}
    assert "Datatype: Float" in layers[-1].split("Outputs:")[-1]
    assert [v.name for v in onnx.load(new).graph.output] == ["t0"]
    np.testing.assert_array_equal(_run(new, x=x.astype(np.float16)), np.maximum(x.astype(np.float16), 0).astype(np.float32))
