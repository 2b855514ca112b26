"""NNCF's quantization after training. Runs in an environment with nncf, openvino and onnx: `python with_nncf.py MODEL CALIBRATION.npz FOLDER KIND`."""

import json
import sys
from pathlib import Path

import nncf
import numpy as np
import onnx
import openvino


def feeds_of(path):
    """The calibration inputs: `NUMBER/INPUT` -> array."""
    found = {}
    with np.load(path) as stored:
        for key in stored.files:
            number, name = key.split("/", 1)
            found.setdefault(int(number), {})[name] = stored[key]
    return [found[number] for number in sorted(found)]


def main(model, calibration, folder, kind):
    """Quantize the ONNX graph, and the model as OpenVINO reads it."""
    feeds = feeds_of(calibration)
    told = {"preset": nncf.QuantizationPreset.MIXED, "subset_size": len(feeds)}
    if kind == "transformer":
        told["model_type"] = nncf.ModelType.TRANSFORMER
    made, said = {}, {}
    try:
        onnx.save(nncf.quantize(onnx.load(model), nncf.Dataset(feeds), **told), Path(folder) / "nncf-onnx.onnx")
        made["nncf-onnx"] = ["nncf-onnx.onnx", ["onnxruntime"]]
    except Exception as error:  # noqa: BLE001 - whatever a peer says of a model that it does not take is told
        said["nncf-onnx"] = repr(error)[:300]
    openvino.save_model(nncf.quantize(openvino.Core().read_model(model), nncf.Dataset(feeds), **told), Path(folder) / "nncf.xml", compress_to_fp16=False)
    made["nncf"] = ["nncf.xml", ["openvino"]]
    versions = {"nncf": nncf.__version__, "openvino": openvino.__version__}
    (Path(folder) / "made.json").write_text(json.dumps({"versions": versions, "made": made, "said": said}))


if __name__ == "__main__":
    main(*sys.argv[1:])
