"""onnxruntime's own quantization. Runs in an environment with onnx and onnxruntime: `python with_onnxruntime.py MODEL CALIBRATION.npz FOLDER KIND`."""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process


def feeds_of(path):
    """The calibration inputs: `NUMBER/INPUT` -> array."""
    found = {}
    with np.load(path) as stored:
        for key in stored.files:
            number, name = key.split("/", 1)
            found.setdefault(int(number), {})[name] = stored[key]
    return [found[number] for number in sorted(found)]


class Reader(CalibrationDataReader):
    """Gives one input after the other."""

    def __init__(self, feeds):
        self._left = iter(feeds)

    def get_next(self):
        """The next input, None behind the last."""
        return next(self._left, None)


def main(model, calibration, folder, _kind):
    """Quantize in two ways."""
    ready = Path(folder) / "ready.onnx"
    quant_pre_process(model, str(ready), skip_symbolic_shape=True)
    static, dynamic = Path(folder) / "ort-static.onnx", Path(folder) / "ort-dynamic.onnx"
    quantize_static(
        str(ready),
        str(static),
        Reader(feeds_of(calibration)),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
    )
    quantize_dynamic(str(ready), str(dynamic), weight_type=QuantType.QInt8, per_channel=True)
    made = {"ort-static": [static.name, ["onnxruntime", "openvino"]], "ort-dynamic": [dynamic.name, ["onnxruntime"]]}
    versions = {"onnxruntime": onnxruntime.__version__, "onnx": onnx.__version__}
    (Path(folder) / "made.json").write_text(json.dumps({"versions": versions, "made": made}))


if __name__ == "__main__":
    main(*sys.argv[1:])
