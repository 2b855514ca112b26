"""From a torch module to a graph whose names are the module's own."""

from __future__ import annotations

import ast
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from quant.core.quiet import quiet
from quant.errors import ModelError
from quant.graph.importing.surgery import name_outputs, rename_weight
from quant.graph.importing.trial import Array, Outputs

_SCOPES = "pkg.torch.onnx.name_scopes"


def export(module: Any, feed: Mapping[str, Any], dynamic: Mapping[str, Mapping[int, str]], *, outputs: Sequence[str], prefix: str = "") -> ir.Model:
    """Export `module` by `torch.export`.

    Args:
        module: A torch module in inference mode; called with `feed` by position, in its order.
        feed: Input name -> example tensor; a dynamic axis has at least two entries.
        dynamic: Input name -> axis -> name of that axis.
        outputs: Names of the outputs, in order.
        prefix: What the names of weights and nodes begin with and should not.

    Raises:
        ModelError: torch cannot export the module; with the first line of its reason.
    """
    import torch  # noqa: PLC0415 - heavy

    shapes = tuple(dict(dynamic.get(name, {})) or None for name in feed)
    with quiet(), torch.random.fork_rng(devices=[]):
        try:
            program = torch.onnx.export(module, tuple(feed.values()), dynamo=True, optimize=True, dynamic_shapes=_nested(module, shapes), verbose=False)
        except Exception as error:  # the exporter passes on whatever the module and its passes raise
            raise ModelError(f"torch cannot export the module: {_reason(error)}", hint="see torch.onnx.export(dynamo=True) on what a module may do") from error
    assert program is not None, "dynamo=True gives a program"
    model: ir.Model = program.model
    _tidy(model, dict(module.state_dict()), inputs=list(feed), outputs=outputs, prefix=prefix)
    return model


def _nested(module: Any, shapes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Shapes in the form of the module's parameters: one tuple when it takes `*inputs`."""
    import inspect  # noqa: PLC0415 - rarely

    kinds = [p.kind for p in inspect.signature(module.forward).parameters.values()]
    return (shapes,) if kinds and kinds[0] is inspect.Parameter.VAR_POSITIONAL else shapes


def _reason(error: BaseException) -> str:
    """The first lines of the innermost cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:3])[:400] if lines else 'no reason given'}"


def _tidy(model: ir.Model, weights: Mapping[str, Any], *, inputs: Sequence[str], outputs: Sequence[str], prefix: str) -> None:
    graph = model.graph
    assert len(graph.inputs) == len(inputs), f"inputs {[v.name for v in graph.inputs]}"
    assert len(graph.outputs) == len(outputs), f"outputs {[v.name for v in graph.outputs]}"
    name_outputs(graph, [f"output of the graph {i}" for i in range(len(outputs))])
    for value in [v for node in graph for v in node.outputs if v.name in inputs]:
        value.name = f"{value.name}_inner"
    for value, name in zip(graph.inputs, inputs, strict=True):
        value.name = name
    _name_weights(graph, weights)
    _name_by_module(graph, prefix)
    if prefix:
        for name, value in list(graph.initializers.items()):
            if name.startswith(prefix):
                rename_weight(graph, value, name.removeprefix(prefix))
    name_outputs(graph, outputs)
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass  # noqa: PLC0415

    ClearMetadataAndDocStringPass()(model)  # stack traces with paths of this machine


def _module_of(node: ir.Node) -> str:
    """Path of the module that computes `node`; empty for the outermost."""
    scopes = node.metadata_props.get(_SCOPES)
    path = ast.literal_eval(scopes) if scopes else []
    return str(path[-2]) if len(path) > 1 and "." not in str(path[-1]) else ""


def _name_weights(graph: ir.Graph, weights: Mapping[str, Any]) -> None:
    """Give weights that the exporter transposed (and so renamed) the name of their module's weight again."""
    for value in list(graph.initializers.values()):
        modules = {_module_of(use.node) for use in value.uses()}
        if value.name in weights or len(modules) != 1 or value.shape is None:
            continue
        name = f"{modules.pop()}.weight"
        if name in weights and sorted(weights[name].shape) == sorted(int(d) for d in value.shape if isinstance(d, int)) and weights[name].dim() > 1:
            rename_weight(graph, value, name)


def _name_by_module(graph: ir.Graph, prefix: str) -> None:
    """Call each node by its module and operator: `encoder.layer.0.output.dense.MatMul`."""
    seen: dict[str, int] = {}
    for node in graph:
        module = _module_of(node)
        module = "" if module == prefix.rstrip(".") else module.removeprefix(prefix)
        weight = next((str(v.name) for v in node.inputs[1:2] if v is not None and v.is_initializer() and str(v.name).endswith(".weight")), None)
        if weight is not None:  # a batch norm that the exporter folded gave its own scope to the layer
            module = weight.removesuffix(".weight").removeprefix(prefix)
        name = f"{module}.{node.op_type}" if module and not module.startswith("_") else node.op_type
        seen[name] = seen.get(name, 0) + 1
        node.name = name if seen[name] == 1 else f"{name}_{seen[name]}"


def flat_outputs(found: Any, inputs: Container[str]) -> dict[str, Any]:
    """What a module returned, by name: a mapping's keys, `output` for one tensor, `output_0`, `output_1`, ... for several.

    A key that is the name of one of `inputs` gets `_output` appended: a graph has each name once.

    Raises:
        ModelError: Something other than tensors was returned.
    """
    import torch  # noqa: PLC0415 - heavy

    if isinstance(found, torch.Tensor):
        named = {"output": found}
    elif isinstance(found, Mapping):
        named = {str(k): v for k, v in found.items() if v is not None}
    elif isinstance(found, tuple | list):
        named = {f"output_{i}": v for i, v in enumerate(found)} if len(found) > 1 else dict(zip(["output"], found, strict=False))
    else:
        named = {}
    if not named or not all(isinstance(v, torch.Tensor) for v in named.values()):
        raise ModelError(
            f"the module returns {type(found).__name__}, not tensors", hint="return a tensor, a tuple of tensors, or a mapping of names to tensors"
        )
    return {f"{name}_output" if name in inputs else name: value for name, value in named.items()}


def run_torch(module: Any, feeds: Sequence[Mapping[str, Array]]) -> Outputs:
    """The outputs of `module` on `feeds`, by name.

    Raises:
        ModelError: The module cannot run on a feed, or does not give tensors.
    """
    import torch  # noqa: PLC0415 - heavy

    results = []
    with torch.no_grad():
        for feed in feeds:
            try:
                with quiet():
                    found = module(*(torch.from_numpy(np.ascontiguousarray(a).reshape(a.shape)) for a in feed.values()))
            except (RuntimeError, TypeError, ValueError, IndexError) as error:
                shapes = ", ".join(f"{k} {v.dtype}{list(v.shape)}" for k, v in feed.items())
                what = f"the module cannot run on {shapes}: {(str(error).splitlines() or ['no reason given'])[0]}"
                raise ModelError(what, hint="see data.inputs and model.batch_axes") from error
            results.append({name: value.detach().cpu().numpy() for name, value in flat_outputs(found, feed).items()})
    return tuple(results)
