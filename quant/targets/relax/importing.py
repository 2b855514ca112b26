"""ONNX -> Relax, with TVM's own importer; layers become the kernels of `kernels`, each with the name of its node.

What TVM would do with Q/DQ around a layer is to compute it in float. Here a layer whose operands are codes multiplies the codes:

    sum of (x - zero) w = sum of x w - zero * (sum of w)

The first sum is the kernel's, in INT32; the rest is a constant for each output channel. Scale and bias follow in float, and TVM fuses
them, and whatever follows element by element, into the kernel.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from tvm import relax, tirx, topi
from tvm.ir import GenericConst, is_prim_expr
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter, onnx_input

from quant.errors import TargetError
from quant.targets.relax import kernels
from quant.targets.relax.layout import ChannelsLast

# How a function may be fused, as TVM numbers it: element by element, with what follows element by element, not at all.
_ELEMENTWISE, _WITH_WHAT_FOLLOWS, _ALONE = 0, 4, 8
_MOVING = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Identity"})
_TYPED = frozenset({"Cast", "CastLike", "If", "QuantizeLinear", "DequantizeLinear"}) | _MOVING
"""Operators that say themselves what type they give, or take a tensor as it is; all others compute halves in FP32."""
_MATRIX = 2
_SOFTMAX_ALONG_ONE_AXIS = 13
"""Operator set from which Softmax goes along one axis; before, along all from one on."""


@dataclass(frozen=True)
class Codes:
    """A tensor that was dequantized, as it was before.

    Args:
        values: Its codes.
        scale: Its scale, one for all.
        zero: The code of 0.
    """

    values: Any
    scale: npt.NDArray[np.float32]
    zero: int


@dataclass(frozen=True)
class Weights:
    """A dequantized constant: its codes, and a scale for each slice along `axis` (one for all when it is None)."""

    codes: npt.NDArray[Any]
    scale: npt.NDArray[np.float32]
    zero: npt.NDArray[Any]
    axis: int | None

    def floats(self) -> npt.NDArray[np.float32]:
        """What it stands for."""
        shape = [1] * self.codes.ndim
        if self.axis is not None:
            shape[self.axis] = -1
        return ((self.codes.astype(np.int32) - self.zero.astype(np.int32).reshape(shape)) * self.scale.reshape(shape)).astype(np.float32)


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
        raise refusal(error, node.name if node is not None else "", node.op_type if node is not None else "") from error


class Importer(ONNXGraphImporter):  # type: ignore[misc]  # TVM has no types
    """TVM's importer, with converters of our own for layers and what stands around them."""

    def __init__(self) -> None:
        super().__init__({}, "float32", sanitize=False)
        self._codes: dict[Any, Codes] = {}
        self._weights: dict[Any, Weights] = {}
        self._last = ChannelsLast(self._emit)
        self._own: dict[str, Callable[[str, Sequence[Any], dict[str, Any]], Any]] = {
            "Conv": self._conv,
            "ConvTranspose": self._conv_transpose,
            "MatMul": self._matmul,
            "Gemm": self._gemm,
            "MatMulInteger": self._matmul_integer,
            "Gather": self._gather,
            "Clip": self._clip,
            "Range": self._range,
            "Softmax": self._softmax,
            "Erf": self._erf,
            "Gelu": self._gelu,
            "QuantizeLinear": self._quantize,
            "DequantizeLinear": self._dequantize,
            "DynamicQuantizeLinear": self._dynamic_quantize,
        }

    def _emit(self, expression: Any) -> Any:
        """Bind a result to a variable, so that it is computed once whoever reads it."""
        if isinstance(expression, relax.Tuple):
            return relax.Tuple([self._emit(field) for field in expression.fields])
        if isinstance(expression, GenericConst | relax.Var | relax.ShapeExpr) or not isinstance(expression, relax.Expr):
            return expression
        expression = self.bb.normalize(expression)
        return self.bb.emit(expression) if isinstance(expression.ty, relax.TensorType) else expression

    def _convert_operator(self, op_name: str, inputs: Sequence[Any], attrs: dict[str, Any], opset: int) -> Any:
        name = str(attrs["tvm_custom"]["name"])
        try:
            own = self._own.get(op_name)
            found = own(name, inputs, attrs) if own is not None else None
            if found is None:
                found = self._last.convert(op_name, inputs, attrs, lambda given: self._converted(op_name, given, attrs, opset))
            if found is None:
                found = self._converted(op_name, inputs, attrs, opset)
            if op_name in _MOVING and inputs[0] in self._codes:
                codes = self._codes[inputs[0]]
                moved = self._converted(op_name, [codes.values, *list(inputs)[1:]], attrs, opset)
                self._codes[found] = Codes(moved, codes.scale, codes.zero)
        except TargetError:
            raise
        except Exception as error:  # TVM's errors, and those of the code that it is written in, have no common class
            raise refusal(error, name, op_name) from error
        return found

    def _converted(self, op_name: str, inputs: Sequence[Any], attrs: dict[str, Any], opset: int) -> Any:
        halves = [isinstance(getattr(v, "ty", None), relax.TensorType) and _dtype(v) == "float16" for v in inputs]
        if op_name in _TYPED or not any(halves):
            return self._emit(super()._convert_operator(op_name, onnx_input(inputs), attrs, opset))
        wide = [self._cast(v, "float32") if half else v for v, half in zip(inputs, halves, strict=True)]
        return self._cast(self._emit(super()._convert_operator(op_name, onnx_input(wide), attrs, opset)), "float16", of="float32")

    def _cast(self, value: Any, dtype: str, *, of: str | None = None) -> Any:
        """`value` in another type; of several, those of type `of`."""
        if isinstance(value, relax.Tuple):
            return relax.Tuple([self._cast(field, dtype, of=of) for field in value.fields])
        if of is not None and not (isinstance(getattr(value, "ty", None), relax.TensorType) and _dtype(value) == of):
            return value
        array = self._array(value)
        return relax.const(array.astype(dtype)) if array is not None else self._emit(relax.op.astype(value, dtype))

    # Layers

    def _conv(self, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        x, w, bias = inputs[0], inputs[1], inputs[2]
        shape = _shape(w)
        group, channels = int(attrs.get("group", 1)), shape[0]
        if not all(isinstance(n, int) for n in (_shape(x)[1], *shape)):
            return None
        window = _window(attrs, shape[2:], _shape(x)[2:])
        weights = self._codes_of_weights(w, axis=0)
        codes = self._unsigned(self._codes.get(x)) if weights is not None else None
        array = weights.codes if codes is not None and weights is not None else self._array(w)
        if array is None:
            return self._direct(name, inputs, window, group)
        sums = self._slid(name, self._last.of(codes.values if codes is not None else x), array, window, group=group, zero=codes.zero if codes is not None else 0)
        if codes is not None and weights is not None:
            sums = self._scaled(sums, codes, weights, array.reshape(channels, -1).sum(axis=1, dtype=np.int64))
        return self._last.first(self._plus(sums, bias, x))

    def _slid(self, name: str, data: Any, array: npt.NDArray[Any], window: kernels.Window, *, group: int, zero: int) -> Any:
        """Sums of a convolution over `data`, both with their channels last."""
        channels = array.shape[0]
        if group == 1:
            return self._kernel(
                "convolution", lambda d, k: kernels.convolution(d, k, layer=name, channels=channels, window=window, zero=zero), data, kernels.pack(array)
            )
        if channels == group == _shape(data)[-1]:
            by_channel = np.ascontiguousarray(np.moveaxis(array[:, 0], 0, -1))
            return self._kernel("depthwise", lambda d, k: kernels.depthwise(d, k, layer=name, window=window, zero=zero), data, by_channel)
        share = channels // group
        packed = np.stack([kernels.pack(part) for part in np.split(array, group)])
        sums = self._kernel("grouped", lambda d, k: kernels.grouped(d, k, layer=name, channels=share, window=window, zero=zero), data, packed)
        rank = len(_shape(sums))
        behind = self._emit(relax.op.permute_dims(sums, [0, *range(2, rank - 1), 1, rank - 1]))
        return self._emit(relax.op.reshape(behind, [*_shape(behind)[:-2], channels]))

    def _conv_transpose(self, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """As a convolution over the input with zeros between its values; its weight is turned around."""
        x, w, bias = inputs[0], inputs[1], inputs[2]
        array, shape = self._array(w), _shape(w)
        plain = attrs.get("auto_pad", b"NOTSET") == b"NOTSET" and "output_shape" not in attrs and int(attrs.get("group", 1)) == 1
        if array is None or not plain:
            return None
        axes = len(shape) - 2
        strides, dilations = tuple(attrs.get("strides", [1] * axes)), tuple(attrs.get("dilations", [1] * axes))
        pads, more = list(attrs.get("pads", [0] * 2 * axes)), list(attrs.get("output_padding", [0] * axes))
        reach = [(k - 1) * d for k, d in zip(shape[2:], dilations, strict=True)]
        around = (*(r - p for r, p in zip(reach, pads[:axes], strict=True)), *(r - p + m for r, p, m in zip(reach, pads[axes:], more, strict=True)))
        if min(around) < 0:
            return None
        turned = np.flip(np.swapaxes(array, 0, 1), axis=tuple(range(2, array.ndim)))
        window = kernels.Window((1,) * axes, dilations, tuple(map(int, around)))

        def compute(data: Any, packed: Any) -> Any:
            return kernels.convolution(kernels.spread(data, strides), packed, layer=name, channels=shape[1], window=window)

        sums = self._kernel("transposed", compute, self._last.of(x), kernels.pack(np.ascontiguousarray(turned)))
        return self._last.first(self._plus(sums, bias, x))

    def _direct(self, name: str, inputs: Sequence[Any], window: kernels.Window, group: int) -> Any:
        x, w, bias = inputs[0], inputs[1], inputs[2]
        found = self._kernel("direct", lambda d, k: kernels.direct(d, k, layer=name, window=window, group=group), x, w)
        if bias is not None:
            bias = self._emit(relax.op.reshape(bias, [1, -1] + [1] * (len(_shape(x)) - 2)))
        return self._plus(found, bias, x)

    def _matmul(self, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        del attrs
        return self._plus(self._product(name, inputs[0], inputs[1]), None, inputs[0])

    def _product(self, name: str, left: Any, right: Any) -> Any:
        """`left @ right`."""
        shapes = _shape(left), _shape(right)
        if len(shapes[0]) == 1:
            row = self._moved(left, lambda v: relax.op.expand_dims(v, 0), lambda a: a[None])
            return self._emit(relax.op.squeeze(self._product(name, row, right), -2))
        if len(shapes[1]) == 1:
            column = self._moved(right, lambda v: relax.op.expand_dims(v, 1), lambda a: a[:, None])
            return self._emit(relax.op.squeeze(self._product(name, left, column), -1))
        weights = self._codes_of_weights(right, axis=1) if len(shapes[1]) == _MATRIX else None
        codes = self._unsigned(self._codes.get(left))
        if codes is not None and weights is not None:
            sums = self._by_weights(name, codes.values, weights.codes, zero=codes.zero)
            return self._scaled(sums, codes, weights, weights.codes.sum(axis=0, dtype=np.int64))
        array = self._array(right) if len(shapes[1]) == _MATRIX else None
        if array is not None:
            return self._by_weights(name, left, array)
        other = self._signed(self._codes_of(right))
        if codes is not None and other is not None:
            return self._of_codes(name, codes, other)
        return self._kernel("product", lambda a, b: kernels.product(a, b, layer=name), left, right)

    def _by_weights(self, name: str, left: Any, array: npt.NDArray[Any], *, zero: int = 0) -> Any:
        """Products with a constant matrix `[in, out]`."""
        channels = array.shape[1]
        packed = kernels.pack(np.ascontiguousarray(array.T))
        return self._kernel("rows", lambda a, k: kernels.rows(a, k, layer=name, channels=channels, zero=zero), left, packed)

    def _of_codes(self, name: str, left: Codes, right: Codes) -> Any:
        """Sum of (a - za) (b - zb) = sum of a b - za * (sum of b) - zb * (sum of a) + za zb * (length of the sum)."""
        sums = self._kernel("product", lambda a, b: kernels.product(a, b, layer=name), left.values, right.values)
        for codes, zero, axis in ((right, left.zero, -2), (left, right.zero, -1)):
            if zero:
                whole = self._emit(relax.op.sum(self._emit(relax.op.astype(codes.values, "int32")), axis=axis, keepdims=True))
                sums = self._emit(relax.op.subtract(sums, self._emit(relax.op.multiply(whole, relax.const(zero, "int32")))))
        if left.zero and right.zero:
            length = _shape(left.values)[-1]
            if not isinstance(length, int):
                raise TargetError(f"the layer multiplies along an axis of dynamic length {length}, with two zero points", where=f"layer {name!r}")
            sums = self._emit(relax.op.add(sums, relax.const(left.zero * right.zero * length, "int32")))
        scale = np.float32(np.float64(left.scale) * np.float64(right.scale))
        return self._emit(relax.op.multiply(self._emit(relax.op.astype(sums, "float32")), relax.const(scale)))

    def _gemm(self, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        left, right, bias = inputs[0], inputs[1], inputs[2]
        if attrs.get("transA", 0):
            left = self._moved(left, lambda v: relax.op.permute_dims(v, [1, 0]), np.transpose)
        if attrs.get("transB", 0):
            right = self._moved(right, lambda v: relax.op.permute_dims(v, [1, 0]), np.transpose)
        found = self._product(name, left, right)
        if (alpha := float(attrs.get("alpha", 1.0))) != 1.0:
            found = self._emit(relax.op.multiply(found, relax.const(np.float32(alpha))))
        if bias is not None and (beta := float(attrs.get("beta", 1.0))) != 1.0:
            bias = self._emit(relax.op.multiply(self._cast(bias, "float32", of="float16"), relax.const(np.float32(beta))))
        return self._plus(found, bias, left)

    def _matmul_integer(self, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        del attrs
        left, right, zero, other = (inputs[i] if i < len(inputs) else None for i in range(4))
        array = self._array(right)
        centred = other is None or ((zeros := self._array(other)) is not None and not zeros.any())
        if array is None or array.ndim != _MATRIX or array.dtype != np.int8 or _dtype(left) != "uint8" or not centred:
            return None
        if zero is not None and math.prod(_shape(zero)) != 1:
            return None
        if len(_shape(left)) == 1:
            row = self._emit(relax.op.expand_dims(left, 0))
            found = self._matmul_integer(name, [row, *list(inputs)[1:]], {})
            return None if found is None else self._emit(relax.op.squeeze(found, 0))
        sums = self._by_weights(name, left, array)
        if zero is None:
            return sums
        columns = relax.const(array.sum(axis=0, dtype=np.int64).astype(np.int32))
        less = self._emit(relax.op.multiply(self._emit(relax.op.astype(zero, "int32")), columns))
        return self._emit(relax.op.subtract(sums, less))

    def _gather(self, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        table, indices = inputs[0], inputs[1]
        if not all(isinstance(getattr(v, "ty", None), relax.TensorType) for v in (table, indices)) or isinstance(indices, GenericConst):
            return None
        axis = int(attrs.get("axis", 0)) % len(_shape(table))
        return self._emit_te("lookup", lambda t, i: kernels.lookup(t, i, axis=axis, layer=name), _ALONE, table, indices)

    def _clip(self, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """With constant bounds, in one step."""
        del name
        bounds = [self._array(inputs[i]) if inputs[i] is not None else None for i in (1, 2)]
        if any(b is None and inputs[i] is not None for i, b in zip((1, 2), bounds, strict=True)) or {"min", "max"} & set(attrs):
            return None
        low, high = (default if b is None else float(b.item()) for b, default in zip(bounds, (-math.inf, math.inf), strict=True))
        return self._last.elementwise(inputs[0], lambda v: self._emit(relax.op.clip(v, low, high)))

    def _range(self, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Numbers up to a dynamic dimension: TVM's importer makes their count a length of its own, which then meets no other."""
        del name, attrs
        start, step = self._array(inputs[0]), self._array(inputs[2])
        limit = inputs[1]
        if start is None or step is None or start.item() != 0 or step.item() != 1 or not is_prim_expr(limit):
            return None
        return self._emit(relax.op.arange(0, limit, 1, str(start.dtype)))

    def _softmax(self, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        del name
        x = inputs[0]
        rank = len(_shape(x))
        if _dtype(x) != "float32" or self.opset < _SOFTMAX_ALONG_ONE_AXIS or int(attrs.get("axis", -1)) % rank != rank - 1:
            return None
        return self._emit_te("softmax", lambda v: kernels.softmax(v, rank - 1), _ALONE, x)

    def _erf(self, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        del name, attrs
        if _dtype(inputs[0]) != "float32":
            return None
        return self._last.elementwise(inputs[0], lambda v: self._emit_te("erf", topi.fast_erf, _ELEMENTWISE, v))

    def _gelu(self, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        del name
        if _dtype(inputs[0]) != "float32" or attrs.get("approximate", b"none") != b"none":
            return None
        return self._last.elementwise(inputs[0], lambda v: self._emit_te("gelu", kernels.gelu, _ELEMENTWISE, v))

    # Quantizers

    def _quantize(self, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        del name
        x, scale, zero = inputs[0], self._array(inputs[1]), self._array(inputs[2]) if inputs[2] is not None else np.uint8(0)
        if scale is None or zero is None or scale.size != 1 or zero.dtype not in (np.int8, np.uint8) or attrs.get("block_size", 0):
            return None
        known = self._codes.get(x)
        if known is not None and (float(known.scale), known.zero, _dtype(known.values)) == (float(scale.item()), int(zero.item()), str(zero.dtype)):
            return known.values  # codes that were moved, not computed with
        made = self._last.elementwise(x, lambda v: self._quantized(v, relax.const(np.float32(scale.item())), relax.const(np.float32(zero.item())), str(zero.dtype)))
        return made

    def _quantized(self, x: Any, scale: Any, zero: Any, dtype: str) -> Any:
        """Codes of `x`, as ONNX defines them: rounded to even, then moved, then clipped."""
        limits = np.iinfo(dtype)
        if _dtype(x) != "float32":
            x = self._emit(relax.op.astype(x, "float32"))
        return self._emit_te("codes", lambda v, s, z: kernels.codes(v, s, z, dtype=dtype, low=int(limits.min), high=int(limits.max)), _ELEMENTWISE, x, scale, zero)

    def _dequantize(self, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        del name
        x, scale = inputs[0], self._array(inputs[1])
        zero = self._array(inputs[2]) if inputs[2] is not None else np.zeros((), _dtype(x))
        if scale is None or zero is None or attrs.get("block_size", 0) or scale.dtype != np.float32:
            return None
        array = self._array(x)
        if array is not None:
            weights = Weights(array, scale, zero, None if scale.size == 1 else int(attrs.get("axis", 1)) % max(array.ndim, 1))
            found = relax.const(weights.floats())
            self._weights[found] = weights
            return found
        if scale.size != 1 or _dtype(x) not in {"uint8", "int8"}:
            return None
        offset, step = relax.const(np.float32(zero.item())), relax.const(np.float32(scale.item()))

        def floats(codes: Any) -> Any:
            moved = self._emit(relax.op.astype(codes, "float32"))
            if zero.item():
                moved = self._emit(relax.op.subtract(moved, offset))
            return self._emit(relax.op.multiply(moved, step))

        found = self._last.elementwise(x, floats)
        self._codes[found] = Codes(x, np.float32(scale.item()), int(zero.item()))  # type: ignore[arg-type]
        return found

    def _dynamic_quantize(self, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """UINT8 codes, scale and zero point from the range that the input has, 0 included."""
        del name, attrs
        x, nothing, most = inputs[0], relax.const(np.float32(0)), relax.const(np.float32(255))
        length = _shape(x)[-1] if _shape(x) else None
        if isinstance(length, int) and length % kernels.LANES == 0:
            high, low = (self._emit_te("extreme", lambda v, largest=largest: kernels.extreme(v, largest=largest), _ALONE, x) for largest in (True, False))
        else:
            high = self._emit(relax.op.maximum(self._emit(relax.op.max(x)), nothing))
            low = self._emit(relax.op.minimum(self._emit(relax.op.min(x)), nothing))
        scale = self._emit(relax.op.divide(self._emit(relax.op.subtract(high, low)), most))
        # A range without width has scale 0, and all its values are 0: any other scale gives the same codes.
        safe = self._emit(relax.op.where(self._emit(relax.op.greater(scale, nothing)), scale, relax.const(np.float32(1))))
        zero = self._quantized(self._emit(relax.op.negative(low)), safe, nothing, "uint8")
        codes = self._quantized(x, safe, self._emit(relax.op.astype(zero, "float32")), "uint8")
        return relax.Tuple([codes, scale, zero])

    # What they share

    def _kernel(self, title: str, compute: Callable[..., Any], left: Any, right: Any) -> Any:
        """The sums of a kernel: FP32, or INT32 where it multiplies codes."""
        return self._emit_te(title, compute, _WITH_WHAT_FOLLOWS, left, right if isinstance(right, relax.Expr) else relax.const(right))

    def _plus(self, sums: Any, bias: Any, source: Any) -> Any:
        """What a layer gives, in the type of its source."""
        if bias is not None:
            sums = self._emit(relax.op.add(sums, self._cast(bias, "float32", of="float16")))
        return self._cast(sums, "float16") if _dtype(source) == "float16" else sums

    def _emit_te(self, title: str, compute: Callable[..., Any], pattern: int, *inputs: Any) -> Any:
        return self.bb.emit_te(compute, *inputs, primfunc_name_hint=title, primfunc_attrs={"op_pattern": pattern})

    def _scaled(self, sums: Any, codes: Codes, weights: Weights, columns: npt.NDArray[np.int64]) -> Any:
        """Sums of products of codes -> what they stand for, with the channels on the last axis."""
        less = (codes.zero * columns).astype(np.int32)
        if less.any():
            sums = self._emit(relax.op.subtract(sums, relax.const(less)))
        scale = (np.float64(codes.scale) * weights.scale.astype(np.float64)).astype(np.float32)
        return self._emit(relax.op.multiply(self._emit(relax.op.astype(sums, "float32")), relax.const(np.atleast_1d(scale))))

    def _array(self, value: Any) -> npt.NDArray[Any] | None:
        """The values of a constant."""
        return value.value.numpy() if isinstance(value, GenericConst) else None

    def _codes_of_weights(self, value: Any, *, axis: int) -> Weights | None:
        """The codes of a constant, if they are symmetric INT8 with scales along `axis`."""
        found = self._weights.get(value)
        if found is None or found.codes.dtype != np.int8 or found.zero.any() or found.axis not in {None, axis}:
            return None
        return found

    def _moved(self, value: Any, move: Callable[[Any], Any], move_array: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Any:
        """`value` transposed, or with an axis of length 1 more, and the codes that it came from along with it."""
        array = self._array(value)
        if array is not None:
            found = relax.const(np.ascontiguousarray(move_array(array)))
            if value in self._weights:
                was = self._weights[value]
                # Of two axes, that of the channels changes places with the other; a vector has one scale.
                self._weights[found] = Weights(np.ascontiguousarray(move_array(was.codes)), was.scale, was.zero, None if was.axis is None else 1 - was.axis)
            return found
        found = self._emit(move(value))
        if value in self._codes:
            codes = self._codes[value]
            self._codes[found] = Codes(self._emit(move(codes.values)), codes.scale, codes.zero)
        return found

    def _codes_of(self, value: Any) -> Codes | None:
        """The codes that a tensor came from, with one scale for all; a constant's as well."""
        weights = self._weights.get(value)
        if weights is None or weights.axis is not None or weights.codes.dtype not in (np.int8, np.uint8):
            return self._codes.get(value)
        return Codes(relax.const(weights.codes), np.float32(weights.scale.item()), int(weights.zero.item()))  # type: ignore[arg-type]

    def _unsigned(self, codes: Codes | None) -> Codes | None:
        """UINT8 codes, which kernels take on the left."""
        return self._shifted(codes, "uint8", 128) if codes is not None and _dtype(codes.values) == "int8" else codes

    def _signed(self, codes: Codes | None) -> Codes | None:
        """INT8 codes, which kernels take on the right."""
        return self._shifted(codes, "int8", -128) if codes is not None and _dtype(codes.values) == "uint8" else codes

    def _shifted(self, codes: Codes, dtype: str, by: int) -> Codes:
        def shift(values: Any) -> Any:
            moved = self._emit(relax.op.add(self._emit(relax.op.astype(values, "int32")), relax.const(by, "int32")))
            return self._emit(relax.op.astype(moved, dtype))

        return Codes(self._last.elementwise(codes.values, shift), codes.scale, codes.zero + by)


def refusal(error: Exception, name: str, op: str) -> TargetError:
    """TVM's refusal of a node, in its own words."""
    where = f"node {name!r} ({op})" if op else ""
    return TargetError(f"TVM cannot import the model: {said(error)}", where=where, hint="leave this model to another target, or write the node in other operators")


def said(error: BaseException) -> str:
    """What TVM says, without the places in its source code that it says it from."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("File ", "Traceback", "[bt]", "Stack trace"))]
    return f"{type(error).__name__}: {told[-1] if told else 'no reason given'}"


def _window(attrs: dict[str, Any], kernel: Sequence[int], shape: Sequence[Any]) -> kernels.Window:
    axes = len(kernel)
    strides, dilations = tuple(attrs.get("strides", [1] * axes)), tuple(attrs.get("dilations", [1] * axes))
    mode = attrs.get("auto_pad", b"NOTSET").decode()
    if mode in {"SAME_UPPER", "SAME_LOWER"}:
        if not all(isinstance(n, int) for n in shape):
            raise TargetError(f"auto_pad {mode} with a dynamic shape", hint="export the model with explicit pads")
        whole = [max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0) for n, s, k, d in zip(shape, strides, kernel, dilations, strict=True)]
        less, more = [n // 2 for n in whole], [n - n // 2 for n in whole]
        pads = [*less, *more] if mode == "SAME_UPPER" else [*more, *less]
    else:
        pads = [0] * (2 * axes) if mode == "VALID" else list(attrs.get("pads", [0] * (2 * axes)))
    return kernels.Window(strides, dilations, tuple(map(int, pads)))


def _shape(value: Any) -> list[Any]:
    """Lengths along each axis: numbers, or symbols."""
    return [int(n.value) if isinstance(n, tirx.IntImm) else n for n in value.ty.shape.values]


def _dtype(value: Any) -> str:
    return str(value.ty.dtype)
