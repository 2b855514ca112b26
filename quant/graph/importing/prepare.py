"""The form that every later step relies on: no functions, constants as weights, weights that are no inputs, nodes with names."""

from __future__ import annotations

import onnx_ir as ir

from quant.graph.importing.surgery import all_nodes, is_op
from quant.graph.model import all_graphs

_PLAIN_ATTRIBUTES = ("value", "value_float", "value_floats", "value_int", "value_ints", "value_string", "value_strings")


def prepare(model: ir.Model) -> None:
    """Bring `model` into the form that the steps of an import rely on."""
    inline_functions(model)
    free_weights(model)
    lift_constants(model)
    name_nodes(model)


def inline_functions(model: ir.Model) -> int:
    """Put the bodies of the model's own functions in place of their calls; gives the number of functions."""
    count = len(model.functions)
    if count:
        from onnx_ir.passes.common import InlinePass, RemoveUnusedFunctionsPass  # noqa: PLC0415 - only for such models

        InlinePass()(model)
        RemoveUnusedFunctionsPass()(model)  # type: ignore[no-untyped-call]
    return count


def free_weights(model: ir.Model) -> int:
    """Take weights out of the inputs, where files of IR version 3 must list them; gives their number."""
    both = [v for v in model.graph.inputs if v.name in model.graph.initializers]
    for value in both:
        model.graph.inputs.remove(value)
    if both:
        model.ir_version = max(model.ir_version, 4)
    return len(both)


def lift_constants(model: ir.Model) -> int:
    """Make Constant nodes of the main graph weights of the same name; gives their number."""
    count = 0
    for node in list(model.graph):
        value = node.outputs[0] if node.outputs else None
        if value is None or not is_op(node, "Constant") or value.is_graph_output() or value.name in model.graph.initializers:
            continue
        tensor = constant_tensor(node)
        if tensor is None:
            continue
        new = ir.Value(name=value.name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy()), const_value=tensor)
        ir.convenience.replace_all_uses_with(value, new)
        model.graph.remove(node, safe=True)
        tensor.name = value.name
        model.graph.initializers[str(new.name)] = new
        count += 1
    return count


def constant_tensor(node: ir.Node) -> ir.TensorProtocol | None:
    """What a Constant node holds; None for a sparse tensor."""
    found = [node.attributes[name] for name in _PLAIN_ATTRIBUTES if name in node.attributes]
    if len(found) != 1 or found[0].is_ref():
        return None
    attribute = found[0]
    if attribute.name == "value":
        return attribute.as_tensor()
    if attribute.name.startswith("value_string"):
        texts = attribute.as_strings() if attribute.name.endswith("s") else [attribute.as_string()]
        return ir.StringTensor([t.encode() for t in texts], shape=ir.Shape([len(texts)] if attribute.name.endswith("s") else []))
    return ir.tensor(attribute.value, dtype=ir.DataType.FLOAT if "float" in attribute.name else ir.DataType.INT64)


def name_nodes(model: ir.Model) -> int:
    """Give nodes without a name, or with one that an earlier node has, a stable one: operator and first output; gives their number."""
    taken = {n.name for n in all_nodes(model) if n.name}
    seen: set[str] = set()
    count = 0
    for graph in all_graphs(model.graph):
        for node in graph:
            if not node.name or node.name in seen:
                node.name = _unique(f"{node.op_type}_{next((o.name for o in node.outputs if o.name), 'nothing')}", taken)
                count += 1
            seen.add(node.name)
            taken.add(node.name)
    return count


def _unique(name: str, taken: set[str]) -> str:
    number, unique = 1, name
    while unique in taken:
        number += 1
        unique = f"{name}_{number}"
    return unique
