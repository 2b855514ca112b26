"""The backends of Triton that can serve an artifact of another target, and what each wants of the configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Device = Literal["cpu", "gpu"]


@dataclass(frozen=True)
class Backend:
    """A backend of Triton.

    Args:
        name: What a configuration calls it.
        suffix: How the file that it opens ends.
        devices: What it can run on; the first is what it runs on when nothing is said.
        numbered: Whether inputs and outputs go by their position, as in `INPUT__0`: TorchScript has no names for them.
        graphs: Whether it can record CUDA graphs, and choose a file by the GPU's compute capability.
    """

    name: str
    suffix: str
    devices: tuple[Device, ...]
    numbered: bool = False
    graphs: bool = False


BACKENDS = {
    "onnxruntime": Backend("onnxruntime", ".onnx", ("cpu", "gpu")),
    "openvino": Backend("openvino", ".xml", ("cpu",)),
    "tensorrt": Backend("tensorrt", ".engine", ("gpu",), graphs=True),
    "torch": Backend("pytorch", ".pt", ("cpu", "gpu"), numbered=True),
}
"""Kind of target -> the backend for its artifacts."""

REFUSED = {
    "tensorrt-rtx": "Triton has no backend for TensorRT-RTX engines; its TensorRT backend opens those of TensorRT alone",
    "tvm": "Triton has no backend for libraries that TVM compiles",
    "triton": "a model repository cannot hold another",
}
"""Kind of target -> why none serves its artifacts."""
