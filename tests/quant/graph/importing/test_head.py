import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper
from sklearn.linear_model import LogisticRegression

from quant.errors import DataError, ModelError
from quant.graph.importing.head import fit_linear_probe
from quant.graph.model import read_model, signature, write_model
from quant.graph.runtime import Runtime
from quant.recipe.schema import Head

node = helper.make_node


@pytest.fixture
def encoder(build, rng, tmp_path):
    """A model that gives embeddings [N, 5] of inputs [N, 4]; one of its values is called `logits`."""
    weights = {"w": rng.normal(size=(4, 5)).astype("float32")}
    nodes = [node("MatMul", ["x", "w"], ["logits"], name="body"), node("Tanh", ["logits"], ["embedding"], name="act")]
    return write_model(ir.from_proto(build(nodes, {"x": ["N", 4]}, {"embedding": ["N", 5]}, weights)), tmp_path / "encoder")


def _samples(rng, encoder, classes, count=120):
    x = rng.normal(size=(count, 4)).astype("float32")
    scores = x @ rng.normal(size=(4, classes))
    return x, Runtime(encoder).run({"x": x})["embedding"], np.argmax(scores, axis=1)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_softmax_of_the_fused_logits_is_what_scikit_learn_predicts(encoder, rng, tmp_path, classes):
    x, embeddings, labels = _samples(rng, encoder, classes)
    report = fit_linear_probe(encoder, tmp_path / "out", Head(C=3.0), embeddings, labels)
    expected = LogisticRegression(C=3.0, max_iter=1000).fit(embeddings.astype(np.float64), labels)
    found = Runtime(tmp_path / "out" / "model.onnx", optimize=False).run({"x": x})
    assert list(found) == ["embedding", "logits"]
    np.testing.assert_array_equal(found["embedding"], embeddings)
    powers = np.exp(found["logits"].astype(np.float64))
    np.testing.assert_allclose(powers / powers.sum(axis=1, keepdims=True), expected.predict_proba(embeddings.astype(np.float64)), atol=2e-5)
    assert report.accuracy == expected.score(embeddings.astype(np.float64), labels)
    assert (report.classes, report.dimension, report.samples, report.output) == (classes, 5, 120, "embedding")
    assert report.max_abs_error < 1e-4
    assert report.notes == ()


def test_the_logits_of_two_classes_are_opposites(encoder, rng, tmp_path):
    x, embeddings, labels = _samples(rng, encoder, 2)
    fit_linear_probe(encoder, tmp_path / "out", Head(), embeddings, labels)
    logits = Runtime(tmp_path / "out" / "model.onnx").run({"x": x})["logits"]
    np.testing.assert_allclose(logits[:, 0], -logits[:, 1], rtol=0, atol=1e-6)


def test_the_graph_keeps_its_names_and_gets_named_nodes(encoder, rng, tmp_path):
    _, embeddings, labels = _samples(rng, encoder, 3)
    fit_linear_probe(encoder, tmp_path / "out", Head(), embeddings, labels)
    model = read_model(tmp_path / "out" / "model.onnx")
    assert [(n.op_type, n.name) for n in model.graph] == [("MatMul", "body"), ("Tanh", "act"), ("MatMul", "head.MatMul"), ("Add", "head.Add")]
    assert [str(s) for s in signature(model).outputs] == ["embedding: float32 [N, 5]", "logits: float32 [N, 3]"]
    assert {"w", "head.weight", "head.bias"} == set(model.graph.initializers)


def test_the_same_samples_give_the_same_bytes(encoder, rng, tmp_path):
    _, embeddings, labels = _samples(rng, encoder, 4)
    files = [fit_linear_probe(encoder, tmp_path / name, Head(), embeddings, labels) and (tmp_path / name / "model.onnx").read_bytes() for name in "ab"]
    assert files[0] == files[1]


def test_a_fit_that_stops_early_is_noted(encoder, rng, tmp_path):
    _, embeddings, labels = _samples(rng, encoder, 3)
    report = fit_linear_probe(encoder, tmp_path / "out", Head(C=1e4, max_iter=2), embeddings, labels)
    assert report.notes == ("the fit stopped at max_iter=2 before it converged; raise model.head.max_iter",)
    assert report.iterations == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e, y: (e, np.zeros_like(y)), "one class only: 0"),
        (lambda e, y: (np.where(np.arange(len(e))[:, None] == 7, np.nan, e), y), r"embedding of sample 7 is not finite"),
        (lambda e, y: (e[:, :, None], y), r"embeddings have shape \[120, 5, 1\]"),
        (lambda e, y: (e, y[:-1]), r"120 embeddings but labels of shape \[119\]"),
        (lambda e, y: (e, y.astype(np.float64)), "labels are float64, not classes"),
        (lambda e, y: (e, np.where(y == 1, 3, y)), "class 1 has no sample"),
        (lambda e, y: (e, y - 1), "label -1 is negative"),
    ],
    ids=["one class", "nan", "rank", "length", "float labels", "missing class", "negative"],
)
def test_samples_that_cannot_be_fitted_are_refused(encoder, rng, tmp_path, change, message):
    _, embeddings, labels = _samples(rng, encoder, 3)
    with pytest.raises(DataError, match=message):
        fit_linear_probe(encoder, tmp_path / "out", Head(), *change(embeddings, labels))


@pytest.mark.parametrize(
    ("outputs", "head", "message"),
    [
        ({"a": ["N", 4], "b": ["N", 4]}, Head(), r"several outputs: a, b[\s\S]*model.head.output"),
        ({"a": ["N", 4], "b": ["N", 4]}, Head(output="aa"), r"no output 'aa'\nhint: did you mean 'a'"),
        ({"a": ["N", 2, 2]}, Head(), r"output 'a' has shape .*; embeddings are \[batch, dimension\]"),
        ({"logits": ["N", 4]}, Head(), "has an output 'logits' already"),
    ],
    ids=["several", "unknown", "rank", "taken"],
)
def test_models_that_cannot_be_given_a_head_are_refused(build, tmp_path, outputs, head, message):
    nodes = [node("Relu", ["x"], [name]) for name in outputs]
    path = write_model(ir.from_proto(build(nodes, {"x": next(iter(outputs.values()))}, outputs)), tmp_path / "encoder")
    with pytest.raises(ModelError, match=message):
        fit_linear_probe(path, tmp_path / "out", head, np.zeros((4, 4), np.float32), np.array([0, 1, 0, 1]))


def test_one_of_several_outputs_can_hold_the_embeddings(build, rng, tmp_path):
    nodes = [node("Relu", ["x"], ["a"]), node("Neg", ["x"], ["b"])]
    path = write_model(ir.from_proto(build(nodes, {"x": ["N", 4]}, {"a": ["N", 4], "b": ["N", 4]})), tmp_path / "encoder")
    x = rng.normal(size=(40, 4)).astype("float32")
    labels = (x[:, 0] > 0).astype(np.int64)
    fit_linear_probe(path, tmp_path / "out", Head(output="b"), -x, labels)
    found = Runtime(tmp_path / "out" / "model.onnx").run({"x": x})
    assert list(found) == ["a", "b", "logits"]
    assert np.mean(np.argmax(found["logits"], axis=1) == labels) > 0.9
