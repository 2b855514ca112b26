"""A metric of the user's own: a function of outputs and label. It is code that a recipe names, and runs only when trusted."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from evaluators import METRICS
from evaluators.examples import Example, classification
from evaluators.outputs import Outputs, import_function
from quant.core.protocols import Direction, Records
from quant.core.registry import Options
from quant.errors import DataError


class FunctionOptions(Options):
    """Options of `function`."""

    function: str = Field(pattern=r"^[\w.]+:\w+$", description="module:function, called as f(outputs, label): a number, or a 1-D record")
    value: str | None = Field(
        None, pattern=r"^[\w.]+:\w+$", description="module:function, called with all records [samples, columns]; the mean of the first column when not given"
    )
    direction: Direction = Field("higher", description="which way is better")
    unit: str = Field("score", description="share, rate and correlation lie between 0 and 1; or a word of your own")


@METRICS.add
class Function:
    """What `function` says of each sample, and `value` of all of them.

    `function(outputs, label)` gets a list with a mapping of output name to array (without batch axis) for each feed. Importing
    it runs code; the caller makes sure that it is trusted before this class is made.
    """

    kind: ClassVar[str] = "function"
    direction: ClassVar[Direction] = "higher"
    unit: ClassVar[str] = "score"
    proportion: ClassVar[bool] = False
    Options: ClassVar[type[FunctionOptions]] = FunctionOptions

    def __init__(self, options: FunctionOptions) -> None:
        self.options = options
        self._function = import_function(options.function)
        self._value = import_function(options.value) if options.value else None
        # The recipe knows which way is better; the class can only have a default.
        vars(self).update(direction=options.direction, unit=options.unit)

    @classmethod
    def example(cls) -> Example:
        """Perfect predictions of three classes, judged by `is_right`."""
        _, outputs, labels = classification()
        return {"function": f"{__name__}:is_right"}, outputs, labels

    def check_label(self, label: object) -> None:
        """Accept any label there is; what it means is the function's business."""
        if label is None:
            raise DataError("no label", hint="data.label says where it comes from; the function gets it as its second argument")

    def record(self, outputs: Outputs, label: Any) -> Records:
        """One row: what the function returns."""
        found = np.asarray(self._function([dict(feed) for feed in outputs], label))
        if found.ndim > 1 or found.size == 0 or found.dtype.kind not in "biuf":
            raise DataError(f"{self.options.function} returned {found.dtype} of shape {list(found.shape)}", hint="return a number, or a 1-D array of numbers")
        return found.reshape(1, -1).astype(np.float64)

    def value(self, records: Records) -> float:
        """What the value function returns, or the mean of the first column."""
        if self._value is None:
            return float(records[:, 0].mean())
        found = np.asarray(self._value(records))
        if found.size != 1 or found.dtype.kind not in "biuf":
            raise DataError(f"{self.options.value} returned {found.dtype} of shape {list(found.shape)}", hint="return one number")
        return float(found.reshape(()))


def is_right(outputs: Outputs, label: int) -> float:
    """A function as a user would write it: whether the highest score of the first output is the label's."""
    return float(np.argmax(next(iter(outputs[0].values()))) == label)
