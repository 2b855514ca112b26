"""Drawing a sketch: batch by batch, the products of gradients with what each format adds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from quant.core.parallel import ordered_map
from quant.core.progress import progress
from quant.core.sensitivity import ALL_LAYERS, Effect
from quant.data.batches import Batch
from quant.graph.changes import Rewritten
from quant.sensitivity.drawing.directions import random_loss
from quant.sensitivity.drawing.references import first_rows, mean_squares
from quant.sensitivity.measuring.parts import PARTS
from quant.sensitivity.measuring.sums import ManyShares
from quant.twin.edges import EdgeRun, Place, Rounding, WeightShifts, dotted, places_of, rounding_of
from quant.twin.make import make_twin
from quant.twin.training.fit import exact
from quant.twin.twin import Twin

if TYPE_CHECKING:
    from quant.sensitivity import Subject

LEAST_SAMPLES = 16
"""Fewer say too little of how precise they are: squares of random sums have long tails."""

Key = tuple[str, str]
"""(format, layer)."""
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Drawn:
    """What was drawn.

    Args:
        effects: Effects of single layers, in all parts.
        samples: Number of feeds that were drawn for.
        reference: What an effect of 1 is.
        joint: All layers of each format.
    """

    effects: list[Effect]
    samples: int
    reference: float
    joint: list[Effect]


@dataclass(frozen=True)
class _Rounded:
    """A tensor that is rounded in one way, for one or several layers and formats."""

    rounding: Rounding
    users: list[tuple[Key, Place]]


class _Plan:
    """What is to be multiplied with what.

    Args:
        twin: The twin of the FP32 graph.
        changes: Format -> what it changes, layer by layer.
    """

    def __init__(self, twin: Twin, changes: Mapping[str, Sequence[Rewritten]]) -> None:
        self.keys: list[Key] = [(f, change.layer.name) for f, found in changes.items() for change in found]
        self.places: set[Place] = {place for found in changes.values() for change in found for place in places_of(change)}
        weighted: dict[str, list[tuple[Key, Rewritten]]] = {}
        for number_format, found in changes.items():
            for change in found:
                if change.weight is not None:
                    weighted.setdefault(change.layer.name, []).append(((number_format, change.layer.name), change))
        self.weights = [([key for key, _ in own], WeightShifts(twin, [change for _, change in own])) for own in weighted.values()]
        rounded: dict[tuple[Any, ...], _Rounded] = {}
        for number_format, found in changes.items():
            for change in found:
                for edge in change.edges:
                    key, rounding = rounding_of(edge)
                    users = rounded.setdefault((edge.tensor, key), _Rounded(rounding, [])).users
                    users.append(((number_format, change.layer.name), (edge.tensor, edge.reader)))
        self.rounded = list(rounded.values())


def draw(subject: Subject, changes: Mapping[str, Sequence[Rewritten]], *, directions: int, precision: float, seed: int) -> Drawn:
    """Draw `directions` for each sample, until half of the layers are known to `precision`, a share, in every format.

    Raises:
        ModelError: The model has no twin.
        Unreadable: A change has no form that the twin has.
    """
    with exact():
        few = first_rows(subject)
        twin = make_twin(subject.model, check=[few.feed])
        plan = _Plan(twin, changes)
        apart = _apart(subject, twin, plan, few, seed)
        references = mean_squares(subject) if len(subject.measures.chosen) > 1 else {}
        tally = _Tally(plan, relative=not references and subject.measures.name == "output_error")

        def one(item: tuple[int, Batch]) -> tuple[int, dict[Key, tuple[Doubles, Doubles]], Doubles]:
            number, batch = item
            generator = torch.Generator().manual_seed((seed << 32) + number)
            run = EdgeRun(twin, plan.places)
            outputs = run.outputs(batch.feed)
            losses = (random_loss(outputs, batch, subject.measures, references, generator) for _ in range(directions))
            products = _products(plan, run.kept, _gradients(losses, run.kept, directions), apart, batch)
            return len(batch.owners), products, _signals(subject, outputs, batch) if tally.relative else np.ones(len(batch.owners))

        with progress("drawing directions", None) as advance:
            for count, products, signals in ordered_map(one, enumerate(subject.batches())):
                tally.add(products, signals)
                advance(count)
                if precision and tally.spread() <= precision:
                    break
    return tally.result()


def _gradients(losses: Iterable[torch.Tensor], kept: Mapping[Place, torch.Tensor], count: int) -> list[dict[Place, torch.Tensor]]:
    """Gradient of each loss at every edge; an edge that no loss depends on is missing."""
    wanted = {place: tensor for place, tensor in kept.items() if tensor.requires_grad}
    found: list[dict[Place, torch.Tensor]] = []
    for number, loss in enumerate(losses):
        if not loss.requires_grad:
            found.append({})
            continue
        gradients = torch.autograd.grad(loss, list(wanted.values()), retain_graph=number + 1 < count, allow_unused=True)
        found.append({place: g for place, g in zip(wanted, gradients, strict=True) if g is not None})
    return found


def _apart(subject: Subject, twin: Twin, plan: _Plan, batch: Batch, seed: int) -> set[Place]:
    """The edges along whose first axis samples lie one after the other: the gradient of the first sample's outputs is nothing beyond it."""
    if batch.rows == 1:
        return set()
    run = EdgeRun(twin, plan.places)
    outputs = run.outputs(batch.feed)
    alone = Batch(batch.feed, batch.owners[:1], batch.rows)
    loss = random_loss(outputs, alone, subject.measures, {}, torch.Generator().manual_seed(seed))
    [gradients] = _gradients([loss], run.kept, 1)
    return {
        place
        for place, g in gradients.items()
        if g.dim() and g.shape[0] % batch.rows == 0 and not bool(g.reshape(batch.rows, -1)[1:].any()) and bool(g.reshape(batch.rows, -1)[0].any())
    }


