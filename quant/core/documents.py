"""Frozen documents: what one stage hands to the next, savable, loadable, comparable byte for byte."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from quant.core.arguments import with_checked_arguments
from quant.core.digest import digest_of
from quant.core.files import write_text
from quant.core.shown import Cell, Chart, Series, Shown, Table
from quant.errors import RunError


class Document(BaseModel):
    """A frozen JSON document with a content digest."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the canonical JSON of this document."""
        return digest_of(json.loads(self.model_dump_json()))

    def to_json(self) -> str:
        """This document as indented JSON with sorted keys, the same bytes for the same content."""
        return json.dumps(self.model_dump(mode="json"), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"

    def __str__(self) -> str:
        return Shown.__str__(self) if isinstance(self, Shown) else super().__str__()

    @with_checked_arguments
    def save(self, path: Path | str) -> None:
        """Write `to_json` to `path`, whole or not at all."""
        write_text(Path(path), self.to_json())

    @classmethod
    @with_checked_arguments
    def load(cls, path: Path | str) -> Self:
        """Read what `save` wrote.

        Raises:
            RunError: The file is missing or is not such a document.
        """
        path = Path(path)
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8-sig"))
        except FileNotFoundError as error:
            raise RunError(f"no such {cls.__name__}", where=str(path)) from error
        except OSError as error:
            raise RunError(f"cannot read this {cls.__name__}: {error.strerror}", where=str(path)) from error
        except UnicodeDecodeError as error:
            raise RunError(f"not a {cls.__name__}: not UTF-8: byte 0x{error.object[error.start]:02x}", where=str(path)) from error
        except ValidationError as error:
            raise RunError(f"not a {cls.__name__}: {_first_of(error)}", where=str(path)) from error


def _first_of(error: ValidationError) -> str:
    """The first thing that is wrong with a document, behind its place."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else str(first["msg"])


_MIB = 1 << 20
HIGHER_PRECISION = frozenset({"fp32", "fp16", "bf16"})
"""Formats that a layer is left in when a plan of fewer bits leaves it out."""


class LayerChoice(Document):
    """What one layer runs in, and why.

    Args:
        layer: Name of the layer, as in the user's file.
        op: ONNX operator type.
        format: Number format of its product: `fp32`, `fp16`, `int8`, `int4`, …
        reason: Why, in a few words.
    """

    layer: str
    op: str
    format: str
    reason: str


class PrecisionPlan(Document, Shown):
    """Layer by layer, the format that a scheme gives it; what stays in higher precision are the exclusions.

    Args:
        scheme: The scheme that made this plan.
        base: Format of quantized layers; of a plan with several, that of most.
        layers: One choice for every layer of the graph, in graph order.
    """

    scheme: str
    base: str
    layers: tuple[LayerChoice, ...]

    @property
    def quantized(self) -> tuple[str, ...]:
        """Names of the layers that run in the plan's format, or in another that is no floating point of higher precision."""
        return tuple(choice.layer for choice in self.layers if self._is_quantized(choice))

    @property
    def exclusions(self) -> tuple[LayerChoice, ...]:
        """The layers left in higher precision."""
        return tuple(choice for choice in self.layers if not self._is_quantized(choice))

    def _is_quantized(self, choice: LayerChoice) -> bool:
        return choice.format == self.base or choice.format not in HIGHER_PRECISION

    def as_table(self) -> Table:
        """Layer by layer, what it runs in and why."""
        facts = {"quantized": f"{len(self.quantized)} of {len(self.layers)} layers"}
        return Table(f"Plan {self.scheme}", ("layer", "operator", "format", "reason"), [(c.layer, c.op, c.format, c.reason) for c in self.layers], facts)

    def as_chart(self) -> Chart:
        """How many layers run in each format."""
        counted = Counter(choice.format for choice in self.layers)
        return Chart(f"Plan {self.scheme}", "layers", "", [Series("layers", list(counted.values()), list(counted))], "bars")

    def part(self, number_format: str) -> PrecisionPlan:
        """The plan for one of its formats alone; layers of the others stay in FP32.

        Example:
            >>> two = [LayerChoice(layer=n, op="MatMul", format=f, reason="") for n, f in (("a", "int8"), ("b", "int4"))]
            >>> PrecisionPlan(scheme="mixed", base="int8", layers=tuple(two)).part("int4").quantized
            ('b',)
        """
        own = (
            c if c.format == number_format or not self._is_quantized(c) else c.model_copy(update={"format": "fp32", "reason": f"planned in {c.format}"})
            for c in self.layers
        )
        return PrecisionPlan(scheme=self.scheme, base=number_format, layers=tuple(own))


class Artifact(Document, Shown):
    """Files written for a target.

    Args:
        target: The serving engine.
        scheme: The scheme, or `fp32` for the baseline.
        main: The file to open first, relative to the artifact's folder.
        files: Relative name -> SHA-256 of every file.
        size_bytes: All files together.
        options: What the target was told, apart from its defaults: with it, whoever finds the files can open them as they were meant.
        layers: Layer of the model -> name of the tensor that it makes: what an audit looks for in the engine.
    """

    target: str
    scheme: str
    main: str
    files: Mapping[str, str]
    size_bytes: int
    options: Mapping[str, Any] = Field(default_factory=dict)
    layers: Mapping[str, str] = Field(default_factory=dict)

    def as_table(self) -> Table:
        """Its files, each with its digest."""
        facts: dict[str, Cell] = {"opens with": self.main, "size in MiB": self.size_bytes / _MIB, **{name: str(value) for name, value in self.options.items()}}
        return Table(f"Artifact {self.scheme} for {self.target}", ("file", "SHA-256"), sorted(self.files.items()), facts)

    def as_chart(self) -> Chart:
        """How large it is; several beside one another say more, as `Run.plot` shows them."""
        return Chart("Size of the artifact", "MiB", "", [Series("size", [self.size_bytes / _MIB], [f"{self.scheme} for {self.target}"])], "bars")


class AuditRow(Document):
    """One layer's planned format against what the engine runs.

    Args:
        layer: Name of the layer.
        planned: The plan's format.
        runs: Format that the engine's own executable graph shows for it.
        kernel: The engine's operator that computes it.
        agrees: Whether the engine runs what was planned.
    """

    layer: str
    planned: str
    runs: str
    kernel: str
    agrees: bool


class Audit(Document, Shown):
    """Planned format against the format that the engine runs, layer by layer.

    Args:
        target: The serving engine.
        scheme: The scheme.
        rows: One for every layer of the plan; none when there was nothing to look into.
        unaudited: Why there was nothing to look into; empty when there was.
    """

    target: str
    scheme: str
    rows: tuple[AuditRow, ...]
    unaudited: str = ""

    @property
    def disagreements(self) -> tuple[AuditRow, ...]:
        """The layers that run in another format than planned."""
        return tuple(row for row in self.rows if not row.agrees)

    def as_table(self) -> Table:
        """Layer by layer, what was planned and what runs; the layers that differ first."""
        rows = [(r.layer, r.planned, r.runs, r.agrees, r.kernel) for r in sorted(self.rows, key=lambda row: row.agrees)]
        facts = (
            {"not audited": self.unaudited} if self.unaudited else {"run as planned": f"{len(self.rows) - len(self.disagreements)} of {len(self.rows)} layers"}
        )
        return Table(f"Audit of {self.scheme} on {self.target}", ("layer", "planned", "runs", "agrees", "kernel"), rows, facts)

    def as_chart(self) -> Chart:
        """How many layers were planned in each format, and how many run in it."""
        planned, runs = Counter(row.planned for row in self.rows), Counter(row.runs for row in self.rows)
        formats = list(dict.fromkeys([*planned, *runs]))
        series = [Series(name, [found[f] for f in formats], formats) for name, found in (("planned", planned), ("runs", runs))]
        return Chart(f"Audit of {self.scheme} on {self.target}", "layers", "", series, "bars")


Decision = Literal["pass", "fail", "inconclusive"]


class Verdict(Document, Shown):
    """The gate's word on one candidate.

    Args:
        decision: `pass`, `fail` or `inconclusive`.
        baseline: The metric of the FP32 baseline.
        value: The metric of the candidate, on the same samples.
        drop: How much worse the candidate is, in the gate's unit (absolute, or a share of the baseline); negative is better.
        drop_lower: One-sided lower confidence bound of `drop`.
        drop_upper: One-sided upper confidence bound of `drop`.
        limit: The largest drop that the recipe allows, in the same unit.
        relative: Whether `drop` and `limit` are shares of the baseline.
        confidence: Confidence of each one-sided bound.
        method: How the bounds were found.
        samples: Number of paired samples.
        needed: About how many *more* samples would decide with a chance of 80 %, if what was seen is the truth; None unless inconclusive (or
            when no number can).
        slice: The part of the samples that was judged, such as `label 3`; empty: all.
        available: Number of samples that there were; more than `samples` where a sequential gate stopped early. None: it looked at all.
        looks: How often a sequential gate looked until it decided; None: it is not sequential.
        family: Number of verdicts among which the error probability of a fail was shared when this one fell.
    """

    decision: Decision
    baseline: float
    value: float
    drop: float
    drop_lower: float
    drop_upper: float
    limit: float
    relative: bool
    confidence: float
    method: str
    samples: int
    needed: int | None = None
    slice: str = ""
    available: int | None = None
    looks: int | None = None
    family: int = 1

    def as_table(self) -> Table:
        """Every number that it goes by."""
        names = ("baseline", "value", "drop", "drop_lower", "drop_upper", "limit", "confidence", "samples", "needed")
        rows = [(name.replace("_", " "), getattr(self, name)) for name in names if getattr(self, name) is not None]
        of = f" of {self.slice}" if self.slice else ""
        return Table(f"Verdict{of}: {self.decision}", ("what", "value"), rows, {"bounds by": self.method, "a share of the baseline": self.relative})

    def as_chart(self) -> Chart:
        """The drop between its bounds, beside the limit."""
        unit = "drop, as a share of the baseline" if self.relative else "drop"
        found = Series("drop", [self.drop], [self.decision], [max(self.drop - self.drop_lower, 0.0)], [max(self.drop_upper - self.drop, 0.0)])
        return Chart(f"Verdict: {self.decision}", unit, "", [found], "bars", limits={f"allowed {self.limit:g}": self.limit})
