"""What metrics share: finding an output, pairing its rows with labels, reading labels, logits to probabilities."""

from __future__ import annotations

import importlib
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from quant.core.registry import Options, did_you_mean
from quant.errors import DataError, RecipeError

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Outputs = Sequence[Mapping[str, Array]]
Apply = Literal["none", "softmax", "sigmoid"]


class OutputOptions(Options):
    """Which output a metric reads."""

    output: str | None = Field(None, description="name of the output; the first when not given")


class ClassOptions(OutputOptions):
    """Which output holds the class scores, and how they lie in it."""

    axis: int = Field(-1, description="axis of the classes, the batch axis not counted; -1 is the last")
    ignore: int | None = Field(None, description="rows with this label do not count (padding of sequences)")
    threshold: float | None = Field(None, description="an output with one score: class 1 is above this. Not given: 0.5, for probabilities; give 0 for logits")


def pick(outputs: Outputs, name: str | None) -> Array:
    """The output `name` (the first when None): of one feed as it is, of several feeds stacked, `[feeds, ...]`.

    Raises:
        DataError: There is no such output, or the feeds' shapes differ.
    """
    known = list(outputs[0])
    if name is not None and name not in known:
        raise DataError(f"the model has no output {name!r}", hint=did_you_mean(name, known))
    arrays = [np.asarray(feed[name or known[0]]) for feed in outputs]
    if len(arrays) == 1:
        return arrays[0]
    if len({array.shape for array in arrays}) > 1:
        raise DataError(f"output {name or known[0]!r} has different shapes over the feeds of one sample: {sorted({a.shape for a in arrays})}")
    return np.stack(arrays)


def rows_of(array: Array, label: Any, *, axis: int = -1) -> tuple[Array, Array]:
    """Scores and labels as rows: `[rows, scores]` and `[rows]`.

    A single label goes with the whole array; an array of labels goes with as many rows of scores.

    Raises:
        DataError: There are not as many rows as labels, or no such axis.

    Example:
        >>> scores, labels = rows_of(np.zeros((3, 10)), [1, 2, 3])
        >>> scores.shape, labels.shape
        ((3, 10), (3,))
    """
    labels = np.asarray(label).reshape(-1)
    if array.ndim and not -array.ndim <= axis < array.ndim:
        raise DataError(f"output of shape {list(array.shape)} has no axis {axis}", hint="the batch axis does not count; -1 is the last")
    if array.ndim > 1 and axis not in {-1, array.ndim - 1}:
        array = np.moveaxis(array, axis, -1)
    if array.size == labels.size:
        return array.reshape(-1, 1), labels
    if array.ndim and math.prod(array.shape[:-1]) == labels.size:
        return array.reshape(labels.size, array.shape[-1]), labels
    raise DataError(f"output of shape {list(array.shape)} does not go with {labels.size} label(s)", hint="name the right output, or give one label a row")


def class_rows(outputs: Outputs, label: Any, options: ClassOptions) -> tuple[Array, Integers]:
    """Class scores `[rows, classes]` (or one column) and class labels `[rows]`, rows to be ignored left out.

    Raises:
        DataError: A label is beyond the number of classes, or the rows do not go with the labels.
    """
    # Stacking several feeds puts an axis in front.
    axis = options.axis + 1 if options.axis >= 0 and len(outputs) > 1 else options.axis
    scores, labels = rows_of(pick(outputs, options.output), label, axis=axis)
    labels = labels.astype(np.int64)
    if options.ignore is not None:
        scores, labels = scores[labels != options.ignore], labels[labels != options.ignore]
    classes = scores.shape[1]
    many = classes if classes > 1 else (2 if np.issubdtype(scores.dtype, np.floating) else None)
    if many is not None and labels.size and labels.max() >= many:
        raise DataError(f"label {labels.max()} but {many} classes, 0 to {many - 1}", hint="check data.label.classes, and that the right output is named")
    return scores, labels


def predicted(scores: Array, threshold: float | None) -> Floats:
    """The predicted class of each row, `[rows]`; NaN where a score is NaN.

    Raises:
        DataError: One score a row, no threshold given, and a score that is no probability.
    """
    if scores.shape[1] > 1:
        classes = scores.argmax(axis=1).astype(np.float64)
    elif not np.issubdtype(scores.dtype, np.floating):
        return scores[:, 0].astype(np.float64)
    else:
        if threshold is None and scores.size and (np.nanmin(scores, initial=0) < 0 or np.nanmax(scores, initial=0) > 1):
            raise DataError(f"score {float(scores.reshape(-1)[np.nanargmax(np.abs(scores))]):g} is no probability", hint="set threshold: 0 for logits")
        classes = (scores[:, 0] > (0.5 if threshold is None else threshold)).astype(np.float64)
    return np.where(np.isnan(scores).any(axis=1), np.nan, classes)