@torch.no_grad()
def _products(
    plan: _Plan, kept: Mapping[Place, torch.Tensor], gradients: Sequence[Mapping[Place, torch.Tensor]], apart: set[Place], batch: Batch
) -> dict[Key, tuple[Doubles, Doubles]]:
    """Gradients x what is added, by weights and by activations, `[directions, samples]` each; `[directions, 1]` where samples are mixed."""
    mixed = dict.fromkeys(plan.keys, False)
    for key, place in [*((key, shifts.made) for keys, shifts in plan.weights for key in keys), *(user for r in plan.rounded for user in r.users)]:
        mixed[key] |= batch.rows > 1 and place not in apart
    units = {key: 1 if mixed[key] else batch.rows for key in plan.keys}
    found = {key: np.zeros((2, len(gradients), units[key])) for key in plan.keys}
    for keys, shifts in plan.weights:
        reached = [by_place[shifts.made] for by_place in gradients if shifts.made in by_place]
        if reached:  # by all directions or by none
            rows = min(units[key] for key in keys)
            for key, values in zip(keys, shifts.dotted(kept[shifts.source], reached, rows).numpy(), strict=True):
                found[key][0] += values
    for rounded in plan.rounded:
        values = kept[rounded.users[0][1]]
        added = rounded.rounding(values) - values
        for key, place in rounded.users:
            for number, by_place in enumerate(gradients):
                if place in by_place:
                    found[key][1, number] += dotted(by_place[place], added, units[key]).numpy()
    real = len(batch.owners)
    return {key: (parts[0][:, :real], parts[1][:, :real]) for key, parts in found.items()}


def _signals(subject: Subject, outputs: Mapping[str, torch.Tensor], batch: Batch) -> Doubles:
    """Squared outputs of each feed."""
    arrays = {name: tensor.detach().numpy() for name, tensor in outputs.items()}
    return np.asarray(subject.measures.errors({}, arrays, batch)[1][:, 0])


class _Tally:
    """Adds up squared products.

    Args:
        plan: What was multiplied with what.
        relative: Whether errors are shares of the squared outputs.
    """

    def __init__(self, plan: _Plan, *, relative: bool) -> None:
        self.relative = relative
        self._keys = plan.keys
        self._formats = list(dict.fromkeys(f for f, _ in plan.keys))
        self._sums = ManyShares(len(PARTS) * len(plan.keys))
        self._joint = ManyShares(len(self._formats))
        self._samples, self._signal = 0, 0.0

    def add(self, products: Mapping[Key, tuple[Doubles, Doubles]], signals: Doubles) -> None:
        """Add one batch."""
        self._samples += len(signals)
        self._signal += float(signals.sum())
        apart = [key for key in self._keys if products[key][0].shape[1] == len(signals)]
        together = [key for key in self._keys if key not in set(apart)]
        for keys, each in ((apart, signals), (together, signals.sum(keepdims=True))):
            if keys:
                parts = np.array([[weight + activation, weight, activation] for weight, activation in (products[key] for key in keys)])
                places = [len(PARTS) * self._keys.index(key) + number for key in keys for number in range(len(PARTS))]
                self._sums.add(places, np.square(parts).mean(axis=2).reshape(len(places), -1), each)
        for place, number_format in enumerate(self._formats):
            own = [np.add(*products[key]) for key in self._keys if key[0] == number_format]
            if any(values.shape[1] != len(signals) for values in own):
                own, each = [values.sum(axis=1, keepdims=True) for values in own], signals.sum(keepdims=True)
            else:
                each = signals
            self._joint.add([place], np.square(np.sum(own, axis=0)).mean(axis=0)[None], each)

    def spread(self) -> float:
        """Standard errors as shares of what was found: the median of a format's layers, the largest of all formats; infinite on few samples."""
        if self._samples < LEAST_SAMPLES:
            return float("inf")
        shares = np.array([error / value if value else 0.0 for value, error in self._sums.values()])[:: len(PARTS)]
        formats = np.array([f for f, _ in self._keys])
        return max(float(np.median(shares[formats == f])) for f in self._formats)

    def result(self) -> Drawn:
        """What was found."""
        named = [(f, layer, part) for f, layer in self._keys for part in PARTS]
        effects = [
            Effect(layer=layer, format=f, part=part, value=value, standard_error=error)
            for (f, layer, part), (value, error) in zip(named, self._sums.values(), strict=True)
        ]
        joint = [
            Effect(layer=ALL_LAYERS, format=f, value=value, standard_error=error) for f, (value, error) in zip(self._formats, self._joint.values(), strict=True)
        ]
        return Drawn(effects, self._samples, self._signal / max(self._samples, 1) if self.relative else 1.0, joint)
