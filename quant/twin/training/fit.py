"""The loop: steps of parts, each computed by itself and their gradients added in order, so that threads change nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from quant.core.parallel import ordered_map
from quant.core.progress import progress
from quant.errors import ModelError
from quant.twin.training.batches import Part, Shuffled, parts_of, rows_of_part, steps_of
from quant.twin.training.checkpoints import State, load_state, save_state
from quant.twin.training.losses import Loss
from quant.twin.training.material import Epoch, Material
from quant.twin.training.options import TrainingOptions
from quant.twin.training.trainable import Trainable

_MOMENTUM = 0.9
Teacher = Callable[[Mapping[str, npt.NDArray[Any]]], Mapping[str, npt.NDArray[Any]]]


@dataclass(frozen=True)
class Fitting:
    """What is trained, on what, how.

    Args:
        trainable: The module.
        material: The samples.
        options: How.
        loss: What is made small.
        teacher: Gives the outputs of the FP32 model that the loss wants.
    """

    trainable: Trainable
    material: Material
    options: TrainingOptions
    loss: Loss
    teacher: Teacher


def fit(work: Fitting) -> tuple[tuple[Epoch, ...], int]:
    """Train; the best weights are in place afterwards. Gives what was found after each epoch, and the number of the epoch that was kept.

    Raises:
        ModelError: The loss is not finite.
    """
    options, material = work.options, work.material
    with exact(), ThreadPoolExecutor(material.threads) as pool:
        groups = _groups(work)
        state = State([p for group in groups for p in group["params"]], _optimizer(groups, options))
        if not load_state(state, material.scratch):
            state.epochs.append(_judged(work, None))
            state.keep()
            save_state(state, material.scratch)
        samples = Shuffled(material.samples)
        while len(state.epochs) <= options.epochs and not _is_over(state, options):
            epoch = len(state.epochs)
            samples.shuffle(options.seed, epoch)
            loss = _one_epoch(work, state, samples, pool)
            state.epochs.append(_judged(work, loss))
            if _is_best(state.epochs):
                state.keep()
            save_state(state, material.scratch)
        state.take_best()
    return tuple(state.epochs), state.kept


@contextmanager
def exact() -> Iterator[None]:
    """Let torch compute on one thread in each of ours, and by deterministic algorithms alone."""
    threads, strict, warns = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(mode=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(mode=strict, warn_only=warns)
        torch.set_num_threads(threads)


def _groups(work: Fitting) -> list[dict[str, Any]]:
    """Weights and scales, each with their own learning rate."""
    options, trainable = work.options, work.trainable
    groups = [
        {"params": list(trainable.weights.values()), "top": options.learning_rate, "weight_decay": options.weight_decay},
        {"params": trainable.scales, "top": options.scale_learning_rate, "weight_decay": 0.0},
    ]
    return [{**group, "lr": group["top"]} for group in groups if group["params"]]


def _optimizer(groups: list[dict[str, Any]], options: TrainingOptions) -> torch.optim.Optimizer:
    if options.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=options.learning_rate, momentum=_MOMENTUM)
    return torch.optim.AdamW(groups, lr=options.learning_rate)


def _one_epoch(work: Fitting, state: State, samples: Shuffled, pool: ThreadPoolExecutor) -> float:
    """One pass over the samples; gives the mean loss."""
    options = work.options
    epoch, total, rows, begun = len(state.epochs), 0.0, 0, 0
    with progress(_title(state.epochs, options.epochs), len(samples)) as advance:
        for number, step in enumerate(steps_of(work.material, samples, options.batch_size)):
            _set_rates(state.optimizer, options, (epoch - 1 + begun / len(samples)) / options.epochs)
            loss, gradients, count = _gradients(work, step, state.parameters, pool)
            if not math.isfinite(loss):
                what = f"the loss is not finite in step {number + 1} of epoch {epoch}"
                raise ModelError(what, hint="lower `learning_rate` or `scale_learning_rate`, or set `gradient_clip`")
            _apply(state, gradients, options)
            total += loss * count
            rows += count
            more = sum(feed == 0 for part in step for _, feed in part.batch.owners)
            begun += more
            advance(more)
    return total / rows


def _title(epochs: Sequence[Epoch], most: int) -> str:
    last = epochs[-1]
    found = {"loss": last.loss, "search loss": last.search_loss, **last.metrics}
    said = ", ".join(f"{name} {value:.4g}" for name, value in found.items() if value is not None)
    return f"training, epoch {len(epochs)} of {most}" + (f" ({said})" if said else "")


def _set_rates(optimizer: torch.optim.Optimizer, options: TrainingOptions, share: float) -> None:
    """Learning rates where `share` of training is over."""
    factor = 0.5 * (1 + math.cos(math.pi * min(1.0, share))) if options.schedule == "cosine" else 1.0
    for group in optimizer.param_groups:
        group["lr"] = group["top"] * factor


def _gradients(
    work: Fitting, step: Sequence[Part], parameters: Sequence[torch.nn.Parameter], pool: ThreadPoolExecutor
) -> tuple[float, list[torch.Tensor | None], int]:
    """Mean loss over a step, its gradients, and its rows."""
    rows = sum(part.rows for part in step)

    def compute(part: Part) -> tuple[float, tuple[torch.Tensor | None, ...]]:
        loss = _loss(work, part) / rows
        return float(loss.detach()), torch.autograd.grad(loss, list(parameters), allow_unused=True)

    total = 0.0
    summed: list[torch.Tensor | None] = [None] * len(parameters)
    for loss, gradients in pool.map(compute, step):
        total += loss
        for place, gradient in enumerate(gradients):
            before = summed[place]
            summed[place] = gradient if before is None or gradient is None else before + gradient
    return total, summed, rows


def _loss(work: Fitting, part: Part) -> torch.Tensor:
    """The sum of the loss over the rows of a part."""
    wanted = work.teacher(part.feed) if work.loss.teacher else {}
    twin = work.trainable.twin
    found = dict(zip(twin.outputs, twin.module(*twin.arguments(part.feed)), strict=True))
    return work.loss(found, wanted, part)


def _apply(state: State, gradients: Sequence[torch.Tensor | None], options: TrainingOptions) -> None:
    """One step of the optimizer."""
    for parameter, gradient in zip(state.parameters, gradients, strict=True):
        parameter.grad = gradient
    if options.gradient_clip is not None:
        for group in state.optimizer.param_groups:
            torch.nn.utils.clip_grad_norm_(group["params"], options.gradient_clip)
    state.optimizer.step()
    state.optimizer.zero_grad()


def _judged(work: Fitting, loss: float | None) -> Epoch:
    """What is to be said of the state as it is now."""
    material = work.material
    if material.search is None:
        return Epoch(loss=loss)
    twin = work.trainable.twin

    def compute(part: Part) -> tuple[float, int]:
        with torch.no_grad():
            return float(_loss(work, part)), part.rows

    def run(feed: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        with torch.no_grad():
            return {name: np.asarray(tensor.numpy()) for name, tensor in twin.run(feed).items()}

    found = list(ordered_map(compute, parts_of(material, material.search, rows_of_part(work.options.batch_size)), workers=material.threads))
    mean = sum(one for one, _ in found) / max(1, sum(rows for _, rows in found))
    return Epoch(loss=loss, search_loss=mean, metrics=dict(material.measure(run)) if material.measure else {})


def _is_best(epochs: Sequence[Epoch]) -> bool:
    """Whether the last epoch is to be kept: it has the least loss on the search samples, or there are none."""
    losses = [epoch.search_loss for epoch in epochs]
    return losses[-1] is None or losses[-1] <= min(value for value in losses[:-1] if value is not None)


def _is_over(state: State, options: TrainingOptions) -> bool:
    """Whether the loss on the search samples has not fallen for as long as the recipe has patience."""
    stop = options.early_stopping
    losses = [epoch.search_loss for epoch in state.epochs if epoch.search_loss is not None]
    if stop is None or len(losses) <= stop.patience:
        return False
    before, since = losses[: -stop.patience], losses[-stop.patience :]
    return not min(since) < min(before) * (1 - stop.least)
