"""Losses, held to float64 NumPy and SciPy; and what is refused."""

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
import torch
from scipy.special import expit, log_softmax, softmax, xlogy

from quant.core.signature import Signature, TensorSpec
from quant.data.batches import Batch
from quant.errors import DataError, ModelError
from quant.twin.training.batches import Part
from quant.twin.training.losses import distillation, label_loss, log_scores, scores_of
from quant.twin.training.material import Material

RANDOM = np.random.default_rng(2)


def part(labels, filler=0):
    owners = tuple((i, 0) for i in range(len(labels)))
    return Part(Batch({}, owners, len(labels) + filler), tuple(labels))


def about(shape, **more):
    outputs = (TensorSpec("y", "float32", ("N", *shape)),)
    return Material(None, Signature((TensorSpec("x", "float32", ("N", 1)),), outputs), None, **more)


def graph(zoo, op=None):
    last = [zoo.node(op, "h", "y")] if op else [zoo.node("Identity", "h", "y")]
    return ir.from_proto(zoo.model([zoo.node("MatMul", "x w", "h"), *last], {"x": ["N", 2]}, {"y": None}, {"w": zoo.draw(2, 3)}))


def loss_of(zoo, labels, outputs, op=None, **more):
    made = label_loss(about(outputs.shape[1:], **more), graph(zoo, op), None, labels, outputs[0])
    return made, float(made({"y": torch.from_numpy(outputs.astype(np.float32))}, {}, part(labels)))


@pytest.mark.parametrize("op", [None, "Softmax", "LogSoftmax"])
def test_classes_are_judged_by_cross_entropy_whatever_the_output_holds(zoo, op):
    logits, labels = RANDOM.normal(size=(5, 4)), [0, 3, 1, 1, 2]
    outputs = {None: logits, "Softmax": softmax(logits, axis=1), "LogSoftmax": log_softmax(logits, axis=1)}[op]
    made, found = loss_of(zoo, labels, outputs, op)
    assert found == pytest.approx(-log_softmax(logits, axis=1)[range(5), labels].sum(), rel=1e-5)
    assert made.words == "cross-entropy of output 'y' against labels"


def test_classes_of_every_step_are_averaged_over_the_steps(zoo):
    logits, labels = RANDOM.normal(size=(2, 3, 4)), [np.array([0, 3, 1]), np.array([1, 2, 2])]
    _, found = loss_of(zoo, labels, logits)
    expected = sum(-log_softmax(logits[r, t])[labels[r][t]] / 3 for r in range(2) for t in range(3))
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("op", [None, "Sigmoid"])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_yes_or_no_in_one_column_is_judged_by_its_probability(zoo, op, shape):
    logits, labels = RANDOM.normal(size=(6, *shape)), [0, 1, 1, 0, 1, 0]
    p = expit(logits.reshape(-1))
    made, found = loss_of(zoo, labels, expit(logits) if op else logits, op)
    assert found == pytest.approx(-sum(np.log(p[i] if y else 1 - p[i]) for i, y in enumerate(labels)), rel=1e-5)
    assert made.task == "yes or no"


def test_numbers_are_judged_by_squared_error_as_a_share_of_their_variance(zoo):
    outputs, labels = RANDOM.normal(size=(5, 1)), [0.5, -1.25, 3.0, 2.0, 0.0]
    made, found = loss_of(zoo, labels, outputs)
    assert found == pytest.approx(np.square(outputs[:, 0] - labels).sum() / np.var(labels), rel=1e-5)
    assert made.words == "squared error of output 'y' against labels"
    assert loss_of(zoo, [1, 5, 3, 2, 2], outputs)[0].task == "numbers"  # whole numbers, but no yes or no


