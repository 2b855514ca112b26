"""part: the first tensor in which an engine parts from plain ONNX arithmetic.

The same graph is exported again with some tensors inside it given out, a few at a time, because an engine that must give a
tensor out cannot fuse across it. By halves and quarters the search closes in on the first one that is off. A disagreement
that goes away when a tensor is given out says as much: then what the engine makes of several operations at once is wrong.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import onnx_ir as ir

from evaluators.agreement import AgreementMeter, OutputAgreement, Parting
from quant.errors import QuantError
from quant.graph.layers import LAYER_OPS
from quant.graph.lookout import Lookout, Watched, give_out
from quant.graph.model import read_model, write_model
from quant.graph.plain import coarse, plain
from quant.graph.unrounded import without_rounding
from quant.stages.running import Array, Run

Look = Callable[[Sequence[str]], Mapping[str, OutputAgreement] | None]
"""Tensors to give out -> how each of them and each output agrees; None where the engine refuses the graph with them given out."""

AT_ONCE = 4
"""Tensors given out at a time."""
MOST_LOOKS = 32
_LAYERS = LAYER_OPS | {"MatMulInteger", "ConvInteger", "QLinearConv", "QLinearMatMul", "Attention", "LSTM", "GRU"}


def find_parting(graph: Path, feeds: Sequence[Mapping[str, Array]], load: Callable[[ir.Model, Path], Run], *, off: Sequence[OutputAgreement]) -> Parting:
    """Where the engine that `load` loads parts from the plain meaning of `graph`, of which the outputs `off` do not agree.

    Args:
        graph: File of the graph.
        feeds: Inputs for which they do not.
        load: Exports a graph into a folder and loads the engine with it.
        off: The outputs that do not agree.
    """
    lookout = Lookout(read_model(graph))

    def look(tensors: Sequence[str]) -> Mapping[str, OutputAgreement] | None:
        return _compare(graph, feeds, load, tensors=tensors)

    return _Search(lookout, look, off).result()


def _compare(
    graph: Path, feeds: Sequence[Mapping[str, Array]], load: Callable[[ir.Model, Path], Run], *, tensors: Sequence[str]
) -> Mapping[str, OutputAgreement] | None:
    """Every output and each of `tensors`, which are given out, in the engine against plain arithmetic."""
    model = read_model(graph)
    Lookout(model)  # infers types, which a graph output must have
    given = give_out(model, tensors)
    meter = AgreementMeter()
    with tempfile.TemporaryDirectory() as scratch:
        file = write_model(model, Path(scratch) / "graph")
        try:
            meant, exact, rough = plain(file), without_rounding(file), coarse(file)
            run = load(model, Path(scratch) / "engine")
            for feed in feeds:
                meter.add(exact.run(feed), meant.run(feed), run(feed), coarse=None if rough is None else rough.run(feed))
        except QuantError:  # it takes the graph as it is, but not with these given out
            return None
        del run
    return {given.get(found.output, found.output): found for found in meter.result()}


class _Search:
    """Looks ever closer.

    Args:
        lookout: The tensors of the graph.
        look: Compares some of them.
        off: The outputs that do not agree.
    """

    def __init__(self, lookout: Lookout, look: Look, off: Sequence[OutputAgreement]) -> None:
        self._order = lookout.tensors
        self._place = {watched.tensor: place for place, watched in enumerate(self._order)}
        self._look = look
        self._off = {found.output for found in off}
        self._end = lookout.output(off[0].output)
        self._found = off[0]
        self._first = len(self._order)
        """Place of the first tensor that is known to be off; beyond the last one: an output."""
        self._good: set[int] = set()
        self._hidden: set[int] = set()
        self._vanishes: list[int] = []
        self._looks = 0

    def result(self) -> Parting:
        """The first tensor that is off while all that it is computed from agrees."""
        while self._looks < MOST_LOOKS and (between := self._between()):
            self._ask(_spread(between, AT_ONCE))
        while self._looks < MOST_LOOKS and (unknown := [i for i in self._ancestors() if i not in self._good]):
            self._ask(unknown[:AT_ONCE])
        here = self._here
        within = self._within()
        layer = next((w for w in reversed(within) if w.op in _LAYERS), here)
        return Parting(
            layer=layer.layer,
            op=layer.op,
            within=tuple(dict.fromkeys(w.layer for w in within)),
            tensor=here.tensor,
            deviation_db=self._found.deviation_db,
            noise_db=self._found.noise_db,
            before=tuple(self._order[i].tensor for i in self._ancestors() if i in self._good),
            behind=here.behind,
            vanishes=tuple(self._order[i].tensor for i in sorted(self._vanishes) if i < self._first),
            looks=self._looks,
        )

    @property
    def _here(self) -> Watched:
        return self._order[self._first] if self._first < len(self._order) else self._end

    def _between(self) -> list[int]:
        """Places that nothing is known of between the last tensor that agrees and the first that does not."""
        last = max((i for i in self._good if i < self._first), default=-1)
        return [i for i in range(last + 1, self._first) if i not in self._hidden]

    def _within(self) -> list[Watched]:
        """What makes the first tensor that is off, behind the tensors before it that can be looked at; in the graph's order."""
        return [*(self._order[i] for i in sorted(self._behind_the_hidden()[1])), self._here]

    def _ancestors(self) -> list[int]:
        """Places of the nearest tensors that the first one that is off is computed from, beyond those that cannot be looked at."""
        return sorted(self._behind_the_hidden()[0])

    def _behind_the_hidden(self) -> tuple[set[int], set[int]]:
        """Places of the nearest tensors before the first that is off that can be looked at, and of those on the way that cannot."""
        found: set[int] = set()
        passed: set[int] = set()
        seen: set[str] = set()
        waiting = list(self._here.before)
        while waiting:
            name = waiting.pop()
            if name in seen or name not in self._place:  # a graph input is given
                continue
            seen.add(name)
            place = self._place[name]
            if place in self._hidden:
                passed.add(place)
                waiting.extend(self._order[place].before)
            else:
                found.add(place)
        return found, passed

    def _ask(self, picked: Sequence[int]) -> None:
        """Look at some; where the engine then refuses the graph, or no longer disagrees, at each of them alone."""
        found = self._look([self._order[i].tensor for i in picked])
        self._looks += 1
        wrong = [] if found is None else [i for i in picked if not found[self._order[i].tensor].agrees]
        if found is not None and (wrong or not all(found[name].agrees for name in self._off)):
            if wrong:
                self._first, self._found = wrong[0], found[self._order[wrong[0]].tensor]
            self._good.update(i for i in picked if i < self._first)
        elif len(picked) == 1:
            self._hidden.add(picked[0])
            self._vanishes += picked if found is not None else []
        else:
            for one in picked:
                if one < self._first and self._looks < MOST_LOOKS:
                    self._ask([one])


def _spread(places: Sequence[int], most: int) -> list[int]:
    """At most so many of `places`, such that they cut them into parts of like length.

    Example:
        >>> _spread(range(9), 4), _spread(range(2), 4)
        ([1, 3, 5, 7], [0, 1])
    """
    count = min(most, len(places))
    return [places[(2 * k + 1) * len(places) // (2 * count)] for k in range(count)]
