import onnx_ir as ir
import pytest

from quant.errors import TargetError
from quant.targets import Shapes
from quant.targets.nvidia.options import Profile
from quant.targets.nvidia.profiles import resolve_profile


def model(*shape):
    x = ir.Value(name="x", shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.FLOAT))
    relu = ir.node("Relu", [x], name="relu")
    return ir.Model(ir.Graph([x], relu.outputs, nodes=[relu], opset_imports={"": 21}), ir_version=10)


def profile(least, usual, largest):
    return {"x": Profile(min=least, opt=usual, max=largest)}


DATA = {"x": Shapes((1, 8), (4, 20), (16, 40))}


def test_a_profile_that_takes_none_of_the_data_is_refused():
    """Accuracy would be that of samples which the engine does not take."""
    said = r"the profile of input 'x', \[1, 41\] to \[16, 64\], takes none of the data\nhint: theirs are \[1, 8\] to \[16, 40\]"
    with pytest.raises(TargetError, match=said):
        resolve_profile(model("N", "L"), profile((1, 41), (1, 64), (16, 64)), DATA)
    with pytest.raises(TargetError, match=r"\[1, 1\] to \[1, 7\], takes none of the data"):
        resolve_profile(model("N", "L"), profile((1, 1), (1, 7), (1, 7)), DATA)


@pytest.mark.parametrize("given", [((1, 40), (1, 64), (1, 64)), ((1, 1), (1, 8), (1, 8)), ((1, 16), (1, 16), (1, 16)), ((32, 8), (32, 20), (64, 40))])
def test_one_that_takes_some_goes_before_the_shapes_of_the_data_and_so_does_its_batch(given):
    assert resolve_profile(model("N", "L"), profile(*given), DATA) == {"x": Shapes(*given)}


def test_what_the_recipe_leaves_out_comes_from_the_data_and_what_is_fixed_needs_nothing():
    assert resolve_profile(model("N", "L"), {}, DATA) == DATA
    assert resolve_profile(model(1, 8), {}, {}) == {}
