"""JSON Schema of `report.json`, with what the docstrings say about every field."""

from __future__ import annotations

import inspect
import re
from typing import Any

from evaluators.agreement import Agreement, OutputAgreement, Parting
from quant.core.documents import AuditRow, Document, LayerChoice, Verdict
from quant.report import document, graph, mixing
from quant.report.document import Report

_ARGUMENT = re.compile(r"^    (\w+): (.*)$")


def report_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of `report.json`; every field carries its description."""
    schema: dict[str, Any] = Report.model_json_schema(mode="serialization")
    shared = (AuditRow, LayerChoice, Verdict, Agreement, OutputAgreement, Parting)
    models = [
        model
        for model in (*shared, *vars(mixing).values(), *vars(graph).values(), *vars(document).values())
        if inspect.isclass(model) and issubclass(model, Document)
    ]
    for model in models:
        part = schema if model is Report else schema["$defs"].get(model.__name__)
        if part is not None:
            _describe(part, inspect.getdoc(model) or "")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _describe(part: dict[str, Any], docstring: str) -> None:
    """Move what a docstring says about arguments to the properties of the same names."""
    head, _, arguments = docstring.partition("\nArgs:\n")
    part["description"] = head.strip()
    name = ""
    for line in arguments.splitlines():
        if found := _ARGUMENT.match(line):
            name = found[1]
            part["properties"][name]["description"] = found[2]
        elif line.strip() and name:
            part["properties"][name]["description"] += " " + line.strip()
