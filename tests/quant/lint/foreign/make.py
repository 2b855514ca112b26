"""Lets another tool quantize two small float networks: `python make.py onnxruntime|modelopt|nncf`, in an environment that has the tool.

Deterministic in what is drawn here; README.md says with which versions the graphs beside it were made.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).parent
SAMPLES = 4


def draw(random, *shape):
    return (random.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def finish(nodes, inputs, outputs, weights, opset):
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    infos = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in part.items()] for part in (inputs, outputs)]
    model = helper.make_model(helper.make_graph(nodes, "net", *infos, tensors), opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    onnx.checker.check_model(model, full_check=True)
    return model


def cnn(opset=19):
    """Convolutions, one of them depthwise behind ReLU6, a residual sum, pooling, a fully connected layer."""
    r = np.random.default_rng(0)
    weights = {
        "w0": draw(r, 16, 3, 3, 3),
        "b0": draw(r, 16),
        "w1": draw(r, 16, 1, 3, 3),
        "b1": draw(r, 16),
        "w2": draw(r, 16, 16, 1, 1),
        "b2": draw(r, 16),
        "w3": draw(r, 32, 16, 3, 3),
        "b3": draw(r, 32),
        "w4": draw(r, 16, 32),
        "b4": draw(r, 16),
        "zero": np.float32(0),
        "six": np.float32(6),
    }
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], name="stem", pads=[1, 1, 1, 1]),
        node("Relu", ["c0"], ["r0"], name="stem_relu"),
        node("Conv", ["r0", "w1", "b1"], ["c1"], name="depthwise", pads=[1, 1, 1, 1], group=16),
        node("Clip", ["c1", "zero", "six"], ["r1"], name="relu6"),
        node("Conv", ["r1", "w2", "b2"], ["c2"], name="pointwise"),
        node("Add", ["c2", "r0"], ["sum"], name="residual"),
        node("Conv", ["sum", "w3", "b3"], ["c3"], name="down", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c3"], ["r3"], name="down_relu"),
        node("GlobalAveragePool", ["r3"], ["p"], name="pool"),
        node("Flatten", ["p"], ["f"], name="flatten"),
        node("Gemm", ["f", "w4", "b4"], ["y"], name="classifier", transB=1),
    ]
    return finish(nodes, {"x": [4, 3, 16, 16]}, {"y": [4, 16]}, weights, opset)


def mlp(opset=19):
    """LayerNormalization, two products with an activation between them, a residual sum."""
    r = np.random.default_rng(1)
    weights = {
        "g": np.ones(32, np.float32),
        "n": np.zeros(32, np.float32),
        "w0": draw(r, 32, 64),
        "b0": draw(r, 64),
        "w1": draw(r, 64, 32),
        "b1": draw(r, 32),
    }
    node = helper.make_node
    nodes = [
        node("LayerNormalization", ["x", "g", "n"], ["l"], name="norm"),
        node("MatMul", ["l", "w0"], ["m0"], name="up"),
        node("Add", ["m0", "b0"], ["a0"], name="up_bias"),
        node("Relu", ["a0"], ["r0"], name="relu"),
        node("MatMul", ["r0", "w1"], ["m1"], name="down"),
        node("Add", ["m1", "b1"], ["a1"], name="down_bias"),
        node("Add", ["a1", "x"], ["y"], name="residual"),
    ]
    return finish(nodes, {"x": [16, 32]}, {"y": [16, 32]}, weights, opset)


NETS = {"cnn": (cnn, [4, 3, 16, 16]), "mlp": (mlp, [16, 32])}


def samples(net):
    return [{"x": np.random.default_rng(seed).normal(size=NETS[net][1]).astype(np.float32)} for seed in range(SAMPLES)]


def onnxruntime(net, folder):
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.left = samples(net)

        def get_next(self):
            return self.left.pop(0) if self.left else None

    source = folder / "float.onnx"
    onnx.save(NETS[net][0](), source)
    s8, u8 = QuantType.QInt8, QuantType.QUInt8
    told = {"ActivationSymmetric": True, "WeightSymmetric": True, "QuantizeBias": False}
    quantize_static(
        source, HERE / f"onnxruntime-default-{net}.onnx", Reader(), quant_format=QuantFormat.QDQ, activation_type=u8, weight_type=s8, per_channel=True
    )
    quantize_static(
        source,
        HERE / f"onnxruntime-symmetric-{net}.onnx",
        Reader(),
        quant_format=QuantFormat.QDQ,
        activation_type=s8,
        weight_type=s8,
        per_channel=True,
        extra_options=told,
    )
    quantize_static(source, HERE / f"onnxruntime-operators-{net}.onnx", Reader(), quant_format=QuantFormat.QOperator, activation_type=u8, weight_type=s8)
    quantize_dynamic(source, HERE / f"onnxruntime-dynamic-{net}.onnx")


def modelopt(net, folder):
    from modelopt.onnx.quantization import quantize

    source = folder / "float.onnx"
    onnx.save(NETS[net][0](), source)
    rows = {"x": np.stack([feed["x"] for feed in samples(net)]).reshape(-1, *NETS[net][1][1:])}
    asked = {
        "int8-fp16": {"quantize_mode": "int8", "calibration_method": "entropy", "high_precision_dtype": "fp16"},
        "int8-fp32": {"quantize_mode": "int8", "calibration_method": "max", "high_precision_dtype": "fp32"},
        "fp8-fp16": {"quantize_mode": "fp8", "calibration_method": "max", "high_precision_dtype": "fp16"},
    }
    if net == "mlp":
        asked["int4-fp16"] = {"quantize_mode": "int4", "calibration_method": "rtn_dq", "high_precision_dtype": "fp16"}
    for title, options in asked.items():
        to = HERE / f"modelopt-{title}-{net}.onnx"
        quantize(str(source), output_path=str(to), calibration_data=rows, calibration_eps=["cpu"], **options)


def nncf(net, folder):
    import nncf as tool

    del folder
    for title, options in {"default": {}, "mixed": {"preset": tool.QuantizationPreset.MIXED}}.items():
        data = tool.Dataset(samples(net))
        made = tool.quantize(NETS[net][0](), data, subset_size=SAMPLES, **options)
        onnx.save(made, HERE / f"nncf-{title}-{net}.onnx")


if __name__ == "__main__":
    import tempfile

    for name in NETS:
        with tempfile.TemporaryDirectory() as scratch:
            {"onnxruntime": onnxruntime, "modelopt": modelopt, "nncf": nncf}[sys.argv[1]](name, Path(scratch))
