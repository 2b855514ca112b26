"""What was found as SARIF 2.1.0, which code hosts show beside a change."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from quant.core.digest import digest_of
from quant.lint.check import Checked, Finding, RuleText

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "silent": "warning", "warning": "note"}


def sarif(checked: Checked) -> str:
    """A SARIF log with one run; every finding names the file and, within it, the node."""
    index = {rule.id: number for number, rule in enumerate(checked.rules)}
    uri = artifact_uri(checked.model if checked.mended is None else checked.mended.path)
    run = {
        "tool": {"driver": {"name": "quant", "semanticVersion": version("quant-toolkit"), "rules": [_rule(rule) for rule in checked.rules]}},
        "artifacts": [{"location": {"uri": uri}}],
        "results": [_result(finding, index[finding.rule], uri) for finding in checked.findings],
        "properties": {"target": checked.target, "capability": checked.capability},
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def artifact_uri(path: str) -> str:
    """A path as SARIF wants it: relative ones as relative references, others as file addresses.

    Example:
        >>> artifact_uri("models/my model.onnx")
        'models/my%20model.onnx'
    """
    return Path(path).as_uri() if Path(path).is_absolute() else quote(Path(path).as_posix())


def _rule(rule: RuleText) -> dict[str, Any]:
    said = f"\n\nTensorRT says: {rule.text}" if rule.text else ""
    seen = f"\n\nSeen with TensorRT-RTX 1.7.1: {rule.observed}" if rule.observed else ""
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"{rule.fix}{said}{seen}"},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"severity": rule.severity},
    }


def _result(finding: Finding, rule: int, uri: str) -> dict[str, Any]:
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": uri, "index": 0}}}
    if finding.node:
        location["logicalLocations"] = [{"name": finding.node, "fullyQualifiedName": finding.node, "kind": "function"}]
    return {
        "ruleId": finding.rule,
        "ruleIndex": rule,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{finding.op} {finding.node!r}: {finding.detail}" if finding.node else finding.detail},
        "locations": [location],
        "partialFingerprints": {"node/v1": digest_of([finding.rule, finding.node, finding.tensor])},
    }
