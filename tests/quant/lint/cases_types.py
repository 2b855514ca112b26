"""Smallest graphs that break the rules about types and about the model as a whole."""

import numpy as np


def cases(drawing):
    """All cases of this file."""
    case, runs = drawing.Case, drawing.runs

    def one(op, *others, shape=(8, 64), dtype="f16", made=None, opset=23, domain="", **attributes):
        g = drawing.Drawing(opset)
        g.input("x", list(shape), dtype)
        inputs = ["x", *(g.random(size, kind) for size, kind in others)]
        g.output(g.node(op, inputs, domain=domain, **attributes), list(shape), made or dtype)
        return g

    def bytes_added():
        g = drawing.Drawing()
        g.input("x", [8, 64], "u8")
        g.output(g.node("Add", ["x", "x"]), [8, 64], "u8")
        return g

    def written_out():
        g = drawing.Drawing(17)
        g.input("x", [8, 64])
        centred = g.node("Sub", ["x", g.node("ReduceMean", ["x"], axes=[-1])])
        variance = g.node("ReduceMean", [g.node("Pow", [centred, g.weight(2, "f16")])], axes=[-1])
        g.output(g.node("Div", [centred, g.node("Sqrt", [g.node("Add", [variance, g.weight(1e-5, "f16")])])]), [8, 64])
        return g

    def clamped():
        g = drawing.Drawing()
        g.input("x", [8, 64])
        g.output(g.node("MatMul", ["x", g.node("Cast", [g.weight(np.full((64, 64), 1e6))], to=10)]), [8, 64])
        return g

    def axes():
        g = drawing.Drawing()
        g.input("x", [8, 64], "f32")
        g.input("axes", [1], "i64")
        g.output(g.node("ReduceSum", ["x", "axes"], keepdims=1), [8, 1], "f32")
        return g

    return [
        case("T01", one("Add", ((64,), "f32")), refused="ElementWiseOperation SUM must have same input types. But they are of types Half and Float."),
        case("T02", one("Conv", ((32, 32, 1, 1), "f32"), shape=(1, 32, 8, 8)), refused="`input` and `kernel` must be of same type"),
        case("T02-bias", one("Conv", ((32, 32, 1, 1), "f16"), ((32,), "f32"), shape=(1, 32, 8, 8)), refused="`input` and `bias` must be of same type"),
        case("T03", one("MatMul", ((64, 64), "f32")), refused="IMatrixMultiplyLayer must have same input types"),
        case("T04", one("LayerNormalization", ((64,), "f32"), ((64,), "f32")), refused="`input` and `scale` must have identical types"),
        case("T05", one("Relu", made="f32"), layers=lambda text: "Datatype: Half" in text.split("Outputs:")[-1]),
        case("T06", bytes_added(), refused="But type is UInt8"),
        case("T07", written_out(), says="Running layernorm after self-attention with FP16 Reduce or Pow may cause overflow"),
        case("T08", clamped(), layers=runs("Half", "Half")),
        case("M01", one("Foo", domain="acme", dtype="f32"), refused="Plugin not found, are the plugin name, version, and namespace correct?"),
        case("M01-standard", one("Bernoulli", dtype="f32"), refused="checkBernoulli"),
        case("M01-old", one("Relu", opset=6, dtype="f32"), says="at least opset 7"),
        case("M03", one("Cast", dtype="i16", made="f32", to=1), refused="Failed to convert ONNX date type"),
        case("M04", axes(), refused="must resolve to a build-time constant"),
        case("P01", one("Relu", shape=("N", 64)), refused="no optimization profile has been defined", mild=True),
    ]
