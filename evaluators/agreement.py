"""Agreement: whether an engine computes what the graph that it was given means.

Three results for the same inputs: `exact` (a: the FP32 model, or the graph without its rounding), `reference` (b: the graph
in plain ONNX arithmetic) and `engine` (c: the same graph in an engine). ‖b - a‖ is the noise of the format, ‖c - b‖ the
deviation of the engine, both over all values of one output.

What engines may differ in is rounding: they break ties otherwise, add in another order, or keep more digits between two
operators, so that a code comes out one step higher or lower here and there. At the very worst that makes the engine's
rounding errors independent of the reference's while they stay as large; then ‖c - b‖² = ‖(c - a) - (b - a)‖² is twice
‖b - a‖² on average, and the ratio of two such sums over n independent rows follows F(n, n). So an engine agrees when

    ‖c - b‖  <=  sqrt(2 · F⁻¹(0.999; n, n)) · ‖b - a‖  +  1e-4 · ‖b‖

where the last term is what the order of additions in FP32 may change. An engine that rounds more often than the reference (FP16: a
product, and then its sum with the bias) is still within that when ‖b - a‖ is taken with all those roundings: its own are some of them.

Values that are no floats (ids, decisions) are counted:
twice as many may differ from the reference's as those differ from the exact ones, and what chance (Poisson, 99.9 %) adds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quant.core.documents import Document
from quant.errors import DataError

Array = npt.NDArray[Any]

CONFIDENCE = 0.999
ROUNDING = 1e-4
"""Change of an output, as a share of its norm, that counts as rounding of FP32; the import of models is held to the same."""
LEAST_ROWS = 4
"""With fewer rows the values of a row have to count for independent ones: F(1, 1) would let anything pass."""


class OutputAgreement(Document):
    """One output of an engine against plain ONNX arithmetic.

    Args:
        output: Name of the output.
        rows: Number of rows (everything but the last axis, over all inputs).
        values: Number of values.
        noise_db: Power of reference - exact over that of the reference, dB, with all roundings that an engine may do; None when 0, or no floats.
        deviation_db: Power of engine - reference over that of the reference, dB; None likewise.
        limit_db: The deviation from which on the engine does not agree; None for what is no float, or has no power.
        max_abs_deviation: Largest |engine - reference|; of what is no number 0.
        noisy: Share of values in which the reference differs from the exact result; None for floats.
        differing: Share of values in which the engine differs from the reference; None for floats.
        not_finite: Values that the engine gives as NaN or infinity where the reference is finite.
        agrees: Whether the deviation is within the noise.
    """

    output: str
    rows: int
    values: int
    noise_db: float | None = None
    deviation_db: float | None = None
    limit_db: float | None = None
    max_abs_deviation: float = 0.0
    noisy: float | None = None
    differing: float | None = None
    not_finite: int = 0
    agrees: bool


class Parting(Document):
    """Where an engine begins to part from the plain meaning of its graph.

    Args:
        layer: The layer that makes the first tensor that is off, or the operation when there is no layer in it.
        op: Its operator.
        within: All operations that make it, behind tensors that can be looked at: an engine may compute them as one.
        tensor: That tensor; an output when none inside the graph is off.
        deviation_db: Power of engine - reference over that of the reference, dB; None when it is no float, or not finite.
        noise_db: Power of what rounding does to that tensor, dB; None when nothing.
        before: The nearest tensors that it is computed from, all of which agree.
        behind: The operations that read it.
        vanishes: Tensors with which the disagreement goes away when they are given out, which points at a fusion around them.
        looks: How often the graph was exported with other tensors given out.
    """

    layer: str
    op: str
    within: tuple[str, ...] = ()
    tensor: str
    deviation_db: float | None
    noise_db: float | None
    before: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    vanishes: tuple[str, ...] = ()
    looks: int = 0


class Agreement(Document):
    """An engine against plain ONNX arithmetic, over all outputs of one graph.

    Args:
        agrees: Whether every output agrees; None when nothing was compared.
        samples: Number of samples that were run.
        outputs: Every output.
        parting: Where it begins, when an output does not agree.
        reason: Why nothing was compared; empty when it was.
    """

    agrees: bool | None
    samples: int
    outputs: tuple[OutputAgreement, ...] = ()
    parting: Parting | None = None
    reason: str = ""

    @property
    def worst(self) -> OutputAgreement | None:
        """The output that is furthest beyond its limit, or nearest to it."""
        return max(self.outputs, key=_beyond, default=None)


def _beyond(found: OutputAgreement) -> tuple[bool, int, float]:
    far = found.deviation_db - found.limit_db if found.deviation_db is not None and found.limit_db is not None else -math.inf
    return not found.agrees, found.not_finite, far if found.differing is None else found.differing


@dataclass
class _Sums:
    """What is known of one output so far."""

    rows: int = 0
    values: int = 0
    signal: float = 0.0
    noise: float = 0.0
    deviation: float = 0.0
    largest: float = 0.0
    floats: bool = True
    noisy: int = 0
    differing: int = 0
    not_finite: int = 0


class AgreementMeter:
    """Collects the outputs of the three, batch by batch, in memory that does not grow."""

    def __init__(self) -> None:
        self._sums: dict[str, _Sums] = {}

    def add(
        self, exact: Mapping[str, Array], reference: Mapping[str, Array], engine: Mapping[str, Array], *, coarse: Mapping[str, Array] | None = None
    ) -> None:
        """Take one batch: every output that `engine` and `reference` have; one that `exact` lacks counts as without noise.

        Args:
            exact: Without the format's noise.
            reference: In plain ONNX arithmetic.
            engine: In the engine.
            coarse: With every rounding that an engine may do, where those are more than the reference's; the noise is that of these.

        Raises:
            DataError: The shapes of an output differ.
        """
        for name, b in reference.items():
            if name in engine:
                a = exact.get(name, b)
                rough = b if coarse is None else coarse.get(name, b)
                _add(self._sums.setdefault(name, _Sums()), name, tuple(map(np.asarray, (a, b, engine[name], rough))))

    def result(self) -> tuple[OutputAgreement, ...]:
        """What was found, output by output, in the reference's order."""
        return tuple(_found(name, sums) for name, sums in self._sums.items())


