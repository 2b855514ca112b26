"""A graph of the kind that ONNX Runtime 1.32 breaks: INT8 Q/DQ with FP16 scales in an FP16 body; a test file loads this one by its path.

At its basic level ONNX Runtime writes the bias of a convolution in INT32 steps of (scale of the input x scale of the weight),
and divides in the bias's own type: an FP16 quotient beyond 65504 becomes infinite. The biases of `expand` do that, the others not.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANNELS = 8
STEP = np.float16(6 / 255)  # activations lie in 0..6, as behind a Clip
BROKEN = "expand"


def half_scales(seed=0, classes=5):
    """Five layers; `x` `[N, 8, 6, 6]` in 0..6 gives `logits` `[N, classes]`."""
    made = _Graph(np.random.default_rng(seed))
    made.node("Cast", ["x"], "x_half", to=TensorProto.FLOAT16)
    value = made.pair("x_half")
    for name, group, mean, bias in (("stem", 1, 0.0, 1.0), (BROKEN, 1, 0.75, -18.0), ("depthwise", CHANNELS, 0.0, 1.0), ("project", 1, 0.0, 1.0)):
        value = made.conv(name, value, group=group, mean=mean, bias=bias)
    made.node("GlobalAveragePool", [value], "pooled")
    made.node("Flatten", ["pooled"], "flat")
    weight = made.weight("head", made.random.normal(size=(classes, CHANNELS)))
    made.node("Gemm", [made.pair("flat"), weight, made.half("head_bias", made.random.normal(size=classes) / 4)], "logits_half", name="head", transB=1)
    made.node("Cast", ["logits_half"], "logits", to=TensorProto.FLOAT)
    return made.model(classes)


class _Graph:
    """Nodes and weights as they are written."""

    def __init__(self, random):
        self.random = random
        self.nodes = []
        self.weights = []

    def node(self, op, inputs, output, name=None, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [output], name=name or output, **attributes))
        return output

    def keep(self, name, array):
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def half(self, name, array):
        return self.keep(name, np.asarray(array, np.float16))

    def pair(self, value):
        """Q/DQ behind `value`: unsigned, of 0..6."""
        params = [self.half(f"{value}_scale", STEP), self.keep(f"{value}_zero", np.uint8(0))]
        return self.node("DequantizeLinear", [self.node("QuantizeLinear", [value, *params], f"{value}_codes"), *params], f"{value}_dequantized")

    def weight(self, name, array):
        """INT8 codes and FP16 scales of each output channel, dequantized."""
        scale = (np.abs(array).reshape(len(array), -1).max(axis=1) / 127).astype(np.float16)
        steps = scale.astype(np.float64).reshape(-1, *[1] * (array.ndim - 1))
        codes = self.keep(f"{name}_codes", np.clip(np.rint(array / steps), -127, 127).astype(np.int8))
        params = [self.keep(f"{name}_scale", scale), self.keep(f"{name}_zero", np.zeros(len(array), np.int8))]
        return self.node("DequantizeLinear", [codes, *params], f"{name}_weight", axis=0)

    def conv(self, name, value, *, group, mean, bias):
        size = 3 if group > 1 else 1
        array = mean + self.random.normal(size=(CHANNELS, CHANNELS // group, size, size)) * (0.4 if mean else 0.5)
        biases = self.half(f"{name}_bias", bias + self.random.normal(size=CHANNELS) / 4)
        self.node("Conv", [value, self.weight(name, array), biases], f"{name}_sum", name=name, group=group, kernel_shape=[size] * 2, pads=[size // 2] * 4)
        limits = [self.half(f"{name}_low", 0), self.half(f"{name}_high", 6)]
        return self.pair(self.node("Clip", [f"{name}_sum", *limits], f"{name}_clipped"))

    def model(self, classes):
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", ["N", CHANNELS, 6, 6]), ("logits", ["N", classes]))]
        graph = helper.make_graph(self.nodes, "half_scales", ends[:1], ends[1:], self.weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        made = onnx.shape_inference.infer_shapes(made, strict_mode=True)
        onnx.checker.check_model(made, full_check=True)
        return made


def inputs(samples=16, seed=1):
    """`samples` inputs in 0..6."""
    return np.random.default_rng(seed).uniform(0, 6, size=(samples, CHANNELS, 6, 6)).astype(np.float32)
