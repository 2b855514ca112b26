"""How numbers and names are shown."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quant.core.documents import Verdict
from quant.report import words


@settings(max_examples=200)
@given(st.text())
def test_a_shown_name_hides_nothing_and_cannot_turn_the_text(text):
    shown = words.visible(text)
    assert all(c in "\n\t" or unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} for c in shown)
    assert "\n" not in words.one_line(text)


def test_ordinary_names_in_any_script_stay_as_they_are():
    for name in ("encoder.layer.0/MatMul", "größe", "模型", "café"):
        assert words.visible(name) == name


@pytest.mark.parametrize(("bound", "shown"), [(0.006, "0.60 points"), (0.0060001, "0.61 points"), (0.01, "1.00 points"), (0.010000001, "1.01 points")])
def test_an_upper_bound_is_rounded_away_from_zero_but_not_for_how_floats_are_stored(bound, shown):
    assert words.upper(bound, "share", relative=False) == shown


@settings(max_examples=200)
@given(st.floats(-1, 1), st.booleans())
def test_shown_bounds_are_never_tighter_than_those_found(bound, relative):
    def number(text):
        return float(text.split()[0].replace("\N{MINUS SIGN}", "-"))

    assert number(words.upper(bound, "share", relative=relative)) >= 100 * bound - 1e-9
    assert number(words.lower(bound, "share", relative=relative)) <= 100 * bound + 1e-9


@pytest.mark.parametrize(
    ("limit", "unit", "relative", "shown"),
    [
        (0.01, "share", False, "1 point"),
        (0.005, "rate", False, "0.5 points"),
        (0.02, "share", True, "2 % of FP32"),
        (0.02, "nats", True, "2 % of FP32"),
        (0.01, "correlation", False, "0.01"),
        (0.01, "nats", False, "0.01 nats"),
    ],
)
def test_limits_are_said_in_the_gate_s_unit(limit, unit, relative, shown):
    found = Verdict(
        decision="pass", baseline=1, value=1, drop=0, drop_lower=0, drop_upper=0, limit=limit, relative=relative, confidence=0.95, method="", samples=1
    )
    assert words.limit(found, unit) == shown


def test_sizes_and_times_step_up_in_their_units():
    assert [words.size(n) for n in (0, 1023, 1024, 5 * 1024**2, 3 * 1024**3)] == ["0 B", "1023 B", "1.0 KiB", "5.0 MiB", "3.00 GiB"]
    assert [words.seconds(s) for s in (0.0004, 0.5, 59.94, 61, 3600)] == ["0 ms", "500 ms", "59.9 s", "1 min 1 s", "60 min 0 s"]


def test_a_clipped_share_that_is_there_is_never_shown_as_nothing():
    assert words.small_share(1e-12) != words.small_share(0)
