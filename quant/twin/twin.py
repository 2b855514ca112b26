"""The twin of an ONNX graph: run it, read and change tensors by their ONNX names, train its weights, write them back."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import torch
from torch import fx

from quant.core.registry import did_you_mean
from quant.errors import ModelError
from quant.twin.conversion import Converted
from quant.twin.operators import from_numpy
from quant.twin.parity import Parity

Feed = Mapping[str, "npt.NDArray[Any] | torch.Tensor"]
Change = Callable[[torch.Tensor], torch.Tensor]


class Twin:
    """An ONNX graph as a `torch.fx` module. Make one with `quant.twin.make.make_twin`.

    Batch normalization is as at inference and dropout does nothing, whatever the module's mode. No weight wants a gradient until
    `train` names it. Runs are deterministic; they depend on torch's number of threads as torch's kernels do.

    Args:
        converted: What became of the graph.
        parity: How close it is to ONNX Runtime; None when it was not compared.

    Attributes:
        module: The module, called with the graph's inputs in order; gives a tuple of outputs. Its parameters and buffers are
            the graph's initializers, under names made into identifiers (`parameters` has them by their own names).
        inputs: Names of the inputs, in order.
        outputs: Names of the outputs, in order.
        parity: As given.
    """

    def __init__(self, converted: Converted, parity: Parity | None = None) -> None:
        self.module = converted.module
        self.inputs = converted.inputs
        self.outputs = converted.outputs
        self.parity = parity
        self._values = converted.values
        self._nodes = converted.nodes
        self._attributes = converted.attributes

    def node_of(self, name: str) -> fx.Node:
        """The fx node that makes the first output of an ONNX node (one without a name goes by operator and output: `Add_y`).

        Raises:
            ModelError: No node of that name makes a tensor that anything reads.
        """
        return self._find(self._nodes, name, "node")

    def tensor(self, name: str) -> fx.Node:
        """The fx node that makes the ONNX value `name`: an input, a weight, or what a node gives.

        Raises:
            ModelError: There is no such value, or it is only part of a shape.
        """
        return self._find(self._values, name, "tensor")

    def _find(self, known: Mapping[str, fx.Node], name: str, noun: str) -> fx.Node:
        if name not in known:
            raise ModelError(f"the twin has no {noun} {name!r}", hint=did_you_mean(name, list(known)))
        return known[name]

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of all ONNX values that are tensors here, in the order in which they are made."""
        return tuple(self._values)

    @property
    def parameters(self) -> dict[str, torch.nn.Parameter]:
        """Initializer -> parameter, for every float initializer that is read: weights, biases, and scales of quantizers."""
        found = {name: getattr(self.module, attribute) for name, attribute in self._attributes.items()}
        return {name: value for name, value in found.items() if isinstance(value, torch.nn.Parameter)}

    def train(self, names: Collection[str]) -> list[torch.nn.Parameter]:
        """Let the parameters of these initializers want gradients, and no others; gives them in the order of `names`.

        Raises:
            ModelError: A name is that of no float initializer.
        """
        known = self.parameters
        for name in names:
            if name not in known:
                raise ModelError(f"{name!r} is no float weight of the twin", hint=did_you_mean(name, list(known)))
        for name, parameter in known.items():
            parameter.requires_grad_(name in names)
        return [known[name] for name in names]

    def arguments(self, feed: Feed) -> list[torch.Tensor]:
        """The inputs of `feed` as tensors, in the module's order.

        Raises:
            ModelError: One is missing.
        """
        missing = [name for name in self.inputs if name not in feed]
        if missing:
            raise ModelError(f"input {missing[0]!r} is not fed", hint=f"inputs: {', '.join(self.inputs)}")
        return [v if isinstance(v, torch.Tensor) else from_numpy(np.asarray(v)) for v in (feed[name] for name in self.inputs)]

    def run(self, feed: Feed, *, keep: Collection[str] = (), change: Mapping[str, Change] | None = None, gradients: bool = False) -> dict[str, torch.Tensor]:
        """Outputs, and the tensors that are named in `keep`, for one batch.

        Args:
            feed: Input -> array or tensor.
            keep: Further ONNX values to give.
            change: ONNX value -> what to put in its place for whoever reads it: a fake quantizer, an added error.
                What is kept is the changed tensor.
            gradients: Let every kept tensor want a gradient, so that `torch.autograd.grad(f(outputs), [kept ...])` works though no
                weight and no input wants one. A kept float tensor that has no history starts one.

        Raises:
            ModelError: An input is missing, or a name is that of no tensor.

        Example:
            `made = twin.run(feed, keep=["h"], gradients=True)`, then `torch.autograd.grad(made["y"].sum(), [made["h"]])`.
        """
        change = change or {}
        if not keep and not change and not gradients:
            return dict(zip(self.outputs, self.module(*self.arguments(feed)), strict=True))
        run = _Run(self.module, {self.tensor(n): n for n in keep}, {self.tensor(n): f for n, f in change.items()}, gradients=gradients)
        with torch.set_grad_enabled(gradients or torch.is_grad_enabled()):
            outputs = run.run(*self.arguments(feed))
        return {**run.kept, **dict(zip(self.outputs, outputs, strict=True))}

    def insert(self, name: str, module: torch.nn.Module, *, readers: Collection[str] | None = None) -> fx.Node:
        """Put `module` behind the ONNX value `name`: a fake quantizer on an activation or on a weight.

        Args:
            name: The value; `tensor(name)` stays what it was.
            module: Takes the tensor and gives one of the same shape. Its parameters become parameters of the twin's module.
            readers: ONNX nodes that read what it gives; everybody, and the graph's output, when None.

        Returns:
            The fx node of the call.

        Raises:
            ModelError: There is no such value, nothing reads it, or a reader does not.
        """
        source = self.tensor(name)
        graph = self.module.graph
        users = [u for u in source.users if readers is None or u.meta.get("onnx_node") in readers]
        unread = [] if readers is None else sorted(set(readers) - {u.meta.get("onnx_node") for u in users})
        if unread:
            raise ModelError(
                f"node {unread[0]!r} does not read {name!r}", hint=f"it is read by {sorted({str(u.meta.get('onnx_node', 'output')) for u in source.users})}"
            )
        if not users:
            raise ModelError(f"nothing reads {name!r}", hint="put the module on a tensor that something reads")
        attribute = self._free(f"at_{name}")
        self.module.add_module(attribute, module)
        with graph.inserting_before(min(users)):  # not behind the source: inputs and weights stand in a row at the front
            call = graph.call_module(attribute, (source,))
        for user in users:
            user.replace_input_with(source, call)
        graph.lint()
        self.module.recompile()
        return call

    def substitute(self, modules: Iterable[tuple[str, torch.nn.Module, str]]) -> None:
        """Let modules make ONNX values: fake quantizers instead of pairs of nodes.

        What only served to make these values is gone afterwards, and so are its names.

        Args:
            modules: (value, the module that shall make it, the value that the module is fed with). A module may stand in several places.

        Raises:
            ModelError: There is no such value.
        """
        graph = self.module.graph
        places: dict[int, str] = {}
        for name, module, source in modules:
            old, given = self.tensor(name), self.tensor(source)
            if id(module) not in places:
                places[id(module)] = self._free(f"at_{name}")
                self.module.add_module(places[id(module)], module)
            with graph.inserting_before(old):
                call = graph.call_module(places[id(module)], (given,))
            call.meta.update(old.meta)
            old.replace_all_uses_with(call)
            self._values[name] = call
            self._nodes = {key: call if made is old else made for key, made in self._nodes.items()}
        graph.eliminate_dead_code()
        alive = set(graph.nodes)
        self._values, self._nodes = ({key: made for key, made in known.items() if made in alive} for known in (self._values, self._nodes))
        graph.lint()
        self.module.recompile()

    def _free(self, wanted: str) -> str:
        base = re.sub(r"\W", "_", wanted, flags=re.ASCII)
        name, number = base, 1
        while hasattr(self.module, name):
            number += 1
            name = f"{base}_{number}"
        return name

    def write_back(self, model: ir.Model) -> tuple[str, ...]:
        """Write the weights that differ into the initializers of the same name in `model`, in place; gives their names.

        Raises:
            ModelError: `model` lacks one of the initializers, or has it in another shape.
        """
        written = []
        for name, parameter in self.parameters.items():
            value = model.graph.initializers.get(name)
            if value is None or value.const_value is None:
                raise ModelError(f"the model has no weight {name!r} to write to", hint="write back to the graph that the twin was made of")
            old = value.const_value
            if tuple(parameter.shape) != tuple(old.shape.numpy()):
                raise ModelError(f"weight {name!r} has the shape {list(parameter.shape)} here and {list(old.shape.numpy())} in the model")
            if torch.equal(parameter.detach(), from_numpy(old.numpy())):
                continue
            value.const_value = _tensor(parameter.detach(), name)
            written.append(name)
        return tuple(written)


def _tensor(values: torch.Tensor, name: str) -> ir.TensorProtocol:
    if values.dtype == torch.bfloat16:
        return ir.Tensor(values.contiguous().view(torch.uint16).numpy().copy(), dtype=ir.DataType.BFLOAT16, name=name)
    return ir.tensor(values.contiguous().numpy().copy(), name=name)


class _Run(fx.Interpreter):
    """One run that keeps, changes, or gives a gradient to, some of the tensors."""

    def __init__(self, module: fx.GraphModule, keep: Mapping[fx.Node, str], change: Mapping[fx.Node, Change], *, gradients: bool) -> None:
        super().__init__(module)
        self._keep, self._change, self._gradients = keep, change, gradients
        self.kept: dict[str, torch.Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        out = super().run_node(n)
        if n in self._change:
            out = self._change[n](out)
        if n in self._keep:
            if self._gradients and out.is_floating_point() and not out.requires_grad:
                out = out.detach().requires_grad_()
            self.kept[self._keep[n]] = out
        return out