@pytest.mark.parametrize(
    ("labels", "shape", "message"),
    [
        (["cat", "dog"], (2, 3), r"labels such as 'cat' are nothing that a loss can be taken of\nhint: `loss: distillation`"),
        ([0, 5], (2, 3), r"label 5 is beyond the 3 classes of output 'y'\nhint: name another with `output`"),
        ([0.5, 1.5], (2, 3), r"labels of shape \[\] do not fit output 'y', which is \[3\] for each sample\nhint: name another"),
    ],
)
def test_labels_that_do_not_fit_are_refused(zoo, labels, shape, message):
    with pytest.raises(DataError, match=message):
        loss_of(zoo, labels, np.zeros(shape))


def test_rows_that_fill_a_fixed_batch_do_not_count(zoo):
    logits = RANDOM.normal(size=(5, 4)).astype(np.float32)
    made = label_loss(about((4,)), graph(zoo), None, [1, 2], logits[0])
    assert float(made({"y": torch.from_numpy(logits)}, {}, part([1, 2], filler=3))) == pytest.approx(
        float(made({"y": torch.from_numpy(logits[:2])}, {}, part([1, 2]))), rel=1e-6
    )


def test_a_teacher_of_classes_is_followed_by_the_divergence_at_a_temperature(zoo):
    ours, theirs = RANDOM.normal(size=(2, 6, 4)).astype(np.float32)
    made = distillation(about((4,), classes=frozenset({"y"})), graph(zoo), (), [{"y": theirs}], weight=0.0, temperature=3.0)
    found = float(made({"y": torch.from_numpy(ours)}, {"y": theirs}, part([None] * 6)))
    p, q = softmax(theirs.astype(float) / 3, axis=1), softmax(ours.astype(float) / 3, axis=1)
    assert found == pytest.approx(9 * float((xlogy(p, p) - xlogy(p, q)).sum()), rel=1e-4)
    assert made.words == "distillation from FP32: KL divergence of output 'y'"


def test_a_teacher_of_anything_else_is_followed_by_squared_error_as_a_share_of_its_square(zoo):
    ours, theirs = RANDOM.normal(size=(2, 6, 4)).astype(np.float32)
    made = distillation(about((4,)), graph(zoo), ("h",), [{"y": theirs, "h": 2 * theirs}], weight=0.5, temperature=3.0)
    found = float(made({"y": torch.from_numpy(ours), "h": torch.from_numpy(theirs)}, {"y": theirs, "h": 2 * theirs}, part([None] * 6)))
    square = np.square(theirs.astype(float)).mean()
    assert found == pytest.approx(np.square(ours - theirs).mean(axis=1).sum() / square + 0.5 * 6 / 4, rel=1e-4)
    assert made.words == "distillation from FP32: squared error of output 'y', squared error of what 1 of its layers give"


def test_a_model_without_a_float_output_has_nothing_to_distil(zoo):
    whole = replace(about((4,)), signature=Signature((), (TensorSpec("y", "int64", ("N",)),)))
    with pytest.raises(ModelError, match=r"the model has no float output, so there is nothing to distil\nhint: give labels with `data.splits.train`"):
        distillation(whole, graph(zoo), (), [], weight=0.0, temperature=1.0)
    with pytest.raises(ModelError, match="the model has no float output, so nothing can be learned from labels"):
        label_loss(whole, graph(zoo), None, [0], np.zeros(3))


def test_a_teacher_that_is_not_finite_is_refused(zoo):
    with pytest.raises(ModelError, match="'y' of the FP32 model is not finite on the training samples"):
        distillation(about((4,)), graph(zoo), (), [{"y": np.float32([[1, np.inf]])}], weight=0.0, temperature=1.0)


def test_what_an_output_holds_is_told_by_what_makes_it(zoo):
    assert [scores_of(graph(zoo, op), "y") for op in (None, "Softmax", "LogSoftmax", "Sigmoid")] == ["logits", "probabilities", "logarithms", "sigmoid"]


def test_probabilities_of_nothing_and_of_one_stay_finite():
    assert torch.isfinite(log_scores(torch.tensor([0.0, 1.0]), "sigmoid")).all()
    assert torch.isfinite(log_scores(torch.tensor([0.0, 1.0]), "probabilities")).all()
