"""What every estimator of sensitivity owes, whatever it does; run over the registry."""

import importlib.util
import math
from pathlib import Path

import pytest

from quant.core.sensitivity import SensitivityProfile
from quant.errors import PlanError
from quant.schemes import SCHEMES
from quant.sensitivity import ESTIMATORS

SPEC = importlib.util.spec_from_file_location("profiling_conformance", Path(__file__).parents[1] / "quant" / "sensitivity" / "profiling.py")
profiling = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(profiling)
GRAPHS = ["residual with relu", "attention", "depthwise conv", "grouped conv", "transposed conv", "gemm transB", "one input, two layers", "an if that captures"]
pytestmark = pytest.mark.parametrize("kind", ESTIMATORS.kinds())


def formats():
    """A scheme for each format that some scheme writes with calibration data alone."""
    kinds = [kind for kind in SCHEMES.kinds() if SCHEMES.get(kind).data == "calibration"]
    return {SCHEMES.get(kind).base: SCHEMES.make(kind) for kind in kinds}


def test_options_have_defaults_and_say_what_they_do(kind):
    options = ESTIMATORS.get(kind).Options
    assert options() == options.model_validate({})
    assert ESTIMATORS.get(kind).__doc__


@pytest.mark.parametrize("graph", GRAPHS)
def test_effects_are_finite_and_not_negative_for_every_candidate(kind, graph, tmp_path):
    found = profiling.profiled(profiling.zoo.ZOO[graph](), tmp_path, kind, schemes=formats())
    assert found.effects
    assert found.estimator == kind
    assert found.samples == profiling.SAMPLES
    assert all(math.isfinite(e.value) and e.value >= 0 and math.isfinite(e.standard_error) and e.standard_error >= 0 for e in (*found.effects, *found.joint))
    assert all(found.knows(e.layer, e.format) for e in found.effects)
    assert set(found.formats) == {e.format for e in found.effects}
    assert any(e.value > 0 for e in found.effects)


def test_the_same_bytes_come_out_whatever_the_number_of_threads(kind, tmp_path, monkeypatch):
    made = []
    for threads in ("1", "3"):
        monkeypatch.setenv("QUANT_THREADS", threads)
        made.append(profiling.profiled(profiling.zoo.ZOO["attention"](), tmp_path / threads, kind, schemes=formats()))
    assert made[0].to_json() == made[1].to_json()
    made[0].save(tmp_path / "profile.json")
    assert SensitivityProfile.load(tmp_path / "profile.json").digest == made[1].digest


def test_a_graph_in_which_nothing_can_be_quantized_is_refused(kind, tmp_path):
    with pytest.raises(PlanError, match="nothing to profile"):
        profiling.profiled(profiling.zoo.ZOO["matmul with the weight on the left"](), tmp_path, kind)


def test_only_the_layers_that_are_asked_for_are_measured(kind, tmp_path):
    found = profiling.profiled(profiling.zoo.ZOO["attention"](), tmp_path, kind, layers=["op:MatMul"])
    assert found.layers
    with pytest.raises(PlanError, match="matches no layer"):
        profiling.profiled(profiling.zoo.ZOO["attention"](), tmp_path, kind, layers=["nothing"])
