"""What training is given, and what it tells of itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from quant.core.documents import Document
from quant.core.signature import Signature
from quant.data.samples import Samples
from quant.errors import ModelError

Run = Callable[[Mapping[str, "npt.NDArray[Any]"]], dict[str, "npt.NDArray[Any]"]]


class Epoch(Document):
    """One pass over the training samples.

    Args:
        loss: Mean loss over the training samples, while the weights changed; None for the state before training.
        search_loss: Loss over the search samples, after it; None without any.
        metrics: Metric -> value on the search samples.
    """

    loss: float | None
    search_loss: float | None = None
    metrics: Mapping[str, float] = {}


class Trained(Document):
    """What training did.

    Args:
        role: Role of the samples.
        samples: How many.
        loss: What was made small, in words.
        epochs: What was found after each epoch; the first entry is the state before training.
        kept: The epoch whose weights were taken; 0: those from before training.
        weights: Number of weights and biases that were trained.
        scales: Number of scales that were learned.
        ranges: Tensor -> range that its learned scale writes.
    """

    role: str
    samples: int
    loss: str
    epochs: tuple[Epoch, ...]
    kept: int
    weights: int
    scales: int
    ranges: Mapping[str, tuple[float, float]] = {}


@dataclass(frozen=True)
class Material:
    """What training is given.

    Args:
        model: The FP32 model, which is the teacher of distillation.
        signature: Its inputs and outputs.
        samples: What is trained on.
        search: Samples that say which epoch was best, and when to stop; None: the last epoch is taken.
        judged: Outputs that metrics hold against labels.
        classes: Those of them whose last axis are scores of classes.
        batch_axes: Input -> its batch axis (None: it has none); 0 for those not named.
        state: Inputs that an output feeds at the next step.
        measure: Metrics of a model on the search samples.
        scratch: A folder for checkpoints, which outlives a killed process; None: training starts anew each time.
        tell: Is given what training did.
        threads: Threads to compute on; what comes out does not depend on it.
    """

    model: Path
    signature: Signature
    samples: Samples
    search: Samples | None = None
    judged: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    batch_axes: Mapping[str, int | None] = field(default_factory=dict)
    state: frozenset[str] = frozenset()
    measure: Callable[[Run], Mapping[str, float]] | None = None
    scratch: Path | None = None
    tell: Callable[[Trained], None] = lambda _trained: None
    threads: int = 1


def refuse_state(state: Collection[str]) -> None:
    """A model that remembers would have to be trained through time.

    Raises:
        ModelError: It does.
    """
    if state:
        what = f"the model remembers ({', '.join(sorted(state))}), and is not trained through time"
        raise ModelError(what, hint="use `int8`, which calibrates it step by step")
