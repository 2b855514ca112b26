"""The digits and networks of `digits-qat`, and what the recipe finds."""

import json
from pathlib import Path

import numpy as np
import pytest

from quant.data.samples import Sample
from quant.errors import DataError
from recipes.digits import build, digits

torch = pytest.importorskip("torch")


def samples(count=96):
    """Images of bars: the digit is where the bar stands."""
    random = np.random.default_rng(0)
    found = []
    for i in range(count):
        image = random.random((1, 28, 28), np.float32) / 4
        image[0, :, 2 * (i % 10) + 4] = 1
        found.append(Sample(i, ({"image": image},), i % 10))
    return found


def weights(module):
    return b"".join(value.numpy().tobytes() for value in module.state_dict().values())


@pytest.fixture
def folder(tmp_path):
    for digit in range(10):
        (tmp_path / f"{digit}.json").write_text(json.dumps({"data": [digit / 255] * 784 * (digit + 1)}))
    return tmp_path


def test_each_image_has_the_digit_of_its_file(folder):
    found = digits(str(folder))
    assert found["image"].shape == (55, 1, 28, 28)
    assert found["image"].dtype == np.float32
    assert np.bincount(found["digit"]).tolist() == list(range(1, 11))
    np.testing.assert_array_equal(found["image"][:, 0, 5, 7], (found["digit"] / 255).astype(np.float32))


@pytest.mark.parametrize("text", [None, "{", "[]", '{"data": [1, 2]}'], ids=["no file", "no JSON", "a list", "no image"])
def test_a_file_without_images_is_an_error_that_names_it(folder, text):
    file = folder / "3.json"
    file.unlink() if text is None else file.write_text(text)
    with pytest.raises(DataError, match=r"3.json: no images of 28 x 28 numbers\nhint: each digit has a file"):
        digits(str(folder))


@pytest.mark.parametrize(("network", "parameters"), [("cnn", 105_866), ("vit", 105_418)])
def test_the_same_samples_give_the_same_bytes_whatever_the_number_of_threads(network, parameters):
    threads = torch.get_num_threads()
    found = set()
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            torch.manual_seed(number)
            module = build(samples(), network=network, epochs=1)
            found.add(weights(module))
            assert torch.get_num_threads() == number
    finally:
        torch.set_num_threads(threads)
    assert len(found) == 1
    assert sum(parameter.numel() for parameter in module.parameters()) == parameters
    assert not module.training
    assert module(torch.zeros(2, 1, 28, 28))["logits"].shape == (2, 10)


@pytest.mark.slow
@pytest.mark.network
def test_training_brings_back_what_few_bits_take(tmp_path):
    """PTQ in three bits loses points; QAT reaches 97.5 %, and in four bits FP32 less 0.3 points; INT8 passes the gate."""
    import quant

    run = quant.run("digits-qat", output=tmp_path / "out")
    fp32 = run.report.baseline.metrics["accuracy"]
    found = {candidate.scheme: candidate for candidate in run.report.candidates}
    assert fp32 > 0.975
    assert found["w3a3-untrained"].metrics["accuracy"] < 0.965
    assert found["w3a3"].metrics["accuracy"] >= 0.975
    assert found["w4a4"].metrics["accuracy"] >= fp32 - 0.003
    assert found["int8-qat"].verdict == "pass"
    assert {row.runs for row in found["int8-qat"].audit} == {"int8"}


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("network", ["cnn", "vit"])
@pytest.mark.parametrize("target", ["onnxruntime", "openvino"])
def test_the_deployed_artifact_gives_the_predictions_of_the_module_that_was_trained(network, target, tmp_path, record_property):
    """Engines sum in integers and the module in floats, so codes beside a tie may differ: in one prediction of a thousand at most."""
    import quant
    from quant.core.documents import Artifact
    from quant.data.load import load_data
    from quant.recipe.load import load_recipe
    from quant.targets import TARGETS

    if not (here := TARGETS.make(target).available()).available:
        pytest.skip(here.reason)
    loaded = load_recipe(Path("digits-qat"))
    roles = load_data(loaded.recipe.data, base=loaded.path, where=loaded.where).roles
    overrides = [f"targets=[{target}]", f"model.arguments={{network: {network}, epochs: 4}}"]
    module = quant.prepare_qat(None, "digits-qat", scheme="int8-qat", overrides=overrides)
    optimizer = torch.optim.Adam(module.parameter_groups())
    x, y = arrays(roles["train"])
    for rows in torch.split(torch.arange(1280), 64):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(x[rows]), y[rows]).backward()
        optimizer.step()
    quant.convert(module, output=tmp_path)
    session = TARGETS.make(target).session(Artifact.load(tmp_path / "artifact.json"), tmp_path, threads=1)
    x, y = arrays(roles["evaluation"])
    with torch.no_grad():
        ours = torch.cat([module(part).argmax(dim=1) for part in torch.split(x, 100)]).numpy()
    theirs = np.concatenate([session.run({"image": part.numpy()})["logits"].argmax(axis=1) for part in torch.split(x, 100)])
    differing = int((ours != theirs).sum())
    record_property("figure", f"{network} in INT8 on {target}: {differing} of {len(x)} predictions differ from the trained module's")
    assert differing <= len(x) / 1000
    fp32 = quant.evaluate("digits-qat", overrides=overrides[1:])["accuracy"]
    assert np.mean(theirs == y.numpy()) >= fp32 - loaded.recipe.gate[0].max_drop


def arrays(samples):
    """All images and digits."""
    found = list(samples)
    return torch.from_numpy(np.stack([s.feeds[0]["image"] for s in found])), torch.tensor([s.label for s in found])
