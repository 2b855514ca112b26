"""A linear probe: a logistic regression on a frozen model's embeddings, fused into its graph.

The probe gives logits z = x · W + b with softmax(z) = scikit-learn's `predict_proba`. scikit-learn has one column t for two
classes; here they are [-t/2, t/2], whose softmax is [1 - sigmoid(t), sigmoid(t)] and whose ranges are alike.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.core.registry import did_you_mean
from quant.errors import DataError, ModelError
from quant.graph.importing.report import HeadReport
from quant.graph.importing.surgery import name_outputs, values_of
from quant.graph.model import add_initializer, read_model, write_model
from quant.graph.runtime import Runtime
from quant.recipe.schema import Head

LOGITS = "logits"
Wide = npt.NDArray[np.float64]


def fit_linear_probe(model_path: Path, folder: Path, head: Head, embeddings: npt.NDArray[np.floating[Any]], labels: npt.NDArray[np.integer[Any]]) -> HeadReport:
    """Fit a linear probe and write the model with it as `folder/model.onnx`.

    The new output `logits` `[batch, classes]` stands behind the outputs that the model has; column i belongs to label i.

    Args:
        model_path: The model that gives the embeddings.
        folder: Where the fused model is written.
        head: Options of the fit, and the output that holds the embeddings.
        embeddings: What that output gives for the samples of the `train` role, `[samples, dimension]`.
        labels: Classes 0, 1, ... `[samples]`.

    Raises:
        DataError: The samples cannot be fitted: not finite, of a wrong shape, or of too few classes.
        ModelError: The model has no such output, or cannot be given one.
    """
    model = read_model(model_path)
    output = _embedding_output(model, head, str(model_path))
    x, y = _checked(embeddings, labels)
    weight, bias, fitted, notes = _fit(head, x, y)
    error = _fuse(model, output, weight, bias, x=x, expected=fitted.predict_log_proba(x))
    Runtime(write_model(model, folder), optimize=False)
    right = float(np.mean(np.argmax(x @ weight + bias, axis=1) == y))
    return HeadReport(
        output=str(output.name),
        dimension=x.shape[1],
        classes=weight.shape[1],
        samples=len(y),
        iterations=int(np.max(fitted.n_iter_)),
        accuracy=right,
        max_abs_error=error,
        notes=notes,
    )


def _embedding_output(model: ir.Model, head: Head, where: str) -> ir.Value:
    names = [str(v.name) for v in model.graph.outputs]
    if LOGITS in names:
        raise ModelError(f"the model has an output {LOGITS!r} already", where=where, hint="leave model.head out, or rename that output")
    if head.output is None and len(names) != 1:
        raise ModelError(
            f"the model has several outputs: {', '.join(names)}", where=where, hint="name the one that holds the embeddings with model.head.output"
        )
    wanted = names[0] if head.output is None else head.output
    if wanted not in names:
        raise ModelError(f"the model has no output {wanted!r}", where=where, hint=did_you_mean(wanted, names))
    value = model.graph.outputs[names.index(wanted)]
    if value.dtype not in {None, ir.DataType.FLOAT}:
        raise ModelError(f"output {wanted!r} is {value.dtype}, not float32", where=where, hint="a head is fitted on FP32 embeddings")
    if value.shape is not None and len(value.shape) != 2:  # noqa: PLR2004 - batch, dimension
        raise ModelError(f"output {wanted!r} has shape {value.shape}; embeddings are [batch, dimension]", where=where, hint="pool them: model.pooling")
    return value


def _checked(embeddings: npt.NDArray[Any], labels: npt.NDArray[Any]) -> tuple[Wide, npt.NDArray[np.int64]]:
    if embeddings.ndim != 2:  # noqa: PLR2004 - samples, dimension
        raise DataError(f"embeddings have shape {list(embeddings.shape)}, not [samples, dimension]", hint="pool them: model.pooling")
    if len(labels) != len(embeddings) or labels.ndim != 1:
        raise DataError(f"{len(embeddings)} embeddings but labels of shape {list(labels.shape)}", hint="give every sample one label")
    if labels.dtype.kind not in "iu":
        raise DataError(f"labels are {labels.dtype}, not classes", hint="see data.label")
    bad = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
    if bad.size:
        raise DataError(
            f"the embedding of sample {int(bad[0])} is not finite (NaN or infinity), as are {bad.size - 1} others", hint="look at that sample of the train role"
        )
    found = np.unique(labels)
    if found.size < 2:  # noqa: PLR2004 - a classifier tells two things apart
        raise DataError(f"the train role has one class only: {', '.join(map(str, found)) or 'no samples'}", hint="take more samples, or look at data.label")
    missing = sorted(set(range(int(found.max()) + 1)) - set(map(int, found)))
    if found[0] < 0 or missing:
        what = f"label {int(found[0])} is negative" if found[0] < 0 else f"class {missing[0]} has no sample in the train role"
        raise DataError(what, hint="labels are 0, 1, ...; take more samples, or look at data.label")
    return embeddings.astype(np.float64), labels.astype(np.int64)


def _fit(head: Head, x: Wide, y: npt.NDArray[np.int64]) -> tuple[Wide, Wide, Any, tuple[str, ...]]:
    """Weight `[dimension, classes]`, bias `[classes]`, the fitted regression, and notes. One thread, so that sums have one order."""
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415 - heavy
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    regression = LogisticRegression(C=head.C, max_iter=head.max_iter)
    with threadpool_limits(limits=1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        regression.fit(x, y)
    notes: tuple[str, ...] = ()
    if any(issubclass(w.category, ConvergenceWarning) for w in caught):
        notes = (f"the fit stopped at max_iter={head.max_iter} before it converged; raise model.head.max_iter",)
    weight, bias = regression.coef_.T, regression.intercept_
    if weight.shape[1] == 1:
        weight, bias = np.hstack([-weight / 2, weight / 2]), np.concatenate([-bias / 2, bias / 2])
    return weight, bias, regression, notes


def _fuse(model: ir.Model, output: ir.Value, weight: Wide, bias: Wide, *, x: Wide, expected: Wide) -> float:
    """Add MatMul and Add behind `output`; gives the largest error of log-probabilities in FP32 against `expected`."""
    graph = model.graph
    taken = {str(v.name) for v in values_of(graph)} | {str(n.name) for n in graph}
    stem = "head"
    while any(name.startswith(f"{stem}.") for name in taken):
        stem += "_"
    w = add_initializer(graph, f"{stem}.weight", weight.astype(np.float32))
    b = add_initializer(graph, f"{stem}.bias", bias.astype(np.float32))
    product = ir.node("MatMul", [output, w], name=f"{stem}.MatMul")
    total = ir.node("Add", [product.outputs[0], b], name=f"{stem}.Add")
    batch = None if output.shape is None else output.shape[0]
    for value, name in ((product.outputs[0], f"{stem}.MatMul_output"), (total.outputs[0], f"{stem}.Add_output")):
        value.name, value.type = name, ir.TensorType(ir.DataType.FLOAT)
        value.shape = ir.Shape([batch, weight.shape[1]])
    graph.extend([product, total])
    graph.outputs.append(total.outputs[0])
    name_outputs(graph, [*(str(v.name) for v in graph.outputs[:-1]), LOGITS])
    return _error(weight, bias, x, expected)


def _error(weight: Wide, bias: Wide, x: Wide, expected: Wide) -> float:
    """The largest difference of log-probabilities between the head as ONNX in FP32 and `expected`."""
    from onnx import TensorProto, helper, numpy_helper  # noqa: PLC0415 - heavy
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415

    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["z"])],
        "head",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, x.shape[1]])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [None, weight.shape[1]])],
        [numpy_helper.from_array(weight.astype(np.float32), "w"), numpy_helper.from_array(bias.astype(np.float32), "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    results: Any = ReferenceEvaluator(model).run(None, {"x": x.astype(np.float32)})
    found = np.asarray(results[0]).astype(np.float64)
    logits = found - found.max(axis=1, keepdims=True)
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    error = float(np.max(np.abs(log_probabilities - expected)))
    # |x| · |W| bounds the sum of magnitudes in a product; FP32 rounds each of its terms and sums by at most 2^-24 of it
    bound = 4 * (x.shape[1] + 2) * 2.0**-24 * float(np.max(np.abs(x) @ np.abs(weight) + np.abs(bias))) + 1e-12
    assert error <= bound, f"the fused head differs from the fitted one by {error:g} (rounding explains {bound:g})"
    return error
