"""Fidelity: how close outputs are to the reference's, without labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from evaluators.outputs import log_softmax
from quant.core.documents import Document
from quant.errors import DataError

Array = npt.NDArray[Any]


class Fidelity(Document):
    """Closeness of a candidate's output to the reference's.

    Args:
        exact: Whether all values are equal.
        sqnr_db: Signal to quantization noise in dB, 10 log10(sum ref² / sum (ref - candidate)²) over all values; None when
            there is no noise (`exact`) or no signal.
        cosine_mean: Mean over samples of the cosine between the flattened outputs.
        cosine_min: The worst sample's cosine.
        max_abs_error: Largest absolute difference of two values.
        agreement: Share of rows with the same highest entry along the last axis; None when that axis has length 1.
        kl: Mean over rows of KL(softmax(ref) ‖ softmax(candidate)) in nats, which means something for logits alone; None
            when the last axis has length 1.
        rows: Number of rows (everything but the last axis, over all samples).
        samples: Number of samples.
    """

    exact: bool
    sqnr_db: float | None
    cosine_mean: float
    cosine_min: float
    max_abs_error: float
    agreement: float | None
    kl: float | None
    rows: int
    samples: int


class FidelityMeter:
    """Collects fidelity sample by sample, in memory that does not grow."""

    def __init__(self) -> None:
        self._signal: list[float] = [0.0, 0.0]
        self._noise: list[float] = [0.0, 0.0]
        self._cosine: list[float] = [0.0, 0.0]
        self._kl: list[float] = [0.0, 0.0]
        self._worst = 1.0
        self._largest = 0.0
        self._agreeing = self._rows = self._samples = 0
        self._classes = True

    def add(self, reference: Array, candidate: Array) -> None:
        """Take one sample's outputs (any shape, without batch axis).

        Raises:
            DataError: The shapes differ, the output is empty, or a value is not finite.
        """
        if reference.shape != candidate.shape or reference.size == 0:
            raise DataError(f"outputs of shape {list(reference.shape)} and {list(candidate.shape)} cannot be compared")
        ref, other = reference.astype(np.float64), candidate.astype(np.float64)
        for name, values in (("reference", ref), ("candidate", other)):
            bad = int(np.sum(~np.isfinite(values)))
            if bad:
                raise DataError(f"{bad} of {values.size} values of the {name}'s output are not finite", hint="look for overflow (FP16 ends at 65504)")
        error = ref - other
        _add(self._signal, float(np.sum(ref**2)))
        _add(self._noise, float(np.sum(error**2)))
        cosine = _cosine(ref.reshape(-1), other.reshape(-1))
        _add(self._cosine, cosine)
        self._worst = min(self._worst, cosine)
        self._largest = max(self._largest, float(np.max(np.abs(error))))
        self._add_rows(ref, other)
        self._samples += 1

    def _add_rows(self, ref: Array, other: Array) -> None:
        width = ref.shape[-1] if ref.ndim else 1
        self._rows += ref.size // width
        if width == 1:
            self._classes = False
            return
        ref, other = ref.reshape(-1, width), other.reshape(-1, width)
        self._agreeing += int(np.sum(ref.argmax(axis=1) == other.argmax(axis=1)))
        log_p, log_q = log_softmax(ref), log_softmax(other)
        # Rounding may put a divergence of zero a little below it.
        _add(self._kl, float(np.sum(np.maximum((np.exp(log_p) * (log_p - log_q)).sum(axis=1), 0))))

    def result(self) -> Fidelity:
        """What was collected so far.

        Raises:
            DataError: Nothing was.
        """
        if self._samples == 0:
            raise DataError("no samples: there is no fidelity of nothing")
        signal, noise = sum(self._signal), sum(self._noise)
        return Fidelity(
            exact=self._largest == 0,
            sqnr_db=10 * math.log10(signal / noise) if signal > 0 and noise > 0 and signal / noise > 0 else None,
            cosine_mean=sum(self._cosine) / self._samples,
            cosine_min=self._worst,
            max_abs_error=self._largest,
            agreement=self._agreeing / self._rows if self._classes else None,
            kl=sum(self._kl) / self._rows if self._classes else None,
            rows=self._rows,
            samples=self._samples,
        )


def fidelity(reference: Sequence[Array], candidate: Sequence[Array]) -> Fidelity:
    """The fidelity of `candidate` to `reference`, one array a sample.

    Raises:
        DataError: Different numbers or shapes, nothing to compare, or a value that is not finite.

    Example:
        >>> found = fidelity([np.array([3.0, 4.0])], [np.array([3.0, 4.5])])
        >>> found.sqnr_db, found.max_abs_error, found.agreement
        (20.0, 0.5, 1.0)
    """
    if len(reference) != len(candidate):
        raise DataError(f"{len(reference)} outputs of the reference but {len(candidate)} of the candidate")
    meter = FidelityMeter()
    for ref, other in zip(reference, candidate, strict=True):
        meter.add(ref, other)
    return meter.result()


def _add(total: list[float], value: float) -> None:
    """Kahan-Neumaier: `total` is the sum and what rounding has lost of it, so that many small samples still count."""
    raised = total[0] + value
    total[1] += (total[0] - raised) + value if abs(total[0]) >= abs(value) else (value - raised) + total[0]
    total[0] = raised


def _cosine(first: Array, second: Array) -> float:
    """The cosine; 1 for equal arrays, 0 when one of them alone is all zero."""
    if np.array_equal(first, second):
        return 1.0
    # Scaled first, so that squares neither overflow nor vanish.
    first, second = (v / (float(np.max(np.abs(v))) or 1.0) for v in (first, second))
    # No BLAS: it may add up in another order when it has other threads.
    scale = math.sqrt(float(np.sum(first**2))) * math.sqrt(float(np.sum(second**2)))
    return min(max(float(np.sum(first * second)) / scale, -1.0), 1.0) if scale > 0 else 0.0
