"""Random functions of a model's outputs whose gradients are the directions of a sketch."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from quant.data.batches import Batch
from quant.sensitivity.measuring.outputs import Measures, OutputMeasure

_LEAST = 1e-12


def random_loss(
    outputs: Mapping[str, torch.Tensor], batch: Batch, measures: Measures, references: Mapping[str, float], generator: torch.Generator
) -> torch.Tensor:
    """A function of the outputs such that the mean of (its gradient x a small error)^2 is the measure of that error.

    Args:
        outputs: Output -> tensor, with its history.
        batch: What went in; rows that fill a fixed batch do not count.
        measures: What is measured.
        references: Output -> what its squared errors are divided by.
        generator: What it is drawn from.
    """
    whole = sum(measures.weights)
    total = torch.zeros(())
    for measure in measures.chosen:
        rows = _rows(outputs[measure.output], measures.axis(measure.output), batch)
        valid = measures.valid(measure.output, batch)
        draw = _label if measure.measure == "kl" else _signs
        share = measure.weight / whole / references.get(measure.output, 1.0)
        total = total + math.sqrt(share) * draw(measure, rows, valid, generator)
    return total


def _rows(output: torch.Tensor, axis: int | None, batch: Batch) -> torch.Tensor:
    return output.unsqueeze(0) if axis is None else output.movedim(axis, 0)[: len(batch.owners)]


def _signs(_measure: OutputMeasure, rows: torch.Tensor, valid: npt.NDArray[np.bool_] | None, generator: torch.Generator) -> torch.Tensor:
    """Sum of the output, each element with a random sign."""
    signs = torch.randint(0, 2, rows.shape, generator=generator).to(rows.dtype) * 2 - 1
    if valid is not None and valid.shape == rows.shape[:2]:
        signs = signs * torch.from_numpy(valid).to(rows.dtype).reshape([*valid.shape, *[1] * (rows.dim() - 2)])
    return (torch.where(torch.isfinite(rows), rows, torch.zeros_like(rows)) * signs).sum()


def _label(measure: OutputMeasure, rows: torch.Tensor, valid: npt.NDArray[np.bool_] | None, generator: torch.Generator) -> torch.Tensor:
    """Logarithm of the probability of a class that is drawn from the softmax, at each place; halved, and averaged over places."""
    scores = torch.log(torch.clamp(rows, min=_LEAST)) if measure.scores == "probabilities" else rows
    logs = torch.log_softmax(scores, dim=-1)
    flat = logs.detach().reshape(-1, logs.shape[-1])
    label = torch.multinomial(flat.exp(), 1, generator=generator).reshape(logs.shape[:-1])
    chosen = logs.gather(-1, label.unsqueeze(-1)).squeeze(-1).reshape(rows.shape[0], -1)
    if valid is None or valid.shape != tuple(chosen.shape):
        return (chosen / math.sqrt(2 * chosen.shape[1])).sum()
    counted = torch.from_numpy(valid).to(chosen.dtype)
    places = counted.sum(dim=1, keepdim=True).clamp(min=1)
    return (chosen * counted / torch.sqrt(2 * places)).sum()
