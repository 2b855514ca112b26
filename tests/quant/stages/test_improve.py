"""improve: what helps is kept, what harms or lies is not, and it is told why."""

from dataclasses import replace

import numpy as np
import pytest

from calibrators import CALIBRATORS
from quant.core.formats import Range
from quant.graph.layers import find_layers
from quant.graph.model import read_model
from quant.graph.names import Names
from quant.graph.scaling import rows_in, write_rows
from quant.schemes import SCHEMES
from quant.stages.activations import gather_rows
from quant.stages.calibrate import calibrate
from quant.stages.improve import Work, improve
from quant.targets import TARGETS
from quant.transforms import TRANSFORMS, Change

DIALECT = TARGETS.make("onnxruntime").dialect
R = np.random.default_rng(3)
W = R.normal(size=(8, 5)).astype(np.float32)
LOUD = 40.0
"""How much larger the first channel is than the others."""


@pytest.fixture
def work(save, node, samples):
    """One product whose first input channel drowns the others, and what it is to be improved for."""
    weights = W.copy()
    weights[0] /= LOUD
    path, feeding = save([node("Relu", "x", "h"), node("MatMul", "h w", "y")], {"x": ["N", 8]}, {"y": ["N", 5]}, {"w": weights}, batch_size=4)
    model = read_model(path)
    scheme = SCHEMES.make("int8")
    plan = scheme.plan(model, find_layers(model), DIALECT)

    def made(seed, count):
        rows = np.random.default_rng(seed).uniform(-1, 1, size=(count, 8)) * np.array([LOUD] + [1] * 7)  # few samples show all of its range
        return samples([[{"x": row.astype(np.float32)}] for row in rows])

    calibration = made(0, 128)
    needs = scheme.needs(model, plan, DIALECT)
    table = calibrate(path, calibration, sorted(needs.ranges), feeding, magnitudes=False, digest="d", means=sorted(needs.means))
    return path, Work(scheme, plan, DIALECT, CALIBRATORS.make("minmax"), feeding, calibration, made(1, 32), "d"), table


class Fake:
    """A transform that does what it is told."""

    kind = "fake"
    bases = frozenset({"int8"})
    keeps_tensors = True

    def __init__(self, act, *, keeps_function=True):
        self.act, self.keeps_function = act, keeps_function

    def tensors(self, model, setting):
        del model, setting
        return frozenset({"h"})

    def apply(self, model, setting, seen):
        del setting
        return self.act(model, seen)


def halve_the_weight(model, seen):
    del seen
    [layer] = find_layers(model)
    write_rows(model.graph, layer, rows_in(layer) * 0.5, Names(model.graph))
    return Change({layer.name: "halved"})


def test_smoothing_a_loud_channel_is_kept_and_divides_the_error(work, tmp_path):
    path, asked, table = work
    found = improve(path, {"smoothquant": TRANSFORMS.make("smoothquant")}, asked, table=table, scratch=tmp_path / "s")
    [step] = found.story.steps
    assert step.kept
    assert step.after < step.before / 10  # the loud channel took 5 of 8 bits from the others: in the error's square, 2^10 at best
    assert "smoothed" in step.layers["MatMul_y"]
    assert found.path != path
    assert any(name.endswith("_smoothed") for name in found.table.statistics)


def test_a_change_that_harms_is_not_kept(work, tmp_path):
    path, asked, table = work
    found = improve(path, {"harm": Fake(halve_the_weight, keeps_function=False)}, asked, table=table, scratch=tmp_path / "s")
    [step] = found.story.steps
    assert (step.kept, step.layers, found.path) == (False, {}, path)
    assert step.reason.startswith("error multiplied by")
    assert step.after > 0.2  # half of every output is a quarter of its square


def test_one_that_claims_to_keep_the_function_and_does_not_is_found_out(work, tmp_path):
    path, asked, table = work
    found = improve(path, {"liar": Fake(halve_the_weight)}, asked, table=table, scratch=tmp_path / "s")
    [step] = found.story.steps
    assert (step.kept, step.after, found.path) == (False, None, path)
    assert step.reason == "it changes what the FP32 model computes, by 2.5e-01 of the square of its outputs"


def test_nothing_to_do_is_said(work, tmp_path):
    path, asked, table = work
    found = improve(path, {"idle": Fake(lambda *_: Change())}, asked, table=table, scratch=tmp_path / "s")
    [step] = found.story.steps
    assert (step.kept, step.after, step.reason) == (False, None, "it finds nothing to do")


