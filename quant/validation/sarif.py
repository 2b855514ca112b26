"""What validation and audits find as SARIF 2.1.0, which code hosts show beside a change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from quant.core.digest import digest_of
from quant.engine.auditing import Audited
from quant.lint.sarif import SCHEMA, artifact_uri
from quant.validation.findings import Checked, Finding, Validation, judged

_LEVELS = {"failed": "error", "inconclusive": "warning"}


def validation_sarif(found: Validation) -> str:
    """A SARIF log with one result for each finding; each names its file and, within it, the layer."""
    return _log(found.checks, found.subject, {"verdict": found.verdict, "sentence": found.sentence})


def audit_sarif(found: Audited, path: str) -> str:
    """A SARIF log of an audit of the artifact in `path`: a result for each layer that does not run as planned."""
    wrong = [Finding(kind="layer", where=r.layer, tensor=r.kernel, what=f"is planned in {r.planned}, runs in {r.runs}") for r in found.wrong]
    checked = judged(wrong, "").model_copy(update={"check": "audit", "title": "the engine runs every layer as planned"})
    return _log([checked], path, {"target": found.audit.target, "scheme": found.audit.scheme})


def _log(checks: Sequence[Checked], subject: str, told: dict[str, str]) -> str:
    rules = {check.check: check.title for check in checks}
    index = {name: number for number, name in enumerate(rules)}
    results = [_result(check, finding, index[check.check], subject) for check in checks for finding in check.findings]
    run = {
        "tool": {
            "driver": {
                "name": "quant",
                "semanticVersion": version("quant-toolkit"),
                "rules": [{"id": name, "shortDescription": {"text": title}, "defaultConfiguration": {"level": "error"}} for name, title in rules.items()],
            }
        },
        "results": results,
        "properties": told,
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def _result(check: Checked, finding: Finding, rule: int, subject: str) -> dict[str, Any]:
    uri = artifact_uri(str(Path(subject) / finding.file) if finding.file else subject)
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": uri}}}
    if finding.kind in {"layer", "tensor"}:
        location["logicalLocations"] = [{"name": finding.where, "fullyQualifiedName": finding.where, "kind": "function"}]
    return {
        "ruleId": check.check,
        "ruleIndex": rule,
        "level": _LEVELS.get(check.status, "note"),
        "message": {"text": f"{check.candidate}: {finding}" if check.candidate else str(finding)},
        "locations": [location],
        "partialFingerprints": {"finding/v1": digest_of([check.check, check.candidate, finding.where, finding.tensor, finding.file])},
    }
