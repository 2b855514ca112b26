"""How a candidate was trained, for people."""

from __future__ import annotations

from quant.report.document import TrainingRow
from quant.report.words import NOTHING, count


def training_sentence(row: TrainingRow) -> str:
    """What was trained on what, and which epoch was taken.

    Example:
        >>> training_sentence(TrainingRow(role="train", samples=90, loss="cross-entropy", epochs=(), kept=2, weights=4, scales=1))
        '4 weights and biases and 1 scale were trained on 90 train samples; made small was: cross-entropy. Taken were those after epoch 2.'
    """
    taken = f"Taken were those after epoch {row.kept}." if row.kept else "No epoch made it better: it is as calibration left it."
    what = f"{count(row.weights, 'weight')} and biases and {count(row.scales, 'scale')} were trained on {count(row.samples, f'{row.role} sample')}"
    return f"{what}; made small was: {row.loss}. {taken}"


def epoch_head(row: TrainingRow) -> tuple[str, ...]:
    """Heads of the columns of `epoch_rows`."""
    return ("epoch", "loss", "loss, search", *_metrics(row))


def epoch_rows(row: TrainingRow) -> tuple[tuple[str, ...], ...]:
    """(epoch, loss while training, loss on search samples, metrics on search samples) of each; epoch 0 is the state before."""
    names = _metrics(row)
    return tuple(
        (str(number), _number(epoch.loss), _number(epoch.search_loss), *(_number(epoch.metrics.get(name)) for name in names))
        for number, epoch in enumerate(row.epochs)
    )


def _metrics(row: TrainingRow) -> tuple[str, ...]:
    return tuple(sorted({name for epoch in row.epochs for name in epoch.metrics}))


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.4g}"
