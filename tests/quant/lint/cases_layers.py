"""Smallest graphs that break the rules about layers and about where Q/DQ stand."""

import numpy as np


def cases(drawing):
    """All cases of this file."""
    case, conv, product, runs, mentions = drawing.Case, drawing.conv, drawing.product, drawing.runs, drawing.mentions

    def attention(dtype, *, softmax=True, size=64):
        g = drawing.Drawing()
        q, k, v = (g.input(name, [1, 4, 128, size]) for name in "qkv")
        scores = g.node("MatMul", [g.pair(q, dtype=dtype), g.pair(g.node("Transpose", [k], perm=[0, 1, 3, 2]), dtype=dtype)])
        chances = g.node("Softmax", [g.node("Mul", [scores, g.weight(0.125, "f16")])], axis=-1)
        if softmax:
            chances = g.pair(chances, 1 / 448, dtype=dtype)
        g.output(g.node("MatMul", [chances, g.pair(v, dtype=dtype)]), [1, 4, 128, size])
        return g

    def between(middle):
        g = drawing.Drawing()
        g.input("x", [1, 32, 16, 16])
        first = g.node("Conv", [g.pair("x"), g.coded((32, 32, 3, 3), 0)], pads=[1] * 4)
        g.output(g.node("Conv", [middle(g, first), g.coded((32, 32, 3, 3), 0)], pads=[1] * 4), [1, 32, 16, 16])
        return g

    def residual():
        g = drawing.Drawing()
        g.input("x", [1, 32, 16, 16])
        skip = g.node("Relu", ["x"])
        y = g.node("Conv", [g.pair(skip), g.coded((32, 32, 3, 3), 0)], pads=[1] * 4)
        y = g.node("Relu", [g.node("Add", [y, skip])])
        g.output(g.node("Conv", [g.pair(y), g.coded((32, 32, 3, 3), 0)], pads=[1] * 4), [1, 32, 16, 16])
        return g

    def joined():
        g = drawing.Drawing()
        g.input("x", [1, 32, 8, 8])
        g.input("y", [1, 32, 8, 8])
        both = g.node("Concat", [g.pair("x", 0.05), g.pair("y", 0.07)], axis=1)
        g.output(g.node("Conv", [g.pair(both), g.coded((32, 64, 1, 1), 0)]), [1, 32, 8, 8])
        return g

    def average():
        g = drawing.Drawing()
        g.input("x", [1, 32, 8, 8])
        y = g.node("AveragePool", [g.pair("x")], kernel_shape=[2, 2], strides=[2, 2])
        g.output(g.node("Conv", [g.pair(y), g.coded((32, 32, 1, 1), 0)]), [1, 32, 4, 4])
        return g

    def families():
        g = drawing.Drawing()
        g.input("x", [8, 64])
        y = g.node("MatMul", [g.pair("x"), g.coded((64, 64), 1)])
        g.output(g.node("MatMul", [g.pair(y, dtype="f8"), g.coded((64, 64), 1, dtype="f8")]), [8, 64])
        return g

    def fp8_kernel(size):
        return conv(lambda g: g.pair("x", dtype="f8"), lambda g: g.coded((32, 32, size, size), 0, dtype="f8"), pad=size // 2)

    def twice(g):
        return g.pair(g.coded((32, 32, 3, 3), 0), np.full(32, 0.01), axis=0)

    return [
        case("Q19", conv(weight=twice), layers=runs("Int8", "Int8")),
        case("Q20", conv(lambda g: g.pair("x", dtype="f8")), refused="CHECK(dtype == W.type()) failed"),
        case("Q20-product", product(lambda g: g.pair("x", dtype="f8")), refused="Input and filter have to be the same type"),
        case("Q21-activation", conv(weight=lambda g: g.random((32, 32, 3, 3), "f16")), layers=runs("Half", "Half")),
        case("Q21-weight", conv(drawing.as_it_is), layers=runs("Half", "Half")),
        case("Q21-product", product(weight=lambda g: g.random((64, 64), "f16")), layers=runs("Int8", "Half")),
        case("Q24", attention("f8", softmax=False), layers=lambda text: "mha" not in text),
        case("Q24-head", attention("f8", size=512), layers=lambda text: "mha" not in text),
        case("Q25", between(lambda g, y: g.pair(g.node("Relu", [g.pair(y)]))), layers=mentions("RounCastCast")),
        case("Q25-sigmoid", between(lambda g, y: g.pair(g.node("Sigmoid", [g.pair(y)]))), layers=mentions("RounCastCast")),
        case("Q25-bias", biased(drawing), layers=mentions("RounCastCast")),
        case("Q25-residual", between(summed), layers=mentions("RounCastCast")),
        case("Q26", residual(), layers=lambda text: any("Add" in line and "Datatype: Half" in line.split("Outputs:")[0] for line in text.splitlines())),
        case("Q27", joined(), layers=mentions("RounCastCastMul")),
        case("Q28", fp8_kernel(7), layers=runs("Half", "Half")),
        case("Q29", average(), layers=lambda text: any("avgpool" in line and "Datatype: Half" in line for line in text.splitlines())),
        case("Q29-flattened", averaged_over_the_image(drawing), layers=mentions("RounCastCastMulCastMean")),
        case("Q30", product(weight=lambda g: g.node("Cast", [g.coded((64, 64), 1, to="f32")], to=10)), layers=runs("Int8", "Int8")),
        case("Q31", families(), layers=lambda text: "Datatype: Int8" in text and "Datatype: FP8" in text),
        case("Q32", product(lambda g: g.dequantize(g.quantize("x", 0.05), 0.06)), layers=runs("Int8", "Int8")),
        case(
            "H01",
            product(lambda g: g.pair("x", dtype="f8"), lambda g: g.coded((64, 64), 1, dtype="f8")),
            refused="Cannot compile for target(s) sm86",
            capability="SM86",
        ),
    ]


def summed(g, y):
    return g.pair(g.node("Add", [g.pair(y), g.pair("x")]))


def averaged_over_the_image(drawing):
    g = drawing.Drawing()
    g.input("x", [8, 64, 8, 8])
    y = g.node("Flatten", [g.node("GlobalAveragePool", [g.pair("x")])])
    g.output(g.node("MatMul", [g.pair(y), g.coded((64, 64), 1)]), [8, 64])
    return g


def biased(drawing):
    g = drawing.Drawing()
    g.input("x", [8, 64])
    y = g.node("MatMul", [g.pair("x"), g.coded((64, 64), 1)])
    g.output(g.node("Relu", [g.node("Add", [g.pair(y), g.weight(np.linspace(-1, 1, 64), "f16")])]), [8, 64])
    return g
