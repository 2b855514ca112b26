"""Metrics that read text take their alphabet from the model."""

import numpy as np
import onnx
import pytest

from quant.engine.bind import bind
from quant.engine.metadata import with_metadata
from quant.errors import ModelError
from quant.recipe.load import load_recipe

RECIPE = """version: 1
name: r
model: {source: m.onnx}
data: {source: d.csv, label: {column: text}}
evaluation:
  metrics:
    - cer
    - {kind: exact-match, metadata_key: letters}
    - {kind: wer, alphabet: "xy"}
"""


@pytest.fixture
def files(tmp_path):
    """A recipe, and a way to write its model with some metadata."""
    (tmp_path / "r.yaml").write_text(RECIPE, encoding="utf-8")

    def model(**metadata):
        value = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["T", 3]) for name in ("x", "y")]
        made = onnx.helper.make_model(onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:]))
        onnx.helper.set_model_props(made, metadata)
        onnx.save(made, tmp_path / "m.onnx")
        return tmp_path / "m.onnx"

    return bind(load_recipe(tmp_path / "r.yaml"), trust_code=False), model


def test_the_alphabet_is_that_of_the_metadata_or_of_the_recipe(files):
    bound, model = files
    metrics = with_metadata(bound, model(character="a\nb", letters="c\nd")).metrics
    scores = np.float32([[0, 1, 0], [1, 0, 0], [0, 0, 1]])  # first symbol, blank, second symbol
    assert [metric.read([{"y": scores}], "")[0] for metric in metrics.values()] == ["ab", "cd", "xy"]
    assert list(metrics) == list(bound.metrics)


def test_a_model_without_such_metadata_is_told_with_the_line_and_what_there_is(files):
    bound, model = files
    with pytest.raises(ModelError, match=r"r\.yaml:8: metric exact-match: the model's metadata have no 'letters'") as caught:
        with_metadata(bound, model(character="a\nb", letter="c"))
    assert "did you mean 'letter'?" in caught.value.hint
    with pytest.raises(ModelError, match=r"r\.yaml:7: metric cer: .* no 'character'") as caught:
        with_metadata(bound, model())
    assert "it has none at all" in caught.value.hint
