"""An ONNX model in memory and on disk.

Graphs are held as `onnx_ir` models. Weights stay where they are: a tensor read from external data is mapped, not loaded,
and a model is written with its large tensors beside it, so that no protobuf ever comes near the limit of 2 GiB.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.core.digest import digest_of_file
from quant.core.signature import Signature, TensorSpec
from quant.errors import ModelError

MODEL_FILE = "model.onnx"
DATA_FILE = "model.onnx.data"
_EXTERNAL_FROM_BYTES = 1024
_BROKEN = "the graph is broken; export the model again"
FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE})


def read_model(path: Path) -> ir.Model:
    """The ONNX model in `path`; its external data, if any, must lie in the same folder.

    Raises:
        ModelError: No such file, not an ONNX model, a graph that does not hang together, or external data that is missing, short or outside the folder.
    """
    if not path.is_file():
        raise ModelError("no such model file", where=str(path), hint="give the path of an .onnx file")
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - heavy

    try:
        with _silent():  # it warns of what `_check_wiring` refuses
            model = ir.load(path)
    except ir.serde.SerdeError as error:
        raise _unreadable(path, error) from error
    except (DecodeError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelError(
            f"not an ONNX model: {_first_line(error)}", where=str(path), hint="the file is damaged, or of another kind; export the model again"
        ) from error
    if not model.graph.outputs:
        raise ModelError(
            "not an ONNX model: it has no graph with outputs", where=str(path), hint="the file is damaged, or of another kind; export the model again"
        )
    _check_external(model, path)
    _check_wiring(model, path)
    return model


@contextmanager
def _silent() -> Iterator[None]:
    """The reader logs nothing."""
    log = logging.getLogger("onnx_ir.serde")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _check_wiring(model: ir.Model, path: Path) -> None:
    """Refuse a graph that reads what nothing makes, or in which something depends on itself; nodes out of order are put in order."""
    seen: set[ir.Value] = set()
    in_order = True
    for graph in all_graphs(model.graph):
        for node in graph:
            for value in node.inputs:
                if value is not None:
                    _check_made(value, f"{node.op_type} {node.name!r} reads {value.name!r}, which is", path)
                    maker = value.producer()
                    in_order &= maker is None or maker.graph is not graph or value in seen
            seen.update(node.outputs)
        for value in graph.outputs:
            _check_made(value, f"output {value.name!r} is", path)
    if in_order:
        return
    try:
        model.graph.sort()
    except ValueError as error:
        raise ModelError("something in the graph depends on itself", where=str(path), hint=_BROKEN) from error


def _check_made(value: ir.Value, subject: str, path: Path) -> None:
    if value.producer() is None and not value.is_graph_input() and not value.is_initializer():
        raise ModelError(f"{subject} computed by no node", where=str(path), hint=_BROKEN)


def _unreadable(path: Path, error: BaseException) -> ModelError:
    """Why a file that is a protobuf of the right kind is not read: most often its inputs or outputs are no tensors."""
    import onnx  # noqa: PLC0415 - heavy

    graph = onnx.load(path, load_external_data=False).graph
    for noun, values in (("input", graph.input), ("output", graph.output)):
        for value in values:
            kind = value.type.WhichOneof("value")
            if kind not in {None, "tensor_type"}:
                what = f"{noun} {value.name!r} is no tensor but a {str(kind).removesuffix('_type')}"
                return ModelError(what, where=str(path), hint="export the model without it; skl2onnx leaves ZipMap out with options={'zipmap': False}")
    while error.__cause__ is not None:  # the outermost says no more than in which graph
        error = error.__cause__
    return ModelError(f"the graph cannot be read: {_first_line(error)}", where=str(path), hint="export the model again, with a newer exporter")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _check_external(model: ir.Model, path: Path) -> None:
    """Refuse external data that leaves the model's folder, is missing, or is shorter than its tensor."""
    folder = path.parent.resolve()
    for name, tensor in _external_tensors(model):
        file = (folder / str(tensor.location)).resolve()
        if Path(str(tensor.location)).is_absolute() or not file.is_relative_to(folder):
            raise ModelError(
                f"external data of tensor {name!r} lies outside the model's folder: {tensor.location}",
                where=str(path),
                hint="keep the data file beside the model",
            )
        if not file.is_file():
            raise ModelError(f"external data of tensor {name!r} is missing: {tensor.location}", where=str(path), hint="keep the data file beside the model")
        end = (tensor.offset or 0) + tensor.nbytes
        if file.stat().st_size < end:
            raise ModelError(
                f"external data of tensor {name!r} ends early: {tensor.location} has {file.stat().st_size} bytes, needs {end}",
                where=str(path),
                hint="copy the data file again",
            )


