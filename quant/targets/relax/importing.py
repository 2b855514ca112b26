"""ONNX -> Relax, with TVM's own importer; layers become the kernels of `kernels`, each with the name of its node.

What TVM would do with Q/DQ around a layer is to compute it in float. Here a layer whose operands are codes multiplies the codes:

    sum of (x - zero) w = sum of x w - zero * (sum of w)

The first sum is the kernel's, in INT32; the rest is a constant for each output channel. Scale and bias follow in float, and TVM fuses
them, and whatever follows element by element, into the kernel.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter, onnx_input

from quant.errors import TargetError
from quant.targets.relax import convolutions, others, products, quantizers
from quant.targets.relax.graph import Codes, Graph, dtype_of, is_tensor

Converter = Callable[[Graph, str, Sequence[Any], dict[str, Any]], Any]
"""Graph, name of the node, inputs, attributes -> its result, or None where TVM's own converter is to do it."""

_CONVERTERS: Mapping[str, Converter] = {
    "Conv": convolutions.conv,
    "ConvTranspose": convolutions.conv_transpose,
    "MatMul": products.matmul,
    "Gemm": products.gemm,
    "MatMulInteger": products.matmul_integer,
    "Gather": others.gather,
    "Clip": others.clip,
    "Range": others.count,
    "Softmax": others.softmax,
    "Erf": others.erf,
    "Gelu": others.gelu,
    "QuantizeLinear": quantizers.quantize,
    "DequantizeLinear": quantizers.dequantize,
    "DynamicQuantizeLinear": quantizers.dynamic_quantize,
}
_MOVING = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Identity"})
_TYPED = frozenset({"Cast", "CastLike", "If", "QuantizeLinear", "DequantizeLinear"}) | _MOVING
"""Operators that say themselves what type they give, or take a tensor as it is; all others compute halves in FP32."""


def import_graph(model: onnx.ModelProto) -> Any:
    """The Relax module of an ONNX model, its dynamic dimensions symbolic.

    Raises:
        TargetError: TVM refuses a node.
    """
    opset = next(o.version for o in model.opset_import if o.domain in {"", "ai.onnx"})
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # TVM prints what it refuses
            return Importer().from_onnx(model.graph, opset)
    except TargetError:
        raise
    except Exception as error:  # as in `Importer`
        node = next((n for n in model.graph.node if n.op_type in str(error).replace(",", " ").split()), None)
        raise _refusal(error, node.name if node is not None else "", node.op_type if node is not None else "") from error


class Importer(ONNXGraphImporter):  # type: ignore[misc]  # TVM has no types
    """TVM's importer, with converters of our own for layers and what stands around them."""

    def __init__(self) -> None:
        super().__init__({}, "float32", sanitize=False)
        self._graph = Graph(self.bb)

    def _convert_operator(self, op_name: str, inputs: Sequence[Any], attrs: dict[str, Any], opset: int) -> Any:
        """The result of one node; TVM's importer calls this for each.

        Raises:
            TargetError: TVM refuses the node.
        """
        name, graph = str(attrs["tvm_custom"]["name"]), self._graph
        try:
            own = _CONVERTERS.get(op_name)
            found = own(graph, name, inputs, attrs) if own is not None else None
            if found is None:
                found = graph.last.convert(op_name, inputs, attrs, lambda given: self._converted(op_name, given, attrs, opset))
            if found is None:
                found = self._converted(op_name, inputs, attrs, opset)
            if op_name in _MOVING and (codes := graph.codes.get(inputs[0])) is not None:
                moved = self._converted(op_name, [codes.values, *inputs[1:]], attrs, opset)
                graph.codes[found] = Codes(moved, codes.scale, codes.zero)
        except TargetError as error:
            raise error.at(f"node {name!r} ({op_name})") from error
        except Exception as error:  # TVM's errors, and those of the code that it is written in, have no common class
            raise _refusal(error, name, op_name) from error
        return found

    def _converted(self, op_name: str, inputs: Sequence[Any], attrs: dict[str, Any], opset: int) -> Any:
        """What TVM's own converter makes of a node; of halves, what it makes of them in FP32, rounded to halves again."""
        graph, convert = self._graph, super()._convert_operator
        halves = [is_tensor(v) and dtype_of(v) == "float16" for v in inputs]
        if op_name in _TYPED or not any(halves):
            return graph.emit(convert(op_name, onnx_input(inputs), attrs, opset))
        wide = [graph.cast(v, "float32") if half else v for v, half in zip(inputs, halves, strict=True)]
        return graph.cast(graph.emit(convert(op_name, onnx_input(wide), attrs, opset)), "float16", of="float32")


def said(error: BaseException) -> str:
    """What TVM says, without the places in its source code that it says it from."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("File ", "Traceback", "[bt]", "Stack trace"))]
    return f"{type(error).__name__}: {told[-1] if told else 'no reason given'}"


def _refusal(error: Exception, name: str, op: str) -> TargetError:
    """TVM's refusal of a node, in its own words."""
    where = f"node {name!r} ({op})" if op else ""
    return TargetError(
        f"TVM cannot import the model: {said(error)}", where=where, hint="leave this model to another target, or write the node in other operators"
    )
