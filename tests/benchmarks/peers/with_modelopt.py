"""ModelOpt's quantization of ONNX graphs. Runs in an environment with nvidia-modelopt: `python with_modelopt.py MODEL CALIBRATION.npz FOLDER KIND`."""

import json
import sys
from pathlib import Path

import modelopt
import numpy as np
import onnx
from modelopt.onnx.quantization import quantize


def stacked(path):
    """All calibration inputs in one array for each input; shorter ones end in zeros."""
    found = {}
    with np.load(path) as stored:
        for key in stored.files:
            found.setdefault(key.split("/", 1)[1], []).append(stored[key])
    whole = {}
    for name, arrays in found.items():
        longest = [max(sizes) for sizes in zip(*(a.shape[1:] for a in arrays), strict=True)]
        ends = [[(0, 0), *((0, most - size) for most, size in zip(longest, a.shape[1:], strict=True))] for a in arrays]
        whole[name] = np.concatenate([np.pad(a, end) for a, end in zip(arrays, ends, strict=True)])
    return whole


def main(model, calibration, folder, _kind):
    """Quantize to INT8."""
    place = Path(folder) / "modelopt.onnx"
    quantize(model, quantize_mode="int8", calibration_data=stacked(calibration), calibration_eps=["cpu"], output_path=str(place), high_precision_dtype="fp32")
    made = {"modelopt": [place.name, ["onnxruntime", "openvino"]]}
    (Path(folder) / "made.json").write_text(json.dumps({"versions": {"modelopt": modelopt.__version__, "onnx": onnx.__version__}, "made": made}))


if __name__ == "__main__":
    main(*sys.argv[1:])
