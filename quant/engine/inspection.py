"""Looking at a model without running it: inputs, outputs, layers, and what each scheme would do with them."""

from __future__ import annotations

from pathlib import Path

from quant.core.arguments import with_checked_arguments
from quant.core.documents import Document
from quant.core.shown import Cell, Chart, Series, Shown, Table
from quant.errors import ModelError
from quant.graph.layers import find_layers, nested_layers
from quant.graph.model import opset, read_model, signature
from quant.graph.together import together


class InspectedLayer(Document):
    """One layer: its operator, the shape of its weight (None for a product of two activations), its number of weights."""

    name: str
    op: str
    weight: tuple[int, ...] | None
    channel_axis: int | None
    parameters: int


class InspectedGroup(Document):
    """Layers that share one format in plans, and why: they read one tensor (`reads`), or are added up (`sum`) or concatenated (`concat`) on codes."""

    layers: tuple[str, ...]
    bonds: tuple[str, ...]
    tensors: tuple[str, ...]


class Inspection(Document, Shown):
    """What can be seen of a model; `nested` is what is to be said of layers in graphs nested in it, which are not among its layers."""

    path: str
    opset: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operators: dict[str, int]
    parameters: int
    layers: tuple[InspectedLayer, ...]
    groups: tuple[InspectedGroup, ...] = ()
    nested: str = ""

    def as_table(self) -> Table:
        """Its layers."""
        rows = [(x.name, x.op, None if x.weight is None else " x ".join(map(str, x.weight)), x.parameters) for x in self.layers]
        facts: dict[str, Cell] = {"inputs": ", ".join(self.inputs), "outputs": ", ".join(self.outputs), "opset": self.opset, "weights": self.parameters}
        facts |= {"layers": len(self.layers), **({"nested": self.nested} if self.nested else {})}
        return Table(f"Model {Path(self.path).name}", ("layer", "operator", "weight", "weights"), rows, facts)

    def as_chart(self) -> Chart:
        """Where its weights are."""
        held = [x for x in self.layers if x.parameters]
        operators = dict.fromkeys(x.op for x in held)
        series = [Series(op, [x.parameters for x in held if x.op == op], [x.name for x in held if x.op == op]) for op in operators]
        return Chart("Where the weights are", "weights", "", series, "bars")


@with_checked_arguments
def inspect(path: Path | str) -> Inspection:
    """Read the ONNX model in `path` and list what it is made of.

    Args:
        path: An ONNX file.

    Raises:
        ModelError: No such file, or not an ONNX model.
    """
    path = Path(path)
    if path.is_dir():
        raise ModelError(
            "is a folder", where=str(path), hint="give an .onnx file; for a Hugging Face folder, run a recipe and inspect the ONNX graph in its run folder"
        )
    model = read_model(path)
    found = signature(model)
    operators: dict[str, int] = {}
    for node in model.graph:
        operators[node.op_type] = operators.get(node.op_type, 0) + 1
    all_layers = find_layers(model)
    layers = tuple(InspectedLayer(name=x.name, op=x.op, weight=x.weight_shape, channel_axis=x.channel_axis, parameters=x.parameters) for x in all_layers)
    groups = tuple(InspectedGroup(layers=x.layers, bonds=x.bonds, tensors=x.tensors) for x in together(all_layers))
    return Inspection(
        path=str(path),
        opset=opset(model),
        inputs=tuple(map(str, found.inputs)),
        outputs=tuple(map(str, found.outputs)),
        operators=dict(sorted(operators.items())),
        parameters=sum(v.const_value.size for v in model.graph.initializers.values() if v.const_value is not None),
        layers=layers,
        groups=groups,
        nested=nested_layers(model),
    )
