"""Shipped recipes that mix formats, with an accuracy budget of half a point: the plan against every scheme alone.

    pytest tests/benchmarks/test_mixed_plans.py -m benchmark -s

Times of all candidates are measured in turns; a plan is at least as fast as a scheme unless it is slower beyond both intervals (95 %).
"""

import pytest

import quant
from quant.recipe.load import load_recipe
from quant.recipe.shipped import shipped

pytestmark = [pytest.mark.benchmark, pytest.mark.slow, pytest.mark.network]

BUDGET = 0.005
MIXING = [name for name, path in shipped().items() if load_recipe(path).recipe.plan is not None]


@pytest.fixture(scope="module", params=MIXING)
def report(request, tmp_path_factory):
    path = shipped()[request.param]
    gates = load_recipe(path).recipe.gate
    tighter = [f"gate.{n}.max_drop={min(gate.max_drop, BUDGET)}" for n, gate in enumerate(gates)] if len(gates) > 1 else [f"gate.max_drop={BUDGET}"]
    found = quant.run(path, output=tmp_path_factory.mktemp(request.param), overrides=tighter).report
    print(f"\n{request.param}:")
    for candidate in found.candidates:
        ratio = "emulated" if candidate.emulated else f"{candidate.latency_ratio:.3f}" if candidate.latency_ratio else candidate.status
        drop = "" if candidate.drop is None else f"drop {100 * candidate.drop:.2f} points, at most {100 * candidate.drop_upper:.2f}"
        print(f"  {candidate.scheme:14} {candidate.verdict or candidate.status:14} {ratio:10} {drop}")
    for row in found.timings.mixing:
        print(f"  {row.ended}")
    return found


def times(report, scheme):
    return next(row for row in report.timings.latency if row.scheme == scheme)


def candidates(report):
    return {candidate.scheme: candidate for candidate in report.candidates}


def mixed(report):
    found = candidates(report)["mixed"]
    if found.status == "not applicable":
        assert found.reason.startswith("Nothing is to be won")
        pytest.skip(found.reason)
    return found


def test_the_plan_passes_and_is_at_least_as_fast_as_every_scheme_that_passes(report):
    assert mixed(report).verdict == "pass"
    for scheme, candidate in candidates(report).items():
        if scheme != "mixed" and candidate.verdict == "pass" and not candidate.emulated:
            assert times(report, "mixed").ratio_low <= times(report, scheme).ratio_high, scheme


def test_where_int8_alone_does_not_pass_the_plan_is_faster_than_fp32(report):
    mixed(report)
    alone = [c for scheme, c in candidates(report).items() if scheme.startswith("int8")]
    if any(candidate.verdict == "pass" for candidate in alone):
        pytest.skip("INT8 alone passes")
    assert times(report, "mixed").ratio_high < 1
