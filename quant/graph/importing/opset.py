"""Raising a graph to a newer version of the default ONNX operator set, with its weights left behind for the trip."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import onnx
import onnx_ir as ir

from quant.errors import ModelError
from quant.graph.importing.prepare import prepare
from quant.graph.importing.surgery import DEFAULT_DOMAINS, all_nodes, is_op, replace_node
from quant.graph.model import add_initializer, attribute, constant, opset

MINIMUM_OPSET = 13
"""QuantizeLinear and DequantizeLinear have an `axis` from here on."""
FP8_OPSET = 19
"""FP8 types exist from here on."""
INT4_OPSET = 21
"""4-bit and 16-bit integers, and scales for each block, exist from here on."""
OUTPUT_DTYPE_OPSET = 23
"""QuantizeLinear and DequantizeLinear have an `output_dtype` from here on."""

_RESIZE_CHANGED = 11
_HARDMAX_CHANGED = 13
_GROUP_NORM_CHANGED = 21
_SMALL_BYTES = 1024  # the converter reads small constants (axes, pads, scales); weights stay behind
_NEEDS = {"fp8": FP8_OPSET, "int4": INT4_OPSET, "uint4": INT4_OPSET, "int16": INT4_OPSET, "uint16": INT4_OPSET, "fp4": OUTPUT_DTYPE_OPSET}


def opset_for(formats: Iterable[str]) -> int:
    """The oldest operator set in which Q/DQ for all of `formats` can be written.

    Example:
        >>> opset_for(["fp32", "int8"]), opset_for(["int8", "fp8"]), opset_for(["int4"])
        (13, 19, 21)
    """
    return max((_NEEDS.get(name, MINIMUM_OPSET) for name in formats), default=MINIMUM_OPSET)


def raise_opset(model: ir.Model, wanted: int) -> ir.Model:
    """`model` in version `wanted` of the default operator set; a model that is new enough is given back as it is.

    Names, weights, inputs and outputs stay; the graph of the model that is passed in is taken over and must not be used again.

    Raises:
        ModelError: An operator cannot be converted, named with its node.
    """
    current = opset(model)
    if current >= wanted or current == 0:
        return model
    prepare(model)
    if current < _HARDMAX_CHANGED <= wanted:
        _spell_out_hardmax(model)
    if current < _GROUP_NORM_CHANGED <= wanted:
        _spell_out_group_norms(model)
    kept, props = _interface(model), {n.name: dict(n.metadata_props) for n in all_nodes(model)}
    heavy = _unload(model)
    proto = ir.to_proto(model)
    proto.ir_version = max(proto.ir_version, 8)  # from 4 on, weights need not be inputs as well
    converted = ir.from_proto(_convert(proto, model, wanted))
    if current < _RESIZE_CHANGED:
        _spell_out_resize(converted)
    _load(converted, heavy, kept)
    for node in all_nodes(converted):
        node.metadata_props.update(props.get(node.name, {}))
    converted.graph.name, converted.graph.doc_string = model.graph.name, model.graph.doc_string
    converted.graph.metadata_props.update(model.graph.metadata_props)
    converted.metadata_props.update(model.metadata_props)
    return converted


def _spell_out_hardmax(model: ir.Model) -> None:
    """Write each Hardmax as its old meaning: over all axes from `axis` on, flattened; the converter takes it for the new one."""
    for node in [n for n in all_nodes(model) if is_op(n, "Hardmax")]:
        source, graph = node.inputs[0], node.graph
        assert source is not None, "a Hardmax has an input"
        assert graph is not None, "a node of a model lies in a graph"
        shape = ir.node("Shape", [source], name=f"{node.name}.shape")
        flat = ir.node("Flatten", [source], {"axis": attribute(node, "axis", 1)}, name=f"{node.name}.flatten")
        hard = ir.node("Hardmax", [flat.outputs[0]], {"axis": 1}, name=node.name)
        back = ir.node("Reshape", [hard.outputs[0], shape.outputs[0]], name=f"{node.name}.reshape")
        for position, new in enumerate((shape, flat, hard)):
            new.outputs[0].name = f"{node.outputs[0].name}.hardmax_{position}"
        graph.insert_before(node, [shape, flat, hard])
        replace_node(graph, node, back)


def _spell_out_group_norms(model: ir.Model) -> None:
    """Give each GroupNormalization a scale and bias for every channel instead of every group; the converter leaves them as they are."""
    for node in [n for n in all_nodes(model) if is_op(n, "GroupNormalization")]:
        source, groups = node.inputs[0], int(attribute(node, "num_groups", 1))
        channels = None if source is None or source.shape is None else source.shape[1]
        for position, name in ((1, "scale"), (2, "bias")):
            array = constant(node.inputs[position])
            if array is None or not isinstance(channels, int):
                what = f"cannot be raised to ONNX operator set {_GROUP_NORM_CHANGED}: operator GroupNormalization (node {node.name!r}) has no fixed channels"
                raise ModelError(what, hint="export the model again with that operator set or newer")
            node.replace_input_with(position, add_initializer(model.graph, f"{node.name}.{name}", np.repeat(array, channels // groups)))


def _spell_out_resize(model: ir.Model) -> None:
    """Write the old meaning of Upsample and Resize (source position = position / scale) into each; the converter leaves the new default."""
    for node in all_nodes(model):
        if is_op(node, "Resize"):
            scales = constant(node.inputs[2]) if len(node.inputs) > 2 else None  # noqa: PLR2004 - X, roi, scales
            shrinks = scales is not None and bool(np.any(scales < 1)) and not bool(np.any(scales > 1))
            node.attributes["coordinate_transformation_mode"] = ir.AttrString("coordinate_transformation_mode", "asymmetric")
            node.attributes["nearest_mode"] = ir.AttrString("nearest_mode", "ceil" if shrinks else "floor")


Interface = tuple[list[ir.Value], list[ir.Value]]


def _interface(model: ir.Model) -> Interface:
    return list(model.graph.inputs), list(model.graph.outputs)


def _unload(model: ir.Model) -> dict[str, ir.TensorProtocol]:
    """Make every large weight of the main graph an input, and load the small ones that lie in a file."""
    heavy: dict[str, ir.TensorProtocol] = {}
    for name, value in list(model.graph.initializers.items()):
        tensor = value.const_value
        assert tensor is not None, "an initializer has a tensor"
        value.shape = value.shape or ir.Shape(tensor.shape.numpy())
        value.type = value.type or ir.TensorType(tensor.dtype)
        if tensor.nbytes > _SMALL_BYTES:
            heavy[name] = tensor
            model.graph.initializers.pop(name)
            value.const_value = None
            model.graph.inputs.append(value)
        elif isinstance(tensor, ir.ExternalTensor):
            value.const_value = ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=name)
    return heavy


def _convert(proto: onnx.ModelProto, model: ir.Model, wanted: int) -> onnx.ModelProto:
    from onnx import version_converter  # noqa: PLC0415 - heavy

    try:
        return version_converter.convert_version(proto, wanted)
    except (RuntimeError, IndexError, ValueError) as error:
        what = f"cannot be raised from ONNX operator set {opset(model)} to {wanted}: {_blame(str(error), model)}"
        raise ModelError(what, hint=f"export the model again with operator set {wanted} or newer") from error


def _blame(message: str, model: ir.Model) -> str:
    """The operator and node that the converter stopped at, with the first line of what it says."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    said = re.sub(r"^.*Assertion `.*` failed: ", "", lines[-1]) if lines else "no reason given"
    if "no registered schema" in said:
        said = "ONNX has no such operator"
    named = [n for n in all_nodes(model) if n.domain in DEFAULT_DOMAINS and re.search(rf"\b{re.escape(n.op_type)}(?![A-Za-z])", message)]
    if not named and (attribute_named := re.match(r"Attribute (\w+) ", said)):
        named = [n for n in all_nodes(model) if n.domain in DEFAULT_DOMAINS and attribute_named[1] in n.attributes]
    if not named:
        return said
    node = max(named, key=lambda n: len(n.op_type))  # `If` and `Not` are words, too
    return f"operator {node.op_type} (node {node.name!r}): {said}"


def _load(converted: ir.Model, heavy: dict[str, ir.TensorProtocol], kept: Interface) -> None:
    """Bring the weights back, and the inputs and outputs as they were."""
    graph = converted.graph
    found = {str(v.name): v for v in graph.inputs}
    graph.inputs.clear()
    graph.inputs.extend(found[str(v.name)] for v in kept[0] if str(v.name) not in heavy)
    for name, tensor in heavy.items():
        value = found[name]
        value.const_value = tensor
        graph.initializers[name] = value
    names = [str(v.name) for v in kept[1]]
    assert [str(v.name) for v in graph.outputs] == names, f"the outputs were {names}"
    before = {str(v.name): v for v in (*kept[0], *kept[1])}
    for value in (*graph.inputs, *graph.outputs):
        old = before[str(value.name)]
        value.shape, value.type, value.doc_string = old.shape, old.type or value.type, old.doc_string
    converted.ir_version = max(converted.ir_version, _ir_version(converted))


def _ir_version(model: ir.Model) -> int:
    """The oldest version of the file format that holds the model's operator set."""
    from onnx import helper  # noqa: PLC0415 - heavy

    return int(helper.find_min_ir_version_for([helper.make_opsetid("", opset(model))], ignore_unknown=True))
