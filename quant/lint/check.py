"""`quant check`: every rule over one file, and a mended copy of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx_ir as ir
import onnx_ir.passes.common

from quant.core.documents import Document
from quant.core.files import refuse_folder, whole_file
from quant.core.registry import did_you_mean
from quant.errors import ModelError, QuantError
from quant.graph.model import all_graphs, drop_unused_weights, read_model
from quant.lint import RULES, SEVERITIES, Rule, Severity
from quant.lint.facts import Facts, Setting

TARGETS = ("tensorrt",)
CAPABILITIES = (75, 80, 86, 87, 89, 90, 100, 103, 120, 121)
"""Compute capabilities, times ten, that TensorRT 10 and 11 or TensorRT-RTX build for; the rules speak of these."""
_SINGLE_FILE_BELOW = 1 << 30
_KEEP_INSIDE_BELOW = 1024
_ROUNDS = 4


class RuleText(Document):
    """A rule in words."""

    id: str
    severity: Severity
    title: str
    text: str
    why: str
    fix: str
    observed: str
    mends: bool


class Finding(Document):
    """One place where a rule is broken; node and op are empty where it is the model as a whole."""

    rule: str
    severity: Severity
    node: str
    op: str
    tensor: str
    detail: str


class Mended(Document):
    """What was mended, by rule."""

    path: str
    places: dict[str, int]


class Checked(Document):
    """What was found in a file.

    Args:
        model: Path of the file, as given.
        target: The engine that it was checked for.
        capability: Compute capability times ten; None when none was given.
        rules: Every rule that was asked.
        findings: Worst first, then by rule, then in the graph's order.
        mended: What a copy was mended of; the findings are then those of the copy.
    """

    model: str
    target: str
    capability: int | None
    rules: tuple[RuleText, ...]
    findings: tuple[Finding, ...]
    mended: Mended | None = None

    def count(self, severity: Severity) -> int:
        """Number of findings of one severity."""
        return sum(f.severity == severity for f in self.findings)


def check(
    path: Path,
    *,
    target: str = "tensorrt",
    capability: str | None = None,
    rules: Sequence[str] = (),
    severity: str = "warning",
    mend_to: Path | None = None,
    beside: Sequence[Path] = (),
) -> Checked:
    """Check the ONNX model in `path` against what `target` refuses or quietly runs otherwise.

    Args:
        path: An ONNX file, from whatever tool.
        target: The engine; only `tensorrt` has rules.
        capability: The GPU's compute capability: "8.9", "89" or "sm89".
        rules: Ids of the rules to ask; all when empty.
        severity: The mildest severity to report.
        mend_to: Where to write a mended copy; the findings are then what remains in it.
        beside: What else the caller is going to write: refused before anything is written if it would overwrite the model or the copy.

    Raises:
        QuantError: No such model, target, rule, severity or capability, or the copy cannot be written there.
    """
    if target not in TARGETS:
        raise QuantError(f"no rules for target {target!r}", hint=did_you_mean(target, TARGETS))
    if severity not in SEVERITIES:
        raise QuantError(f"no such severity: {severity!r}", hint=f"one of {', '.join(SEVERITIES)}")
    chosen = [RULES.make(kind) for kind in RULES if not rules or kind in set(_known(rules))]
    sm = None if capability is None else parse_capability(capability)
    model = _read(path)
    _refuse_overwriting(model, path, mend_to, beside)
    setting = Setting(sm, path.stat().st_size + sum(t.nbytes for t in _external(model)))
    mended = None if mend_to is None else _mend(model, mend_to, chosen, setting)
    found = _findings(Facts(model, setting), chosen, set(SEVERITIES[: SEVERITIES.index(_as_severity(severity)) + 1]))
    return Checked(model=str(path), target=target, capability=sm, rules=tuple(_words(rule) for rule in chosen), findings=found, mended=mended)


def _as_severity(text: str) -> Severity:
    return next(s for s in SEVERITIES if s == text)


def _known(rules: Sequence[str]) -> list[str]:
    """The ids as the rules have them, whatever the case they were typed in."""
    by_lower = {kind.lower(): kind for kind in RULES}
    for rule in rules:
        if rule.lower() not in by_lower:
            raise QuantError(f"no such rule: {rule!r}", hint=did_you_mean(rule, RULES.kinds()))
    return [by_lower[rule.lower()] for rule in rules]


def parse_capability(text: str) -> int:
    """Compute capability times ten.

    Raises:
        QuantError: It is none, or no TensorRT that the rules know builds for it: they would find nothing, whatever is in the graph.

    Example:
        >>> parse_capability("sm89"), parse_capability("8.9"), parse_capability("120")
        (89, 89, 120)
    """
    digits = text.strip().lower().removeprefix("sm").removeprefix("_")
    major, dot, minor = digits.partition(".")
    whole = major + minor if dot else digits
    known = ", ".join(f"sm{number}" for number in CAPABILITIES)
    if not (whole.isascii() and whole.isdigit() and (not dot or len(minor) == 1)):
        raise QuantError(f"not a compute capability: {text!r}", hint=f"for instance sm89 or 8.9; one of {known}")
    if int(whole) not in CAPABILITIES:
        raise QuantError(f"TensorRT builds nothing for compute capability {text!r}", hint=f"one of {known}")
    return int(whole)


def _read(path: Path) -> ir.Model:
    if path.is_dir():
        raise ModelError("is a folder", where=str(path), hint="give an .onnx file")
    model = read_model(path)
    if model.functions:
        try:
            onnx_ir.passes.common.InlinePass()(model)
        except ValueError as error:
            raise ModelError(f"its functions cannot be put in place: {str(error).splitlines()[0]}", where=str(path)) from error
    return model


def _findings(facts: Facts, rules: Sequence[Rule], shown: set[Severity]) -> tuple[Finding, ...]:
    order = {node: number for number, node in enumerate(facts.nodes)}
    rows: list[tuple[int, str, int, int, Finding]] = []
    for rule in rules:
        for place in rule.check(facts):
            severity = place.severity or rule.severity
            if severity not in shown:
                continue
            node = place.node
            name = "" if node is None else node.name or f"{node.op_type} that makes {', '.join(str(v.name) for v in node.outputs)}"
            finding = Finding(rule=rule.kind, severity=severity, node=name, op="" if node is None else node.op_type, tensor=place.tensor, detail=place.detail)
            rows.append((SEVERITIES.index(severity), rule.kind, -1 if node is None else order.get(node, -1), len(rows), finding))
    return tuple(row[4] for row in sorted(rows, key=lambda row: row[:4]))


def _words(rule: Rule) -> RuleText:
    return RuleText(
        id=rule.kind,
        severity=rule.severity,
        title=rule.title,
        text=rule.text,
        why=rule.why,
        fix=rule.fix,
        observed=rule.observed,
        mends=type(rule).mend is not Rule.mend,
    )


def _mend(model: ir.Model, to: Path, rules: Sequence[Rule], setting: Setting) -> Mended:
    """Mend `model` in place until nothing more can be, and write it to `to`."""
    places: dict[str, int] = {}
    for _ in range(_ROUNDS):
        before = dict(places)
        for rule in rules:
            count = rule.mend(Facts(model, setting)) if type(rule).mend is not Rule.mend else 0
            if count:
                places[rule.kind] = places.get(rule.kind, 0) + count
        if places == before:
            break
    for graph in all_graphs(model.graph):
        drop_unused_weights(graph)
    outputs = set(model.graph.outputs)
    for value, made in Facts(model, setting).types.items():
        if value not in outputs:
            value.dtype = made
    large = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None) >= _SINGLE_FILE_BELOW
    with whole_file(to) as part:
        if large or _external(model):
            ir.save(model, part, external_data=_data_of(to).name, size_threshold_bytes=_KEEP_INSIDE_BELOW)
        else:
            ir.save(model, part)
    return Mended(path=str(to), places=dict(sorted(places.items())))


def _data_of(copy: Path) -> Path:
    """Where a copy's large tensors go."""
    return copy.with_name(copy.name + ".data")


def _refuse_overwriting(model: ir.Model, path: Path, copy: Path | None, beside: Sequence[Path]) -> None:
    """Refuse outputs that would overwrite what they are made of, or each other."""
    taken = {path, *(path.parent / str(t.location) for t in _external(model))}
    named = {place.resolve(): "what it is made of" for place in taken}
    for place in [copy, *beside]:
        if place is None:
            continue
        refuse_folder(place)
        made = [place, _data_of(place)] if place is copy else [place]
        if found := next((named[m.resolve()] for m in made if m.resolve() in named), None):
            noun = "mended copy" if place is copy else "report"
            raise QuantError(f"the {noun} would overwrite {found}", where=str(place), hint="give another name")
        named |= {m.resolve(): "the mended copy" for m in made}


def _external(model: ir.Model) -> list[ir.ExternalTensor]:
    values = [v.const_value for graph in all_graphs(model.graph) for v in graph.initializers.values()]
    return [t for t in values if isinstance(t, ir.ExternalTensor)]
