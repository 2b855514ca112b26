"""Smallest graphs that break the rules about quantizers themselves; with what TensorRT-RTX 1.7.1 says of each, or runs instead."""

import numpy as np


def cases(drawing):  # noqa: C901 - one small graph a rule, each a function
    """All cases of this file."""
    case, conv, product = drawing.Case, drawing.conv, drawing.product

    def weight(count, axis, zeros=None):
        return lambda g: g.dequantize(g.random((32, 32, 3, 3), "i8"), np.full(count, 0.01), zeros, axis=axis)

    def blocks(shape, scale, axis, size, *, dtype="i4", scale_dtype="f16"):
        return lambda g: g.dequantize(g.random(shape, dtype), np.full(scale, 0.01), dtype=dtype, scale_dtype=scale_dtype, axis=axis, block_size=size)

    def int4(shape, scale, axis, size, dtype="i4"):
        return product(drawing.as_it_is, blocks(shape, scale, axis, size, dtype=dtype), k=shape[0], n=shape[1])

    def unsigned(zero):
        return conv(lambda g: g.dequantize(g.quantize("x", zero=zero, dtype="u8"), zero=zero, dtype="u8"))

    def zero_from_outside(g):
        g.input("z", [], "i8")
        return g.dequantize(g.quantize("x", zero="z"))

    def scale_from_outside(g):
        g.input("s", [], "f32")
        return g.dequantize(g.quantize("x", "s"), "s", to="f32")

    def first_of_three():
        g = drawing.Drawing()
        g.input("x", [2, 8, 128])
        w = g.dequantize(g.random((4, 128, 64), "i4"), np.full((2, 128, 64), 0.01), dtype="i4", scale_dtype="f16", axis=0, block_size=2)
        g.output(g.node("Concat", [g.node("MatMul", ["x", g.node("Slice", [w, *(g.weight([v], "i64") for v in (0, 2, 0))])])], axis=0), [2, 8, 64])
        return g

    def e5m2(g):
        return g.dequantize(g.random((64, 64), "f8e5m2"), 0.01, dtype="f8e5m2")

    def bias():
        g = drawing.Drawing(13)
        g.input("x", [1, 32, 16, 16], "f32")
        codes = g.weight(np.arange(32) - 16, "i32")
        b = g.dequantize(codes, np.full(32, 0.0005), axis=0)
        g.output(g.node("Conv", [g.pair("x", zero=0), g.coded((32, 32, 3, 3), 0), b], pads=[1] * 4), [1, 32, 16, 16], "f32")
        return g

    def integers():
        g = drawing.Drawing()
        g.input("a", [8, 64], "i8")
        g.input("b", [64, 8], "i8")
        g.output(g.node("MatMulInteger", ["a", "b"]), [8, 8], "i32")
        return g

    def fp4_act(size):
        g = drawing.Drawing()
        g.input("x", [8, 64])
        g.output(
            g.node("Identity", [g.node("TRT_FP4DynamicQuantize", ["x", g.weight(0.01)], domain="trt", outputs=2, axis=-1, block_size=size, scale_type=17)[1]]),
            [8, 4],
            "f8",
        )
        return g

    def fp4_weight(size):
        def weight(g):
            scale = g.dequantize(g.weight(np.ones((64 // size, 64)), "f8"), 0.01, to=None)
            codes = g.weight(np.random.default_rng(0).integers(-6, 7, (64, 64)), "f4")
            return g.node("Cast", [g.dequantize(codes, scale, to=None, axis=0, block_size=size)], to=10)

        return product(drawing.as_it_is, weight)

    def cast():
        g = drawing.Drawing()
        g.input("x", [8, 64])
        g.output(g.node("MatMul", [g.dequantize(g.node("Cast", ["x"], to=17)), g.coded((64, 64), None, dtype="f8")]), [8, 64])
        return g

    half = drawing.runs("Half", "Half")
    return [
        case("Q01", conv(lambda g: g.dequantize(g.quantize("x", zero=3), zero=3)), refused="Non-zero zero point is not supported"),
        case("Q02", unsigned(0), says="Defaulting to INT8 instead", layers=drawing.runs("Int8", "Int8")),
        case(
            "Q02-stored",
            product(drawing.as_it_is, lambda g: g.dequantize(g.weight(np.ones((64, 64)), "u8"), 0.01, 0, dtype="u8")),
            refused="unsupported input type of UINT8",
        ),
        case(
            "Q02-no-zero-point",
            product(lambda g: g.dequantize(g.node("QuantizeLinear", ["x", g.weight(0.05, "f16")]), scale_dtype="f16"), opset=19, scale_dtype="f16"),
            layers=drawing.runs("Int8", "Int8"),
        ),
        case("Q03-zero", conv(lambda g: g.pair("x", 0.0)), refused="Scale coefficients must all be positive"),
        case("Q03-negative", conv(lambda g: g.pair("x", -0.1)), refused="Scale coefficients must all be positive"),
        case("Q03-nan", conv(lambda g: g.pair("x", float("nan"))), refused="Scale coefficients must all be positive"),
        case("Q04-infinite", conv(lambda g: g.pair("x", float("inf"))), layers=drawing.runs("Int8", "Int8")),
        case("Q04-denormal", conv(lambda g: g.pair("x", 1e-40)), layers=drawing.runs("Int8", "Int8")),
        case("Q05", conv(weight=weight(16, 0)), refused="Number of output channels = 32, number of scales = 16"),
        case("Q06", conv(weight=weight(32, 0, np.zeros(16))), refused="The scale and zero point must have the same volume"),
        case("Q07", conv(weight=weight(0, 0)), refused="Cannot have scale with no coefficients"),
        case("Q08", conv(lambda g: g.pair("x", np.full(32, 0.05), axis=1)), layers=half),
        case("Q09", conv(weight=weight(32, 1)), layers=half),
        case("Q09-product", product(weight=lambda g: g.coded((64, 64), 0)), layers=drawing.mentions("CastMulCastFc")),
        case("Q10", conv(zero_from_outside), refused="has `zero_point` which is not an initializer"),
        case("Q10-scale", product(scale_from_outside, body="f32"), layers=drawing.mentions("CastMulCastFc")),
        case("Q11", int4((256, 64), (2, 32), 0, 128), refused="only the quantization axis may be blocked"),
        case("Q11-remainder", int4((202, 64), (3, 64), 0, 128), refused="The quantization axis must divide into whole blocks"),
        case("Q11-first-axis", first_of_three(), refused="The blocking dimension must be the last or second to last dimension"),
        case("Q11b", int4((200, 64), (2, 64), 0, 128), layers=drawing.mentions("ReplCastMulCastFc")),
        case("Q12", int4((256, 64), (2, 64), 0, 128, "i8"), layers=half),
        case("Q13", int4((3, 3), (1, 3), 0, 3), refused="Sub-byte quantization with odd tensor volume is not supported"),
        case("Q14", product(drawing.as_it_is, e5m2), refused="Failed to import initializer"),
        case("Q14-uint4", product(drawing.as_it_is, lambda g: g.dequantize(g.random((64, 64), "u4"), 0.01)), refused="Failed to import initializer"),
        case("Q15", bias(), refused="input has type Int32 but must have type FP8, FP4, Int4, Int8, or UInt8"),
        case("Q16", integers(), refused="checkMatMulInteger"),
        case("Q17", fp4_act(32), refused="Only block_size == 16 is supported", capability="SM120"),
        case("Q17-stored", fp4_weight(32), layers=half, capability="SM120"),
        case("Q18", cast(), refused="is not produced by IPluginLayer"),
        case("Q22-one-block", int4((256, 64), (1, 64), 0, 256), layers=half),
        case("Q22-one-block-of-128", int4((128, 64), (1, 64), 0, 128), layers=half),
        case("Q22-channel", product(drawing.as_it_is, lambda g: g.coded((256, 64), 1, dtype="i4", scale_dtype="f16"), k=256), layers=half),
        case(
            "Q22-refused", product(drawing.as_it_is, lambda g: g.coded((256, 64), 1, dtype="i4"), k=256), refused="Could not infer output types for operation"
        ),
        case("Q23", fp4_weight(16), layers=half, capability="SM120"),
    ]