def test_a_range_that_helps_is_written_and_the_model_stays(work, tmp_path):
    path, asked, table = work
    top = table.statistics["h"].maximum
    good, bad = Change({"MatMul_y": "cut"}, {"h": Range(0.0, top * 0.9)}), Change({"MatMul_y": "cut"}, {"h": Range(0.0, top * 0.01)})
    found = improve(path, {"bad": Fake(lambda *_: bad), "good": Fake(lambda *_: good)}, asked, table=table, scratch=tmp_path / "s")
    assert [step.kept for step in found.story.steps] == [False, found.story.steps[1].after < found.story.steps[1].before]
    assert found.path == path
    assert found.ranges in ({}, {"h": Range(0.0, top * 0.9)})


def test_rows_are_of_one_half_of_the_samples_and_extremes_of_the_other(work):
    path, asked, _ = work
    found = gather_rows(path, asked.calibration, ["h"], asked.feeding, rows=1000)["h"]
    h = np.maximum(np.stack([feeds[0]["x"] for feeds in asked.calibration.feeds]), 0)
    assert found.values.shape == (64, 8)
    np.testing.assert_array_equal(found.whole.high, h.max(axis=0))
    rest = np.array([row for row in h if not (found.values == row).all(axis=1).any()])
    assert len(rest) == 64
    np.testing.assert_array_equal(found.guide.high, rest.max(axis=0))
    np.testing.assert_array_equal(found.guide.low, rest.min(axis=0))


def test_rows_do_not_depend_on_threads(work, monkeypatch):
    path, asked, _ = work
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("QUANT_THREADS", threads)
        found.append(gather_rows(path, asked.calibration, ["h", "x"], asked.feeding, rows=20))
    for name in ("h", "x"):
        np.testing.assert_array_equal(found[0][name].values, found[1][name].values)


def test_transforms_see_the_grids_that_the_scheme_writes(work, tmp_path):
    path, asked, table = work
    seen = []

    class Spy(Fake):
        def apply(self, model, setting, seen_):
            seen.append((setting.dialect.activations.high, setting.dialect.weights.high))
            return super().apply(model, setting, seen_)

    for scheme in (asked.scheme, SCHEMES.make("int8-qat", {"bits": 3}), SCHEMES.make("int8-qat", {"bits": 4})):
        improve(path, {"spy": Spy(lambda *_: Change())}, replace(asked, scheme=scheme), table=table, scratch=tmp_path / "s")
    assert seen == [(DIALECT.activations.high, 127), (DIALECT.activations.high >> 5, 3), (DIALECT.activations.high >> 4, 7)]


@pytest.mark.parametrize(("given", "guiding"), [(400, 128), (90, 45), (3, 1), (1, 1)])
def test_where_the_same_samples_guide_and_judge_none_does_both(work, tmp_path, samples, given, guiding):
    path, asked, table = work
    rows = np.arange(given * 8, dtype=np.float32).reshape(given, 8) / given
    shared = samples([[{"x": row}] for row in rows])
    seen = []
    fake = Fake(lambda _model, found: seen.append(found.rows["h"].whole.high.max()) or Change())
    improve(path, {"fake": fake}, replace(asked, calibration=shared, search=shared), table=table, scratch=tmp_path / "s")
    assert seen == [rows[guiding - 1].max()]
    from quant.stages.improve import _judges

    judges = list(_judges(path, replace(asked, calibration=shared, search=shared)))
    assert len(judges) == min(256, max(given - guiding, 1))
    assert judges[0].feeds[0]["x"][0] == rows[guiding if given > 1 else 0, 0]


@pytest.mark.parametrize(("gain", "kept"), [(0.005, False), (0.02, True)])
def test_less_than_a_hundredth_of_the_error_is_nothing_to_keep_a_transform_for(work, tmp_path, monkeypatch, gain, kept):
    from quant.stages import improve as stage

    path, asked, table = work
    errors = iter([0.1, 0.1 * (1 - gain)])
    monkeypatch.setattr(stage, "_error", lambda *_: (next(errors), {}))
    change = Change({"MatMul_y": "cut"}, {"h": Range(0.0, 1.0)})
    [step] = improve(path, {"fake": Fake(lambda *_: change)}, asked, table=table, scratch=tmp_path / "s").story.steps
    assert step.kept == kept
    assert step.reason.endswith(": too little to be kept") != kept
