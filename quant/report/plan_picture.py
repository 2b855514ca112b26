"""The plan as a picture of the graph: which layer runs in what, and what that does to the outputs, for every candidate with a plan.

Only geometry and words are made here; `templates/graph.html` draws them, and `templates/graph.js` colours them anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quant.report.document import Candidate, Report
from quant.report.graph import GraphPart
from quant.report.layered import Drawing, Place, lay_out
from quant.report.mixing import MixingRow, spread
from quant.report.sentence import title
from quant.report.words import NOTHING, count, listed, one_line

MOST_PARTS = 4000
"""Parts that are drawn; a picture of more would neither open quickly nor be looked at."""
_COLOURS = ("fp32", "fp16", "bf16", "fp8", "int8", "int4", "fp4")
_SAME = {"float32": "fp32", "float16": "fp16", "nvfp4": "fp4", "mxfp4": "fp4", "mxfp8": "fp8", "uint8": "int8", "uint4": "int4"}
_LABEL = 17
_SIGNS = {"Add": "+", "Sub": "\N{MINUS SIGN}", "Mul": "\N{MULTIPLICATION SIGN}", "Div": "\N{DIVISION SIGN}", "Concat": "‖"}
_STEPS = (1 / 3, 1 / 10, 1 / 30, 1 / 100)
"""Shares of the largest effect at which the colours of errors change."""
UNKNOWN = "u"


@dataclass(frozen=True)
class Node:
    """A part as it is drawn: its words, its place, and its colours in the plan that is shown first."""

    number: int
    kind: str
    op: str
    name: str
    label: str
    place: Place
    format: str = ""
    colour: str = ""

    @property
    def told(self) -> str:
        """What a pointer that rests on it, and a screen reader, are told."""
        return ", ".join(filter(None, (self.name, self.op or self.kind, self.format)))


@dataclass(frozen=True)
class View:
    """What one candidate makes of the layers; every list is in the order of `PlanPicture.layers`.

    Args:
        number: The candidate's number in the report.
        title: `scheme on target`.
        formats: Formats.
        colours: Class of colour of each format.
        levels: Class of colour of each effect: `0` to `5`, or `u` when it is not known.
        effects: Effects in words.
        reasons: Why each is in its format.
        runs: What the engine runs it in; empty when that was not looked into.
        scale: (level, what it means), the largest first; empty where no effect is known.
    """

    number: int
    title: str
    formats: tuple[str, ...]
    colours: tuple[str, ...]
    levels: tuple[str, ...]
    effects: tuple[str, ...]
    reasons: tuple[str, ...]
    runs: tuple[str, ...]
    scale: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class PlanPicture:
    """The drawing, and every plan that it can be coloured by.

    Args:
        drawing: Where everything stands.
        nodes: Every part.
        layers: Numbers of the nodes that are layers.
        views: The plans.
        first: The one that is shown first: one with the most formats, and the last of those.
        colours: (class, formats that it stands for) of all plans.
        description: What is seen, in a sentence.
    """

    drawing: Drawing
    nodes: tuple[Node, ...]
    layers: tuple[int, ...]
    views: tuple[View, ...]
    first: int
    colours: tuple[tuple[str, str], ...]
    description: str

    @property
    def content(self) -> str:
        """What the page's script needs, as JSON in which nothing ends the element that it stands in."""
        told = {
            "names": [node.name for node in self.nodes],
            "ops": [node.op or node.kind for node in self.nodes],
            "layers": self.layers,
            "first": self.first,
            "views": [
                {
                    "number": view.number,
                    "formats": view.formats,
                    "colours": view.colours,
                    "levels": view.levels,
                    "effects": view.effects,
                    "reasons": list(dict.fromkeys(view.reasons)),
                    "why": [list(dict.fromkeys(view.reasons)).index(reason) for reason in view.reasons],
                    "runs": view.runs,
                    "scale": view.scale,
                }
                for view in self.views
            ],
        }
        text = json.dumps(told, ensure_ascii=True, separators=(",", ":"))
        return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def draw_plan(report: Report) -> PlanPicture | None:
    """The picture of all plans of `report`; None where the report has no graph, no plan, or a graph that is too large to draw."""
    numbered = [(number, c) for number, c in enumerate(report.candidates, 1) if c.plan]
    if report.graph is None or not numbered or len(report.graph.parts) > MOST_PARTS:
        return None
    parts = report.graph.parts
    layers = tuple(number for number, part in enumerate(parts) if part.kind == "layer")
    names = [parts[number].name for number in layers]
    rows = {row.target: row for row in report.timings.mixing}
    views = tuple(view_of(number, c, names, rows.get(c.target)) for number, c in numbered)
    first = max(range(len(views)), key=lambda at: (len(set(views[at].formats)), bool(views[at].scale), at))
    drawing = lay_out(parts)
    shown = {number: at for at, number in enumerate(layers)}
    nodes = tuple(_node(number, part, drawing.places[number], views[first], shown.get(number)) for number, part in enumerate(parts))
    return PlanPicture(drawing, nodes, layers, views, first, _legend(views), f"{count(len(layers), 'layer')} of the model and what connects them.")


