"""improve: transforms of the FP32 model, each kept only if the quantized model then comes closer to FP32.

Closeness is measured on samples of their own (role `search`; without one, calibration samples that did not guide): the squared error of every float
output, as a share of that output's square, averaged over outputs. The quantized graph is computed as ONNX defines it, so that
what is measured is the transform and not an engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx_ir as ir

from quant.core.dialect import Dialect
from quant.core.documents import Document, PrecisionPlan
from quant.core.formats import Range
from quant.core.protocols import Calibrator
from quant.core.table import CalibrationTable
from quant.data.first import FirstSamples
from quant.data.samples import Samples
from quant.data.span import Span
from quant.graph.model import drop_unused_weights, read_model, write_model
from quant.graph.runtime import Runtime
from quant.schemes import Scheme, on_grids_of
from quant.stages.activations import gather_inputs, gather_means, gather_rows
from quant.stages.apply import apply
from quant.stages.calibrate import calibrate
from quant.stages.running import Array, Feeding, run_samples
from quant.transforms import Change, Seen, Setting, Transform

_ROWS = 768
_GUIDING, _JUDGING = 128, 256
"""Samples that guide transforms, and samples that judge them; both at most. Judged by 64 texts, changes of a few percent were kept or not by chance."""
_JUDGED_BYTES = 512 << 20
"""FP32 outputs of the samples that judge are held in memory; fewer samples judge where theirs (a vocabulary at each step of a text) take more."""
_WORTH = 0.99
"""Share of the error that may be left for a transform to be kept: less of a gain is nothing that samples can tell, and may be harm elsewhere."""
_FEW = ": too little to be kept"
_FP32_NOISE = 1e-8
"""Share of an output's square that rounding in FP32 may change: (1e-4)², three decimal digits above its resolution, for errors grow from layer to layer."""


class Step(Document):
    """What became of one transform.

    Args:
        transform: Its title.
        kept: Whether the model is quantized with it.
        before: Squared error of the quantized model's outputs without it, as a share of their square; None when they were not finite.
        after: The same with it; None when it found nothing to do, too.
        reason: Why it is kept or not.
        layers: Layer -> what was done to it; empty when not kept.
    """

    transform: str
    kept: bool
    before: float | None
    after: float | None
    reason: str
    layers: Mapping[str, str] = {}


class Story(Document):
    """What became of all transforms, in their order."""

    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Improved:
    """A model to quantize.

    Args:
        path: The FP32 model.
        table: Its calibration.
        ranges: Tensor -> range that was chosen for it already.
        story: What became of each transform.
    """

    path: Path
    table: CalibrationTable
    ranges: Mapping[str, Range]
    story: Story


@dataclass(frozen=True)
class Work:
    """What transforms are tried for.

    Args:
        scheme: How the model is quantized.
        plan: What each layer runs in.
        dialect: The form of graph that the target wants.
        calibrator: How ranges are chosen.
        feeding: How samples go in.
        calibration: Samples that ranges come from and that guide transforms.
        search: Samples that judge them.
        digest: Digest of the FP32 model, for tables.
    """

    scheme: Scheme
    plan: PrecisionPlan
    dialect: Dialect
    calibrator: Calibrator
    feeding: Feeding
    calibration: Samples
    search: Samples
    digest: str


def improve(path: Path, transforms: Mapping[str, Transform], work: Work, *, table: CalibrationTable, scratch: Path) -> Improved:
    """Try `transforms` one after the other, each on top of those that were kept.

    Args:
        path: The FP32 model.
        transforms: Title -> transform.
        work: What it is improved for.
        table: Calibration of the model at `path`.
        scratch: A folder for models on the way; the one that is given back lies in it, if anything was kept.

    """
    judges = _judges(path, work)
    wanted = _outputs(Runtime(path), judges, work.feeding)
    best = Improved(path, table, {}, Story(steps=()))
    error, ranges = _error(best, work, wanted, judges)
    steps: list[Step] = []
    for number, (title, transform) in enumerate(transforms.items()):
        tried = _transformed(best, transform, work, ranges, folder=scratch / str(number))
        step = partial(Step, transform=title, before=_finite(error))
        if tried is None:
            steps.append(step(kept=False, after=None, reason="it finds nothing to do"))
            continue
        new, change = tried
        moved = _relative_error(_outputs(Runtime(new.path), judges, work.feeding), wanted) if transform.keeps_function and new.path != best.path else 0.0
        if moved > _FP32_NOISE:
            steps.append(step(kept=False, after=None, reason=f"it changes what the FP32 model computes, by {moved:.1e} of the square of its outputs"))
            continue
        after, chosen = _error(new, work, wanted, judges)
        kept = after < _WORTH * error
        steps.append(
            step(kept=kept, after=_finite(after), reason=_compared(error, after) + _FEW * (not kept and after < error), layers=change.layers if kept else {})
        )
        if kept:
            best, error, ranges = new, after, chosen
    return replace(best, story=Story(steps=tuple(steps)))


def _is_shared(work: Work) -> bool:
    """Whether the same samples have to guide and to judge: then the first half guides, and the rest judges; one sample alone does both."""
    return work.search is work.calibration and len(work.calibration) > 1


