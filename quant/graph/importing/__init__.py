"""Bringing a model in: an ONNX file, a Hugging Face encoder or a torch module becomes one clean ONNX graph."""

from quant.graph.importing.bring import import_model
from quant.graph.importing.clean_up import clean
from quant.graph.importing.head import fit_linear_probe
from quant.graph.importing.opset import MINIMUM_OPSET, opset_for, raise_opset
from quant.graph.importing.report import HeadReport, ImportReport, Step

__all__ = ["MINIMUM_OPSET", "HeadReport", "ImportReport", "Step", "clean", "fit_linear_probe", "import_model", "opset_for", "raise_opset"]
