"""What a pattern that matches nothing is told."""

import onnx_ir as ir
import pytest

from quant.errors import PlanError
from quant.graph.layers import Layer, match_layers


@pytest.mark.parametrize(("pattern", "hint"), [("Gemm", "operators are written op:Gemm"), ("op:gemm", "operators are written op:Gemm"), ("op:Lstm", "op:Gemm")])
def test_a_pattern_that_means_an_operator_is_told_how_to_write_it(pattern, hint):
    layers = [Layer("fc", "Gemm", ir.node("Gemm", []), 1, 0, (0,))]
    with pytest.raises(PlanError, match="matches no layer") as told:
        match_layers(layers, [pattern])
    assert hint in told.value.hint