def _guides(work: Work) -> FirstSamples:
    return FirstSamples(work.calibration, min(_GUIDING, len(work.calibration) // 2) if _is_shared(work) else _GUIDING)


def _judges(path: Path, work: Work) -> FirstSamples:
    """The first samples that judge, as many as the outputs of the first one leave room for."""
    start = len(_guides(work)) if _is_shared(work) else 0
    samples = Span(work.search, start, len(work.search)) if start else work.search
    size = sum(array.nbytes for outputs in _outputs(Runtime(path), FirstSamples(samples, 1), work.feeding) for array in outputs.values())
    return FirstSamples(samples, max(1, min(_JUDGING, _JUDGED_BYTES // max(size, 1))))


def _finite(error: float) -> float | None:
    return error if np.isfinite(error) else None


def _compared(before: float, after: float) -> str:
    """What became of the error.

    Example:
        >>> _compared(0.02, 0.01), _compared(0.0, 0.0), _compared(0.01, float("inf"))
        ('error divided by 2.00', 'error as before', 'the quantized outputs are no longer finite')
    """
    if not np.isfinite(after):
        return "the quantized outputs are not finite" if not np.isfinite(before) else "the quantized outputs are no longer finite"
    if before == after:
        return "error as before"
    ratio = max(before, after) / max(min(before, after), 1e-300)
    return f"error {'divided by' if after < before else 'multiplied by'} {ratio:.2f}" if np.isfinite(ratio) else "the quantized outputs became finite"


def _transformed(best: Improved, transform: Transform, work: Work, ranges: Mapping[str, Range], *, folder: Path) -> tuple[Improved, Change] | None:
    """The model as `transform` makes it, written into `folder` if it changed, and what it did; None when there was nothing to do."""
    model = read_model(best.path)
    options = getattr(work.scheme, "options", None)
    setting = Setting(work.plan, on_grids_of(work.scheme, work.dialect), per_channel=getattr(options, "per_channel", True))
    tensors = transform.tensors(model, setting)
    guides = _guides(work)
    rows = gather_rows(best.path, guides, tensors, work.feeding, rows=_ROWS) if tensors else {}
    seen = Seen(
        rows,
        partial(gather_inputs, best.path, guides, feeding=work.feeding),
        ranges,
        quantized=lambda: _quantized(best, work)[0],
        means=partial(gather_means, folder=best.path.parent, samples=guides, feeding=work.feeding),
    )
    change = transform.apply(model, setting, seen)
    if change.ranges:
        return replace(best, ranges={**best.ranges, **change.ranges}), change
    if not change.layers:
        return None
    drop_unused_weights(model.graph)
    path = write_model(model, folder)
    kept = best.ranges if transform.keeps_tensors else {}  # ranges were chosen for the model as it was
    return Improved(path, _calibrated(path, work, best.table), kept, best.story), change


def _calibrated(path: Path, work: Work, before: CalibrationTable) -> CalibrationTable:
    """The calibration of a transformed model: of what the scheme needs now."""
    needs = work.scheme.needs(read_model(path), work.plan, work.dialect)
    table = calibrate(
        path, work.calibration, sorted(needs.ranges), work.feeding, magnitudes=bool(before.magnitudes), digest=work.digest, means=sorted(needs.means)
    )
    return replace(table, data=before.data)


def _error(found: Improved, work: Work, wanted: Sequence[dict[str, Array]], samples: Samples) -> tuple[float, dict[str, Range]]:
    """Squared error of the quantized model, as a share of the square of what is wanted, and the ranges of its tensors."""
    model, ranges = _quantized(found, work)
    return _relative_error(_outputs(Runtime(model, folder=found.path.parent, optimize=False), samples, work.feeding), wanted), ranges


def _quantized(found: Improved, work: Work) -> tuple[ir.Model, dict[str, Range]]:
    """The quantized graph, the rest in FP32 (what a transform is for does not depend on its type), and the ranges of its tensors."""
    dialect = replace(work.dialect, body="fp32")
    model, _, ranges = apply(found.path, work.scheme, plan=work.plan, table=found.table, calibrator=work.calibrator, dialect=dialect, given=found.ranges)
    return model, ranges


def _outputs(runtime: Runtime, samples: Samples, feeding: Feeding) -> list[dict[str, Array]]:
    """The float outputs of every feed, in order."""
    found = dict(run_samples(runtime.run, samples, feeding))
    return [{k: v for k, v in outputs.items() if v.dtype.kind == "f"} for position in sorted(found) for outputs in found[position]]


def _relative_error(found: Sequence[dict[str, Array]], wanted: Sequence[dict[str, Array]]) -> float:
    """Mean over outputs of (sum of squared differences / sum of squares), over all feeds; infinite when something is not finite that is in FP32."""
    shares = []
    for name in sorted(wanted[0]):
        if not all(np.isfinite(b[name]).all() for b in wanted):
            continue  # no distance can be had from what is not finite in FP32
        with np.errstate(over="ignore", invalid="ignore"):
            noise = sum(float(np.square(a[name].astype(np.float64) - b[name]).sum()) for a, b in zip(found, wanted, strict=True))
        signal = sum(float(np.square(b[name], dtype=np.float64).sum()) for b in wanted)
        shares.append(noise / max(signal, 1e-300))
    return float(np.mean(shares or [0.0])) if np.isfinite(shares).all() else float("inf")