def check_class(label: object, *, ignore: int | None = None) -> None:
    """Accept a class (an int of at least 0) or an array of classes.

    Raises:
        DataError: It is anything else.
    """
    values = _array(label, "a class (0, 1, ...)")
    if values.dtype == bool:
        return
    if not np.issubdtype(values.dtype, np.integer):
        raise DataError(f"label {_shown(label)} is no class", hint="a class is 0, 1, ...; data.label.classes lists the values in class order")
    wrong = values[(values < 0) & (values != ignore)] if ignore is not None else values[values < 0]
    if wrong.size:
        raise DataError(f"label {wrong.reshape(-1)[0]} is no class", hint="a class is 0, 1, ...; `ignore` names a label that does not count")


def check_binary(label: object) -> None:
    """Accept the classes 0 and 1.

    Raises:
        DataError: It is anything else.
    """
    check_class(label)
    if np.asarray(label).size and np.max(np.asarray(label)) > 1:
        raise DataError(f"label {int(np.max(np.asarray(label)))} is neither 0 nor 1", hint="this metric is for two classes")


def check_number(label: object) -> None:
    """Accept a finite number or an array of them.

    Raises:
        DataError: It is anything else.
    """
    values = _array(label, "a number")
    if values.dtype != bool and not np.issubdtype(values.dtype, np.number):
        raise DataError(f"label {_shown(label)} is no number", hint="set data.label.kind: number")
    if not np.isfinite(values.astype(np.float64)).all():
        raise DataError(f"label {_shown(label)} is not finite")


def check_text(label: object) -> None:
    """Accept a text.

    Raises:
        DataError: It is anything else.
    """
    if not isinstance(label, str):
        raise DataError(f"label {_shown(label)} is no text", hint="set data.label.kind: text")


def probabilities(scores: Array, apply: Apply) -> Floats:
    """`scores` (`[rows, columns]`) as float64, through a softmax over the columns or a sigmoid when asked.

    Example:
        >>> probabilities(np.zeros((1, 4)), "softmax").tolist()
        [[0.25, 0.25, 0.25, 0.25]]
    """
    values = scores.astype(np.float64)
    if apply == "softmax":
        return np.asarray(np.exp(log_softmax(values)))
    if apply == "sigmoid":
        return np.asarray(np.exp(-np.logaddexp(0, -values)))
    return values


def log_softmax(scores: Floats) -> Floats:
    """Logarithm of the softmax over the last axis."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def column_of(scores: Array, column: int | None, apply: Apply) -> Floats:
    """One score a row, `[rows]`: the only column, the named one, or of two the second less the first.

    Raises:
        DataError: Several columns and none named, or no such column.
    """
    values, count = probabilities(scores, apply), scores.shape[1]
    if column is None:
        if count > 2:  # noqa: PLR2004 - of two classes the difference ranks as the probability does
            raise DataError(f"{count} scores a row and no column named", hint="set column: 0 or another")
        return np.asarray(values[:, -1] if count == 1 else values[:, 1] - values[:, 0])
    if not -count <= column < count:
        raise DataError(f"column {column} but {count} scores a row")
    return np.asarray(values[:, column])


def import_function(path: str) -> Callable[..., Any]:
    """The function that `module:function` names. Importing runs the module: whether it is trusted is decided before.

    Raises:
        RecipeError: There is no such module or function.
    """
    module, _, name = path.partition(":")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise RecipeError(f"no module {error.name!r}, for {path!r}", hint="put its folder on PYTHONPATH, or install it") from error
    function = getattr(found, name, None)
    if not callable(function):
        raise RecipeError(f"module {module!r} has no function {name!r}", hint=did_you_mean(name, [n for n in dir(found) if not n.startswith("_")]))
    return function  # type: ignore[no-any-return]  # getattr; checked to be callable


def _array(label: object, wanted: str) -> Array:
    if label is None:
        raise DataError("no label", hint=f"data.label says where it comes from; this metric needs {wanted}")
    if not isinstance(label, numbers.Number | np.ndarray | np.generic | list | tuple):
        raise DataError(f"label {_shown(label)} is not {wanted}")
    return np.asarray(label)


def _shown(label: object) -> str:
    text = repr(label)
    return text if len(text) <= 60 else text[:57] + "..."  # noqa: PLR2004 - a message, not a dump