def _external_tensors(model: ir.Model) -> Iterator[tuple[str, ir.ExternalTensor]]:
    """Every tensor that lies in another file: weights and attributes of all graphs, and of the model's functions."""
    inner = [node.attributes for function in model.functions.values() for node in function]
    for graph in all_graphs(model.graph):
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                yield str(value.name), value.const_value
        inner += [node.attributes for node in graph]
    for attributes in inner:
        for found in attributes.values():
            tensors = [found.as_tensor()] if found.type == ir.AttributeType.TENSOR and not found.is_ref() else []
            yield from ((str(t.name or found.name), t) for t in tensors if isinstance(t, ir.ExternalTensor))


def write_model(model: ir.Model, folder: Path, *, single_file: bool = False) -> Path:
    """Write `model` into `folder` as `model.onnx`; the same bytes each time.

    Large tensors go to `model.onnx.data` beside it, unless it is to be a `single_file` (which must stay far below 2 GiB).
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / MODEL_FILE
    if single_file:
        whole = ir.external_data.load_to_model(model)
        ir.save(whole, path)
    else:
        ir.save(model, path, external_data=DATA_FILE, size_threshold_bytes=_EXTERNAL_FROM_BYTES)
    return path


def model_digest(path: Path) -> str:
    """SHA-256 over the model file and the external data files that it names."""
    names = {str(v.const_value.location) for v in read_model(path).graph.initializers.values() if isinstance(v.const_value, ir.ExternalTensor)}
    from quant.core.digest import digest_of  # noqa: PLC0415

    return digest_of([digest_of_file(path), *(digest_of_file(path.parent / name) for name in sorted(names))])


def signature(model: ir.Model) -> Signature:
    """Inputs and outputs of the graph, in order; weights are no inputs."""
    weights = model.graph.initializers
    inputs = tuple(_spec(v) for v in model.graph.inputs if v.name not in weights)
    return Signature(inputs, tuple(_spec(v) for v in model.graph.outputs))


def _spec(value: ir.Value) -> TensorSpec:
    dtype = "float32" if value.dtype is None else "bfloat16" if value.dtype == ir.DataType.BFLOAT16 else str(value.dtype.numpy())
    shape = None if value.shape is None else tuple(_dim(d) for d in value.shape)
    return TensorSpec(str(value.name), dtype, shape)


def _dim(dim: int | ir.SymbolicDim) -> int | str:
    """A length, or the name of a symbolic dimension; some exporters write -1 for a length that is not fixed."""
    if isinstance(dim, int):
        return dim if dim >= 0 else "?"
    return str(dim.value or "?")


def opset(model: ir.Model) -> int:
    """The version of the default ONNX operator set that the model uses."""
    return model.graph.opset_imports.get("", 0)


def all_graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    """`graph` and every graph nested in it (branches of If, bodies of Loop and Scan)."""
    yield graph
    for node in graph:
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from all_graphs(attribute.as_graph())
            elif attribute.type == ir.AttributeType.GRAPHS:
                for inner in attribute.as_graphs():
                    yield from all_graphs(inner)


def constant(value: ir.Value | None) -> npt.NDArray[Any] | None:
    """The array that `value` always holds (an initializer or a Constant node), or None when it is computed."""
    if value is None:
        return None
    tensor = value.const_value
    if tensor is None:
        tensor = ir.convenience.get_const_tensor(value)
    if tensor is None or value.is_graph_input():
        return None
    return tensor.numpy()


def attribute(node: ir.Node, name: str, default: Any) -> Any:
    """The value of a node's attribute, or `default` when it is not written."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def add_initializer(graph: ir.Graph, name: str, array: npt.NDArray[np.generic]) -> ir.Value:
    """Add `array` to the graph as a weight called `name` (made unique), and give its value."""
    unique, number = name, 1
    while unique in graph.initializers:
        number += 1
        unique = f"{name}_{number}"
    # `ascontiguousarray` makes one axis of none; engines know a per-tensor scale by its having none.
    tensor = ir.tensor(np.ascontiguousarray(array).reshape(np.shape(array)), name=unique)
    value = ir.Value(name=unique, type=ir.TensorType(tensor.dtype), shape=ir.Shape(np.shape(array)), const_value=tensor)
    graph.initializers[unique] = value
    return value


def drop_unused_weights(graph: ir.Graph) -> None:
    """Remove the weights that nobody reads any more (nested graphs count as readers)."""
    for name, value in list(graph.initializers.items()):
        if not value.uses() and not value.is_graph_output() and not value.is_graph_input():
            del graph.initializers[name]
