"""The JSON Schema of report.json."""

import copy
import json

import jsonschema
import pytest

from quant.report.schema import report_schema


def test_every_report_fits_the_schema(any_report):
    jsonschema.Draft202012Validator(report_schema()).validate(json.loads(any_report.to_json()))


def test_the_schema_is_one_itself_and_refuses_what_is_no_report(make):
    schema = report_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    content = json.loads(make.reports["mixed"]().to_json())
    for change in ({"version": 2}, {"verdict": "perhaps"}, {"unknown": 1}, {"candidates": [{"scheme": 3}]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**copy.deepcopy(content), **change}, schema)


def test_every_field_is_described():
    schema = report_schema()
    parts = {"Report": schema, **schema["$defs"]}
    missing = [f"{name}.{field}" for name, part in parts.items() for field, about in part["properties"].items() if not about.get("description")]
    assert missing == []
