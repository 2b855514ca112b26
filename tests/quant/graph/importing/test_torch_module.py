import numpy as np
import pytest

from quant.data.samples import Sample
from quant.errors import ModelError
from quant.graph.importing.torch_module import build_module, export_feed

torch = pytest.importorskip("torch")

CODE = """
import torch

def linear(width=2):
    return torch.nn.Linear(width, 1)

def number():
    return 3

def fails(width=2):
    raise TypeError("width is odd")

def trained(train, scale=1.0):
    module = torch.nn.Linear(1, 1)
    module.bias.data[:] = scale * sum(float(sample.feeds[0]["x"][0]) * sample.label for sample in train)
    return module

def may_train(train=None):
    return torch.nn.Linear(1, 1 if train is None else len(train))
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "importing_case.py").write_text(CODE)
    return tmp_path


def _build(place, reference="nets/importing_case.py:linear", arguments=None, **options):
    return build_module(reference, arguments or {}, base=place, where="r.yaml:3", **{"trust_code": True, **options})


def test_a_file_beside_the_recipe_builds_the_module_with_its_arguments(place):
    module = _build(place, arguments={"width": 5})
    assert module.in_features == 5
    assert not module.training


def test_a_function_that_asks_for_train_gets_the_train_samples(place):
    samples = [Sample(i, ({"x": np.float32([i])},), 10) for i in range(4)]
    assert _build(place, "nets/importing_case.py:trained", train=samples).bias.item() == 60
    assert _build(place, "nets/importing_case.py:trained", {"scale": 0.5}, train=samples).bias.item() == 30
    assert _build(place, "nets/importing_case.py:may_train", train=samples).out_features == 4


def test_a_function_that_does_not_ask_for_train_gets_none(place):
    assert _build(place, arguments={"width": 5}, train=[]).in_features == 5


def test_a_function_that_trains_needs_a_train_split_unless_it_has_a_default(place):
    with pytest.raises(ModelError, match=r"r.yaml:3: .*:trained trains, and the recipe has no train split\nhint: add `data.splits.train`"):
        _build(place, "nets/importing_case.py:trained")
    assert _build(place, "nets/importing_case.py:may_train").out_features == 1


def test_a_wrong_argument_of_a_function_that_trains_is_told_without_the_samples(place):
    with pytest.raises(ModelError, match=r"cannot be called with model.arguments \{'scael': 2\}: .*\nhint: its arguments: train, scale"):
        _build(place, "nets/importing_case.py:trained", {"scael": 2}, train=[])


def test_random_weights_are_the_same_each_time_and_leave_torchs_numbers_alone(place):
    torch.manual_seed(11)
    expected = torch.rand(1)
    torch.manual_seed(11)
    first, second = _build(place), _build(place)
    assert torch.equal(first.weight, second.weight)
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trust_code": False}, r"r.yaml:3: .*importing_case:linear' names code that is not part of the toolkit\nhint: .*--trust-code"),
        ({"reference": "nets/importing_case.py:nothing"}, r"r.yaml:3: module 'importing_case' has no function 'nothing'"),
        ({"reference": "nets/nowhere.py:linear"}, r"r.yaml:3: no module 'nowhere'"),
        ({"reference": "nets/importing_case.py:number"}, r"r.yaml:3: .*number gives int, not a torch.nn.Module"),
        ({"arguments": {"wdith": 2}}, r"cannot be called with model.arguments \{'wdith': 2\}: .*\nhint: its arguments: width"),
        ({"reference": "nets/importing_case.py:fails"}, r"fails: width is odd\nhint: see model.arguments"),
    ],
    ids=["trust", "function", "module", "no module", "arguments", "type error"],
)
def test_what_cannot_be_built_is_said_with_its_place(place, options, message):
    with pytest.raises(ModelError, match=message):
        _build(place, **options)


class Two(torch.nn.Module):
    def forward(self, tokens, scale=None):
        return tokens if scale is None else tokens * scale


def _ones(*shape):
    return np.ones(shape, np.float32)


def test_the_batch_axis_and_axes_that_differ_are_dynamic():
    feed, dynamic = export_feed(Two(), [{"tokens": _ones(1, 4)}, {"tokens": _ones(3, 4)}], {}, where="w")
    assert dynamic == {"tokens": {0: "batch", 1: "tokens_1"}}
    assert feed["tokens"].shape == (2, 3, 4)


def test_a_batch_axis_in_the_middle_and_an_input_without_one():
    examples = [{"scale": _ones(4), "tokens": _ones(n, 4)} for n in (3, 2)]
    feed, dynamic = export_feed(Two(), examples, {"tokens": 1, "scale": None}, where="w")
    assert list(feed) == ["tokens", "scale"]
    assert feed["tokens"].shape == (3, 2, 4)
    assert feed["scale"].shape == (4,)
    assert dynamic == {"tokens": {0: "tokens_0", 1: "batch"}, "scale": {}}


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ([], "needs examples of its inputs"),
        ([{"token": _ones(2)}], r"the data gives 'token', which is no argument of the module's forward\nhint: did you mean 'tokens'"),
        ([{"scale": _ones(2)}], r"gives nothing for argument 'tokens'"),
        ([{"tokens": _ones(2)}, {"tokens": _ones(2, 2)}], r"different numbers of axes among the examples: \[1, 2\]"),
    ],
    ids=["none", "unknown", "missing", "ranks"],
)
def test_examples_must_fit_the_modules_arguments(examples, message):
    with pytest.raises(ModelError, match=message):
        export_feed(Two(), examples, {}, where="w")