def view_of(number: int, candidate: Candidate, names: Sequence[str], row: MixingRow | None) -> View:
    """What `candidate` makes of the layers called `names`.

    Args:
        number: Its number in the report.
        candidate: The candidate.
        names: Names of layers.
        row: How a plan was found on its target, where effects are told of.
    """
    choices = {choice.layer: choice for choice in candidate.plan}
    runs = {found.layer: one_line(found.runs) for found in candidate.audit}
    formats = tuple(choices[name].format if name in choices else "" for name in names)
    most = max((e.value for e in row.effects), default=0.0) if row is not None else 0.0
    effects = {(e.layer, e.format): (level(e.value, most), spread(e.value, e.standard_error)) for e in row.effects} if row is not None else {}
    told = [("0", "0") if f == "fp32" and effects else effects.get((name, f), (UNKNOWN, NOTHING)) for name, f in zip(names, formats, strict=True)]
    return View(
        number=number,
        title=title(candidate),
        formats=tuple(one_line(f) or NOTHING for f in formats),
        colours=tuple(map(colour, formats)),
        levels=tuple(found for found, _ in told),
        effects=tuple(words for _, words in told),
        reasons=tuple(one_line(choices[name].reason) if name in choices else "" for name in names),
        runs=tuple(runs.get(name, "") for name in names),
        scale=_scale(most) if any(found != UNKNOWN for found, _ in told) else (),
    )


def colour(number_format: str) -> str:
    """Class of colour of a format.

    Example:
        >>> colour("int8"), colour("nvfp4"), colour("<img>")
        ('int8', 'fp4', 'other')
    """
    known = _SAME.get(number_format, number_format)
    return known if known in _COLOURS else "other"


def level(value: float, most: float) -> str:
    """Class of colour of an effect, by its share of the largest one.

    Example:
        >>> [level(value, 1.0) for value in (1.0, 0.2, 0.05, 0.02, 0.001, 0.0, -0.1)]
        ['5', '4', '3', '2', '1', '0', '0']
    """
    if value <= 0 or most <= 0:
        return "0"
    return str(5 - sum(value < step * most for step in _STEPS))


def _scale(most: float) -> tuple[tuple[str, str], ...]:
    if most <= 0:
        return (("0", "0"),)
    ends = [f"{step * most:.1g}" for step in _STEPS]
    steps = [("5", f"from {ends[0]}"), *((str(4 - n), f"from {end}") for n, end in enumerate(ends[1:])), ("1", f"below {ends[-1]}")]
    return (*steps, ("0", "none"))


def _legend(views: Sequence[View]) -> tuple[tuple[str, str], ...]:
    found: dict[str, dict[str, None]] = {}
    for view in views:
        for kind, number_format in zip(view.colours, view.formats, strict=True):
            found.setdefault(kind, {})[number_format] = None
    return tuple((kind, listed(found[kind])) for kind in (*_COLOURS, "other") if kind in found)


def _node(number: int, part: GraphPart, place: Place, view: View, layer: int | None) -> Node:
    found: Mapping[str, str] = {} if layer is None else {"format": view.formats[layer], "colour": view.colours[layer]}
    name, op = one_line(part.name), one_line(part.op)
    return Node(number, part.kind, op, name, _SIGNS.get(op, "") if part.kind == "join" else short_name(name, op), place, **found)


def short_name(name: str, op: str = "") -> str:
    r"""The end of a layer's name that fits into its box; the operator at its end says nothing that the box does not.

    Example:
        >>> short_name("encoder.layer.0.attention.self.query.MatMul", "MatMul"), short_name("/layer1/conv2/Conv", "Conv"), short_name("fc")
        ('self.query', 'layer1.conv2', 'fc')
        >>> ascii(short_name("a_name_without_any_parts"))
        "'\\u2026ithout_any_parts'"
    """
    parts = [part for part in re.split(r"[./]", name) if part] or [name]
    if len(parts) > 1 and parts[-1] == op:
        parts.pop()
    label = parts.pop()
    while parts and len(parts[-1]) + 1 + len(label) <= _LABEL - 2:
        label = f"{parts.pop()}.{label}"
    return label if len(label) <= _LABEL else "\N{HORIZONTAL ELLIPSIS}" + label[len(label) - _LABEL + 1 :]
