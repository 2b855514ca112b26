"""What validation found as JUnit XML: one case for each check."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from quant.report.junit import clean
from quant.validation.findings import Validation


def validation_junit(found: Validation) -> str:
    """The text of a `junit.xml`: a check that fails is a failure, one that is inconclusive an error of that type."""
    suites = ET.Element("testsuites", name="quant validate")
    suite = ET.SubElement(suites, "testsuite", name=clean(found.subject), time=f"{sum(check.seconds for check in found.checks):.3f}")
    properties = ET.SubElement(suite, "properties")
    for name, value in {"verdict": found.verdict, "sentence": found.sentence, **found.environment}.items():
        ET.SubElement(properties, "property", name=clean(name), value=clean(value))
    for check in found.checks:
        place = check.candidate.replace(".", "_") or "run"
        case = ET.SubElement(suite, "testcase", classname=clean(f"validate.{place}"), name=clean(check.title), time=f"{check.seconds:.3f}")
        text = clean("\n".join(str(finding) for finding in check.findings))
        if check.status == "failed":
            ET.SubElement(case, "failure", type=check.check, message=clean(str(check.findings[0]) if check.findings else check.said)).text = text
        elif check.status == "inconclusive":
            ET.SubElement(case, "error", type="inconclusive", message=clean(check.said)).text = text
        elif check.status == "skipped":
            ET.SubElement(case, "skipped", message=clean(check.said))
        else:
            ET.SubElement(case, "system-out").text = clean(check.said)
    for node in (suites, suite):
        for key, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            node.set(key, str(len(list(suite.iter(tag)))))
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=False).join(('<?xml version="1.0" encoding="UTF-8"?>\n', "\n"))
