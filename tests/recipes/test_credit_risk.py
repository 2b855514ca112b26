"""The network of `credit-risk`, and what the recipe finds."""

import numpy as np
import pytest

from quant.data.load import load_data
from quant.data.samples import Sample
from quant.recipe.load import load_recipe
from quant.recipe.shipped import shipped

torch = pytest.importorskip("torch")

from recipes.credit_risk import build  # noqa: E402 - needs torch


def samples(count=600, width=5):
    rng = np.random.default_rng(3)
    features = rng.normal(size=(count, width)).astype(np.float32)
    return [Sample(i, ({"features": row},), int(row[0] > 0)) for i, row in enumerate(features)]


def weights(module):
    return b"".join(value.numpy().tobytes() for value in module.state_dict().values())


def test_the_same_samples_give_the_same_bytes_whatever_the_number_of_threads():
    threads = torch.get_num_threads()
    found = set()
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            torch.manual_seed(number)
            found.add(weights(build(samples(), hidden=(16, 8), epochs=2)))
            assert torch.get_num_threads() == number
    finally:
        torch.set_num_threads(threads)
    assert len(found) == 1


def test_other_samples_give_other_weights():
    assert weights(build(samples(), hidden=(8,), epochs=1)) != weights(build(samples()[:-1], hidden=(8,), epochs=1))


def test_training_leaves_torchs_random_numbers_alone():
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    build(samples(64), hidden=(4,), epochs=1)
    assert torch.equal(torch.rand(2), expected)


def test_it_learns_what_can_be_learned_and_gives_probabilities():
    known, fresh = samples(6000)[:5700], samples(6000)[5700:]
    module = build(known, hidden=(32,), epochs=10)
    with torch.no_grad():
        found = module(torch.from_numpy(np.stack([s.feeds[0]["features"] for s in fresh])))["probability"].numpy()
    assert found.shape == (300,)
    assert ((found > 0) & (found < 1)).all()
    assert np.mean((found > 0.5) == [s.label for s in fresh]) > 0.95


@pytest.mark.slow
@pytest.mark.network
def test_no_customer_is_trained_on_and_judged():
    loaded = load_recipe(shipped()["credit-risk"])
    roles = load_data(loaded.recipe.data, base=loaded.path, where=loaded.where).roles
    contents = {role: {entry.content for entry in samples.entries} for role, samples in roles.items()}
    assert {role: len(found) for role, found in contents.items()} == {"train": 20432, "calibration": 512, "evaluation": 9000}
    assert len(set.union(*contents.values())) == 20432 + 512 + 9000
    scaled = np.stack([sample.feeds[0]["features"] for sample in roles["train"]]).astype(np.float64)
    assert np.abs(scaled.mean(axis=0)).max() < 1e-5
    assert np.abs(scaled.std(axis=0) - 1).max() < 1e-4  # every column varies


@pytest.mark.slow
@pytest.mark.network
def test_fp32_ranks_as_well_as_such_a_network_does_on_other_splits():
    """AUC 0.7769 is known of such a network; four random splits gave 0.7757 to 0.7802 here."""
    from quant.api import evaluate

    found = evaluate("credit-risk")
    assert found["auc"] == pytest.approx(0.7769, abs=0.008)
    assert found["mean-score"] == pytest.approx(0.2212, abs=0.01)  # 22.12 % of the customers fail to pay