def _add(sums: _Sums, name: str, results: tuple[Array, ...]) -> None:
    a, b, c, rough = results
    if not a.shape == b.shape == c.shape:
        raise DataError(f"output {name!r} has shape {list(b.shape)} in plain ONNX arithmetic, {list(c.shape)} in the engine and {list(a.shape)} in FP32")
    sums.values += b.size
    sums.rows += b.size // (b.shape[-1] if b.ndim and b.shape[-1] else 1)
    if not _is_float(b):
        sums.floats = False
        sums.noisy += int(np.sum(a != rough))
        sums.differing += int(np.sum(c != b))
        if b.size and b.dtype.kind in "iub":
            sums.largest = max(sums.largest, float(np.max(np.abs(c.astype(np.float64) - b.astype(np.float64)))))
        return
    a, b, c, rough = (v.astype(np.float64) for v in (a, b, c, rough))
    known = np.isfinite(b)  # an overflow of the format itself is no fault of the engine
    broken = known & ~np.isfinite(c)
    sums.not_finite += int(np.sum(broken))
    used = known & ~broken
    sums.signal += float(np.sum(b[used] ** 2))
    sums.noise += float(np.sum((a - rough)[used & np.isfinite(a) & np.isfinite(rough)] ** 2))
    off = (c - b)[used]
    sums.deviation += float(np.sum(off**2))
    sums.largest = max(sums.largest, float(np.max(np.abs(off), initial=0.0)))


def _is_float(array: Array) -> bool:
    """Whether values are measured and not counted; the small float types of ONNX have the kind V."""
    return array.dtype.kind in {"f", "c"} or array.dtype.name.startswith(("bfloat", "float"))


def comparable(array: Array) -> bool:
    """Whether there is a value in it that an engine can be held to.

    Example:
        >>> comparable(np.array([np.nan, 1.0])), comparable(np.array([np.nan, np.inf])), comparable(np.array([3])), comparable(np.array([]))
        (True, False, True, False)
    """
    return bool(array.size) and (not _is_float(array) or bool(np.isfinite(array.astype(np.float64)).any()))


def allowed(noise: float, signal: float, rows: int) -> float:
    """The largest ‖c - b‖ that is still rounding.

    Args:
        noise: ‖b - a‖.
        signal: ‖b‖.
        rows: Number of rows that they were summed over.

    Example:
        >>> round(allowed(1.0, 0.0, 16), 2), round(allowed(1.0, 0.0, 1000), 2), allowed(0.0, 5.0, 16)
        (3.23, 1.56, 0.0005)
    """
    from scipy.special import fdtri  # noqa: PLC0415 - keeps `import evaluators` light

    n = max(rows, LEAST_ROWS)
    return math.sqrt(2 * float(fdtri(n, n, CONFIDENCE))) * noise + ROUNDING * signal


def allowed_count(noisy: int) -> int:
    """How many values may differ from the reference's, when so many of those differ from the exact ones.

    Example:
        >>> allowed_count(0), allowed_count(10)
        (5, 36)
    """
    from scipy.special import pdtr  # noqa: PLC0415 - keeps `import evaluators` light

    mean = 2 * noisy + 1.0
    least = int(mean)
    while float(pdtr(least, mean)) < CONFIDENCE:
        least += 1
    return least


def _found(name: str, sums: _Sums) -> OutputAgreement:
    if not sums.floats:
        shares = [count / max(sums.values, 1) for count in (sums.noisy, sums.differing)]
        agrees = sums.differing <= allowed_count(sums.noisy)
        return OutputAgreement(
            output=name, rows=sums.rows, values=sums.values, max_abs_deviation=sums.largest, noisy=shares[0], differing=shares[1], agrees=agrees
        )
    limit = allowed(math.sqrt(sums.noise), math.sqrt(sums.signal), sums.rows)
    return OutputAgreement(
        output=name,
        rows=sums.rows,
        values=sums.values,
        noise_db=_db(sums.noise, sums.signal),
        deviation_db=_db(sums.deviation, sums.signal),
        limit_db=_db(limit**2, sums.signal),
        max_abs_deviation=sums.largest,
        not_finite=sums.not_finite,
        agrees=sums.not_finite == 0 and math.sqrt(sums.deviation) <= limit,
    )


def _db(power: float, signal: float) -> float | None:
    return 10 * math.log10(power / signal) if power > 0 and signal > 0 and power / signal > 0 else None
