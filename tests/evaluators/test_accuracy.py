import numpy as np
import pytest

from evaluators import METRICS
from quant.errors import DataError


def records(outputs, label, **options):
    return METRICS.make("accuracy", options).record(outputs, label)


def feed(values, name="logits"):
    return {name: np.asarray(values, dtype=np.float32)}


def test_the_highest_score_decides():
    assert records([feed([0.1, 2, -1])], 1).tolist() == [[1]]
    assert records([feed([0.1, 2, -1])], 0).tolist() == [[0]]


def test_a_named_output_is_read_instead_of_the_first():
    outputs = [feed([1, 0], "a") | feed([0, 1], "b")]
    assert records(outputs, 0).tolist() == [[1]]
    assert records(outputs, 0, output="b").tolist() == [[0]]
    with pytest.raises(DataError, match=r"no output 'lgits'\nhint: did you mean 'logits'"):
        records([feed([1, 0])], 0, output="lgits")


def test_one_probability_is_compared_with_a_half_and_one_logit_with_the_threshold():
    assert records([feed([0.6])], 1).tolist() == [[1]]
    assert records([feed([0.4])], 1, threshold=0).tolist() == [[1]]
    with pytest.raises(DataError, match=r"-3 is no probability\nhint: set threshold: 0"):
        records([feed([-3])], 1)


def test_a_sequence_has_a_row_for_each_label():
    steps = [feed([0.9]), feed([0.2]), feed([0.7])]
    assert records(steps, np.array([1, 0, 0])).tolist() == [[1], [1], [0]]
    tokens = [feed([[2, 0], [0, 2], [1, 3]])]
    assert records(tokens, np.array([0, 1, 0])).tolist() == [[1], [1], [0]]
    assert records(tokens, np.array([0, -100, 0]), ignore=-100).tolist() == [[1], [0]]


def test_classes_may_lie_on_another_axis():
    mask = np.zeros((2, 2, 3), dtype=np.float32)
    mask[1, :, 2] = 1
    assert records([{"mask": mask}], np.array([[0, 0, 1], [0, 1, 1]]), axis=0)[:, 0].tolist() == [1, 1, 1, 1, 0, 1]


def test_integer_outputs_are_predicted_classes():
    assert records([{"label": np.array(7, dtype=np.int64)}], 7).tolist() == [[1]]


@pytest.mark.parametrize(
    ("outputs", "label", "message"),
    [
        ([feed(np.zeros(10))], 12, "label 12 but 10 classes"),
        ([feed([0.3])], 2, "label 2 but 2 classes"),
        ([feed(np.zeros((4, 10)))], 1, r"shape \[4, 10\] does not go with 1 label"),
        ([feed([1, 2]), feed([1, 2, 3])], np.array([0, 1]), "different shapes over the feeds"),
    ],
    ids=["class beyond logits", "class beyond two", "several rows", "ragged feeds"],
)
def test_outputs_and_labels_that_do_not_fit_are_refused(outputs, label, message):
    with pytest.raises(DataError, match=message):
        records(outputs, label)


def test_value_is_scikit_learns():
    from sklearn.metrics import accuracy_score

    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(50, 4)), rng.integers(0, 4, 50)
    rows = np.concatenate([records([feed(x)], int(y)) for x, y in zip(logits, labels, strict=True)])
    assert METRICS.make("accuracy").value(rows) == accuracy_score(labels, logits.argmax(1))
