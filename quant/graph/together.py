"""Layers that must move together: one number format for all of a group.

Three things bind layers, and each stops where an engine would not care:

- *They read one tensor* (Q/K/V, gate and up, the branches of a block): it is quantized once, for all of them. If one stays in float,
  the engine keeps the tensor twice, and no longer runs the products as one.
- *What they make is added up.* An integer kernel for the sum wants both operands in integers, and brings them to one scale; with one in
  float, the other is converted back and the sum runs in float. Only layers whose outputs meet in the sum are bound, directly or by way
  of what runs on codes as well. An operand that is itself a sum binds nobody: it has a quantizer of its own, and binding through it would
  tie all blocks along a residual stream into one group, though none of their layers cares for another.
- *What they make is concatenated*: likewise.

The last two hold only for a target that runs sums, or concatenations, in integers. An activation function, or a bias that is added, runs
within the layer before it and has no format of its own; `within` names them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from quant.core.dialect import Dialect
from quant.graph.layers import LAYER_OPS, Layer, match_layers
from quant.graph.model import constant

Bond = Literal["reads", "sum", "concat", "recipe"]
MOVING = frozenset({"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Dropout"})
"""Operators that move values and change none."""
_WITHIN = frozenset({"Relu", "Clip", "BatchNormalization", "LeakyRelu", "PRelu", "HardSwish", "HardSigmoid"})
_CARRYING = MOVING | _WITHIN | {"MaxPool"}
_PAIR = 2


@dataclass(frozen=True)
class Group:
    """Layers that share one format.

    Args:
        layers: Their names, in graph order.
        bonds: What binds them: they read one tensor, are added up, concatenated, or are named together in the recipe.
        tensors: The tensors in which they meet.
    """

    layers: tuple[str, ...]
    bonds: tuple[Bond, ...]
    tensors: tuple[str, ...]


def together(layers: Sequence[Layer], dialect: Dialect | None = None, *, more: Sequence[Sequence[str]] = (), apart: Sequence[str] = ()) -> tuple[Group, ...]:
    """The groups of at least two layers, in graph order; no layer is in two of them.

    Args:
        layers: The layers of a graph.
        dialect: The form that the target wants, which says what runs in integers; None: sums and concatenations do.
        more: Patterns of layers that are bound besides, group by group.
        apart: Patterns of layers that structure does not bind.

    Raises:
        PlanError: A pattern matches no layer.
    """
    free = match_layers(layers, apart)
    found = [kept for bond in _bonds(layers, dialect) if (kept := _without(bond, free)) is not None]
    order = [layer.name for layer in layers]
    for patterns in more:
        chosen = match_layers(layers, patterns)
        found.append(("recipe", "", tuple(name for name in order if name in chosen)))
    return _joined(order, found)


def within(layer: Layer) -> tuple[ir.Node, ...]:
    """The nodes behind `layer` that run within it: an activation function, and in front of that a bias or the other operand of a sum."""
    found: list[ir.Node] = []
    value = layer.node.outputs[0]
    summed = False
    while not value.is_graph_output() and len(value.uses()) == 1:
        reader = next(iter(value.uses()))[0]
        is_sum = reader.op_type == "Add" and not summed
        if reader.graph is not layer.node.graph or not (reader.op_type in _WITHIN or is_sum):
            break
        found.append(reader)
        summed = summed or is_sum
        value = reader.outputs[0]
    return tuple(found)


_Found = tuple[Bond, str, tuple[str, ...]]


def _without(bond: _Found, free: Collection[str]) -> _Found | None:
    kept = tuple(name for name in bond[2] if name not in free)
    return (bond[0], bond[1], kept) if len(kept) >= _PAIR else None


def _bonds(layers: Sequence[Layer], dialect: Dialect | None) -> Iterator[_Found]:
    """(what binds, the tensor in which, the layers bound), at least two layers each."""
    products = [layer for layer in layers if layer.op in LAYER_OPS]
    yield from _readers([layer for layer in products if layer.weight is not None])
    if not products:
        return
    by_node = {id(layer.node): layer for layer in products}
    for node in products[0].node.graph or ():
        bond = _BONDS.get(node.op_type)
        if bond is None or not (dialect is None or _in_integers(node.op_type, dialect)):
            continue
        makers = dict.fromkeys(maker.name for v in node.inputs if v is not None and (maker := _maker(v, by_node)) is not None)
        if len(makers) >= _PAIR:
            yield bond, str(node.outputs[0].name), tuple(makers)


_BONDS: Mapping[str, Bond] = {"Add": "sum", "Sum": "sum", "Concat": "concat"}


def _in_integers(op: str, dialect: Dialect) -> bool:
    return op in dialect.chained or (op == "Add" and dialect.residual)


def _readers(layers: Sequence[Layer]) -> Iterator[_Found]:
    readers: dict[int, tuple[ir.Value, list[str]]] = {}
    for layer in layers:
        for position in layer.activations:
            value = layer.node.inputs[position]
            assert value is not None, "a layer reads something"
            source = _same(value)
            readers.setdefault(id(source), (source, []))[1].append(layer.name)
    for value, names in readers.values():
        if len(names) >= _PAIR:
            yield "reads", str(value.name), tuple(names)


def _same(value: ir.Value) -> ir.Value:
    """The tensor that `value` is a copy of."""
    maker = value.producer()
    while maker is not None and maker.op_type in {"Identity", "Dropout"} and maker.inputs[0] is not None:
        value = maker.inputs[0]
        maker = value.producer()
    return value


def _maker(value: ir.Value, by_node: Mapping[int, Layer]) -> Layer | None:
    """The layer that makes `value`, directly or by way of a bias and of what runs on codes as well; None when something else does."""
    node = value.producer()
    while node is not None and id(node) not in by_node:
        computed = [v for v in node.inputs if v is not None and constant(v) is None]
        carries = node.op_type in _CARRYING or (node.op_type == "Add" and len(computed) == 1)
        if not carries or not computed:
            return None
        node = computed[0].producer()
    return None if node is None else by_node[id(node)]


def _joined(order: Sequence[str], found: Sequence[_Found]) -> tuple[Group, ...]:
    """Groups from bonds; those that share a layer become one."""
    leader = {name: name for name in order}
    place = {name: number for number, name in enumerate(order)}

    def of(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    for _bond, _tensor, names in found:
        for name in names[1:]:
            first, second = sorted((of(names[0]), of(name)), key=place.__getitem__)
            leader[second] = first
    groups = []
    for head in order:
        members = tuple(name for name in order if of(name) == head)
        if len(members) >= _PAIR:
            own = [(bond, tensor) for bond, tensor, names in found if of(names[0]) == head and len(names) >= _PAIR]
            groups.append(Group(members, tuple(dict.fromkeys(b for b, _t in own)), tuple(dict.fromkeys(t for _b, t in own if t))))
    return tuple(groups)
