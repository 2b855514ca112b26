"""What every metric owes, over the registry."""

import json

import numpy as np
import pytest

from evaluators import METRICS
from evaluators.bootstrap import Weighted, weighted_values
from evaluators.gate import gate
from quant.core.digest import canonical_json
from quant.errors import DataError


class Case:
    """A metric with its own example."""

    def __init__(self, kind):
        options, self.outputs, self.labels = METRICS.get(kind).example()
        self.metric = METRICS.make(kind, options)

    def records(self, outputs=None, labels=None):
        pairs = zip(outputs or self.outputs, labels or self.labels, strict=True)
        return [self.metric.record(o, label) for o, label in pairs]


@pytest.fixture(params=list(METRICS))
def case(request):
    return Case(request.param)


def test_a_metric_states_its_direction_unit_and_kind(case):
    assert case.metric.direction in {"higher", "lower", "same"}
    assert case.metric.unit
    assert isinstance(case.metric.proportion, bool)
    assert case.metric.kind in METRICS


def test_records_are_finite_float64_with_as_many_columns_for_every_sample(case):
    records = case.records()
    assert all(r.ndim == 2 and r.dtype == np.float64 and np.isfinite(r).all() for r in records)
    assert len({r.shape[1] for r in records}) == 1


def test_labels_of_the_example_are_accepted_and_none_is_refused_unless_no_label_is_read(case):
    for label in case.labels:
        case.metric.check_label(label)
    try:
        case.metric.check_label(None)
    except DataError:
        return
    with_labels = np.concatenate(case.records())
    assert np.array_equal(np.concatenate(case.records(labels=[None] * len(case.labels))), with_labels)


def test_a_proportion_has_records_of_zero_and_one_whose_mean_is_its_value(case):
    if not case.metric.proportion:
        pytest.skip("no proportion")
    records = np.concatenate([*case.records(), *case.records(labels=[*case.labels[1:], case.labels[0]])])
    assert set(np.unique(records[:, 0])) == {0.0, 1.0}
    assert case.metric.value(records) == records[:, 0].mean()


def test_the_value_is_a_finite_float_that_does_not_depend_on_the_order_of_samples(case):
    records = case.records()
    value = case.metric.value(np.concatenate(records))
    assert type(value) is float
    assert canonical_json(value) == json.dumps(value)
    assert case.metric.value(np.concatenate(records[::-1])) == pytest.approx(value, rel=1e-12, abs=1e-12)


def test_predictions_of_other_samples_are_worse_than_perfect_ones(case):
    if case.metric.direction == "same":
        pytest.skip("no way is better")
    moved = [*case.outputs[1:], case.outputs[0]]
    perfect, wrong = (case.metric.value(np.concatenate(r)) for r in (case.records(), case.records(outputs=moved)))
    assert wrong < perfect if case.metric.direction == "higher" else wrong > perfect


def test_weights_count_rows_as_repeating_them_does(case):
    records = np.concatenate([*case.records(), *case.records(outputs=[*case.outputs[1:], case.outputs[0]])])
    weights = np.random.default_rng(0).integers(0, 4, size=(5, len(records))).astype(np.float64)
    weights[:, :2] = 1
    wanted = [case.metric.value(np.repeat(records, row.astype(int), axis=0)) for row in weights]
    assert weighted_values(case.metric, records, weights) == pytest.approx(wanted, rel=1e-9)
    if isinstance(case.metric, Weighted):
        assert case.metric.weighted(records, np.ones((1, len(records)))) == pytest.approx([case.metric.value(records)], rel=1e-12)


def test_a_baseline_against_itself_does_not_drop_and_passes_a_wide_gate(case):
    records = case.records()
    rows, groups = np.concatenate(records), np.repeat(np.arange(len(records)), [len(r) for r in records])
    rows, groups = np.tile(rows, (60, 1)), np.concatenate([groups + i * len(records) for i in range(60)])
    verdict = gate(case.metric, rows, candidate=rows, groups=groups, max_drop=0.1, resamples=200)
    assert verdict.drop == 0
    assert verdict.drop_lower <= 0 <= verdict.drop_upper
    assert verdict.decision == "pass"


def test_nan_in_an_output_gives_a_record_that_the_gate_refuses(case):
    broken = [dict(feed) for feed in case.outputs[0]]
    name = next(iter(broken[0]))
    broken[0][name] = np.full_like(broken[0][name], np.nan, dtype=np.float64)
    rows = np.concatenate(case.records())
    record = case.metric.record(broken, case.labels[0])
    if np.isfinite(record).all():
        assert case.metric.kind == "function", "only a user's function may make something finite of NaN"
        return
    candidate = np.concatenate([record, *case.records()[1:]])
    with pytest.raises(DataError, match=f"1 of {len(rows)} predictions of the candidate are not finite"):
        gate(case.metric, rows, candidate=candidate, groups=np.arange(len(rows)), max_drop=0.1)
