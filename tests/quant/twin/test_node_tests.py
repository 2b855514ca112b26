"""Every operator that the twin claims, against the ONNX standard's own node tests."""

import collections
import functools
import re
import warnings

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from onnx import numpy_helper

from quant.errors import ModelError
from quant.twin.conversion import LEAST_OPSET, claimed, convert
from quant.twin.operators import Unsupported, from_numpy

pytestmark = pytest.mark.slow

WIDE = "(add|sub|div|mod|max|min|greater|greater_equal|less|less_equal)_uint(16|32|64)|bitshift_(left|right)_uint(16|32|64)|bitwise_not_3d"
ODD = "(FLOAT8E4M3FNUZ|FLOAT8E5M2FNUZ|U?INT[24]|FLOAT4E2M1|FLOAT8E8M0)"
KNOWN = {
    rf"^test_({WIDE})(_expanded)?$": "torch has no arithmetic of unsigned integers beyond 8 bits",
    r"^test_(batchnorm.*_training_mode|training_dropout.*)$": "the twin is the model at inference",
    rf"^test_cast(like)?_(e8m0_)?FLOAT(16)?_to_{ODD}(_expanded)?$": "torch has no such type to cast to, or packs it",
    r"^test_cast(like)?_(e8m0_)?FLOAT(4E2M1|8E8M0)_to_.*": "no format of the toolkit",
    r"^test_cast(like)?_no_saturate_.*": "8-bit floats saturate here",
    r"^test_(de)?quantizelinear_float4e2m1$": "no format of the toolkit",
    r"^test_equal_string.*": "there are no strings in torch",
    r"^test_lstm_with_peepholes$": "sequences of several lengths, and peepholes, are refused",
}
"""Tests that a claimed operator fails, by name: each with the reason, and each must go on failing."""


def array(value):
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def at_least_opset(model):
    """The model at the twin's least opset; None when an operator meant something else before."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for imported in copy.opset_import:
        if not imported.domain and imported.version < LEAST_OPSET:
            for node in copy.graph.node:
                schema = onnx.defs.get_schema(node.op_type, LEAST_OPSET)
                if schema.deprecated or schema.since_version > imported.version:
                    return None
            imported.version = LEAST_OPSET
    return onnx.shape_inference.infer_shapes(copy)


@functools.cache
def cases():
    """Operator (or `several`) -> test cases that hold nothing but what the twin claims."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    grouped = collections.defaultdict(list)
    for case in found:
        ops = {node.op_type for node in case.model.graph.node}
        if ops <= claimed() and all(node.domain in {"", "ai.onnx"} for node in case.model.graph.node) and at_least_opset(case.model) is not None:
            grouped[ops.pop() if len(ops) == 1 else "several"].append(case)
    return dict(grouped)


@functools.cache
def failures(op):
    """Name -> what is wrong, of the tests of an operator that fail."""
    return {case.name: wrong for case in cases()[op] if (wrong := failure(case)) is not None}


def failure(case):
    try:
        with torch.no_grad():
            twin = convert(ir.from_proto(at_least_opset(case.model)))
            for inputs, outputs in case.data_sets:
                found = twin.module(*(from_numpy(array(i)) for i in inputs))
                for a, b in zip(found, outputs, strict=True):
                    expected = from_numpy(array(b))
                    assert (a.dtype, a.shape) == (expected.dtype, expected.shape)
                    np.testing.assert_allclose(a.to(torch.float64), expected.to(torch.float64), **tolerances(case, expected))
    except (ModelError, Unsupported, NotImplementedError, AssertionError) as error:
        return f"{type(error).__name__}: {error}"[:300]
    return None


def tolerances(case, expected):
    """The case's own; where values are of half precision, no finer than two steps of it, which the standard's are in bfloat16."""
    if expected.dtype not in {torch.float16, torch.bfloat16}:
        return {"rtol": case.rtol, "atol": case.atol}
    step = torch.finfo(expected.dtype).eps
    return {"rtol": max(case.rtol, 2 * step), "atol": max(case.atol, 2 * step * float(expected.abs().max()))}


def reason(name):
    return next((why for pattern, why in KNOWN.items() if re.search(pattern, name)), None)


@pytest.mark.parametrize("op", [*sorted(claimed()), "several"])
def test_an_operator_passes_its_node_tests(op):
    if op not in cases():
        pytest.fail(f"the standard has no test of {op}, so it cannot be claimed")
    unknown = {name: wrong for name, wrong in failures(op).items() if reason(name) is None}
    assert not unknown


def test_the_count_of_node_tests_passed(record_property):
    total = sum(len(group) for group in cases().values())
    failed = [name for op in cases() for name in failures(op)]
    stale = [case.name for group in cases().values() for case in group if reason(case.name) and case.name not in failed]
    record_property("figure", f"ONNX node tests of the {len(claimed())} operators that the twin claims: {total - len(failed)} of {total} passed")
    assert not stale, "these pass by now: take them out of the known failures"
    assert total > 1300
    assert len(failed) <= 0.1 * total
