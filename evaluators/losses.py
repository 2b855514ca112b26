"""How improbable labels are to a model: what `log-loss` and `perplexity` share."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from evaluators.outputs import Array, ClassOptions, Floats, Outputs, check_class, class_rows, log_softmax
from quant.core.protocols import Direction, Records
from quant.errors import DataError


class LogLossOptions(ClassOptions):
    """Options of `log-loss`, and of `perplexity`."""

    of: Literal["logits", "probabilities"] = Field("logits", description="what the output holds")


class Losses:
    """Records -log p(label) of each label, in nats, `[loss]`.

    Probabilities are divided by their sum and kept a rounding step away from 0; one score a row is that of class 1.
    """

    direction: ClassVar[Direction] = "lower"
    proportion: ClassVar[bool] = False
    Options: ClassVar[type[LogLossOptions]] = LogLossOptions

    def __init__(self, options: LogLossOptions) -> None:
        self.options = options

    def check_label(self, label: object) -> None:
        """Accept a class, or an array of them."""
        check_class(label, ignore=self.options.ignore)

    def record(self, outputs: Outputs, label: Any) -> Records:
        """One row a label."""
        scores, labels = class_rows(outputs, label, self.options)
        if not np.issubdtype(scores.dtype, np.floating):
            raise DataError(f"output of type {scores.dtype} has no probabilities", hint="name the output with logits or probabilities")
        return -np.take_along_axis(self._log_probabilities(scores), labels[:, None], axis=1)

    def _log_probabilities(self, scores: Array) -> Floats:
        values, single = scores.astype(np.float64), scores.shape[1] == 1
        if self.options.of == "logits":
            return log_softmax(np.concatenate([np.zeros_like(values), values], axis=1) if single else values)
        if values.size and (np.nanmin(values) < 0 or np.nanmax(values) > 1 + 1e-3):
            raise DataError(f"{np.nanmin(values):g} to {np.nanmax(values):g} are no probabilities", hint="set of: logits")
        if single:
            values = np.concatenate([1 - values, values], axis=1)
        step = float(np.finfo(scores.dtype).eps)
        return np.asarray(np.log(np.clip(values / values.sum(axis=1, keepdims=True), step, 1 - step)))
