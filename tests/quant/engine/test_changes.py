"""What changes of format cost, measured by themselves and in runs of a model."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from quant.core.costs import ConversionTimes, EngineProfile, KernelTime
from quant.engine.mixing.changes import SIZES, change, change_times
from quant.engine.mixing.pricing import _conversions, _unseen
from quant.targets import TARGETS, Profiles

KINDS = [kind for kind in TARGETS.kinds() if isinstance(TARGETS.make(kind), Profiles)]
ALONE = ConversionTimes(enter=((100, 1.0),), leave=((100, 2.0),))


def profile(*kernels):
    return EngineProfile(target="engine", scheme="int8", machine="", runs=1, total_ms=9.0, kernels=kernels)


@pytest.fixture(params=KINDS)
def engine(request):
    found = TARGETS.make(request.param)
    if not found.available().available:
        pytest.skip(found.available().reason)
    return found


def meaning(model):
    """What runs a graph as ONNX means it; the evaluator has these operators as of operator set 19, where they mean the same."""
    proto = ir.to_proto(model)
    proto.opset_import[0].version = 19
    return ReferenceEvaluator(onnx.load_from_string(proto.SerializeToString()))


def test_the_graph_quantizes_and_the_other_brings_it_back(engine):
    """By hand: -2, 0 and 2 in steps of 1/32 are -64, 0 and 64, from the zero point on."""
    into, back = (meaning(change(engine.dialect, 3, into=way)) for way in (True, False))
    codes = into.run(None, {"x": np.array([[-2.0, 0.0, 2.0]], np.float32)})[0]
    zero = 0 if codes.dtype == np.int8 else 128
    assert codes.astype(int).tolist() == [[zero - 64, zero, zero + 64]]
    assert back.run(None, {"x": codes})[0].tolist() == [[-2.0, 0.0, 2.0]]


def test_engines_tell_what_it_takes_and_more_takes_longer(engine):
    found = change_times(engine, threads=1, runs=5)
    for way in (found.enter, found.leave):
        assert [size for size, _ in way] == list(SIZES)
        assert all(ms > 0 for _, ms in way)
        assert way[-1][1] > way[0][1], "a million elements against a thousand"


def test_what_a_run_shows_is_taken_from_it_and_the_rest_from_a_quantizer_by_itself():
    seen = KernelTime(kernel="q", op="QuantizeLinear", ms=0.5, converts="x", codes=True, elements=1000)
    shown = profile(seen, KernelTime(kernel="conv", op="QLinearConv", ms=1.0, layers=("conv",), codes=True, elements=10))
    assert _unseen({"fp32": profile(), "int8": shown}) == (("int8", "out of"),)
    found = _conversions(shown, ALONE)
    assert found.enter[0] == (1000, pytest.approx(0.5))
    assert found.leave == ALONE.leave


def test_formats_of_weights_alone_change_nothing():
    weights = profile(KernelTime(kernel="product", op="MatMulNBits", ms=1.0, layers=("fc",), elements=10))
    assert _unseen({"fp32": profile(), "int4": weights}) == ()


def test_what_was_not_measured_anywhere_is_estimated():
    """5 bytes an element at 8 GB a second: 0.625 ms for a million."""
    assert _conversions(profile(), None).enter[1] == (1_000_000, pytest.approx(0.625))
