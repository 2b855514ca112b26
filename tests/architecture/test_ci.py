"""Tests of an engine are skipped where it is missing; in CI none may be."""

import os

import pytest

from quant.targets import TARGETS


@pytest.mark.skipif(not os.environ.get("CI"), reason="only CI has every engine")
@pytest.mark.parametrize("kind", TARGETS.kinds())
def test_ci_has_every_engine(kind):
    here = TARGETS.make(kind).available()
    assert here.available, f"{here.reason}: add its extra to .ci/run"
