"""A training loop of the user's own between `quant.prepare_qat` and `quant.convert`."""

import numpy as np
import pytest

import quant
from quant.errors import ModelError, RecipeError
from quant.graph.runtime import Runtime

torch = pytest.importorskip("torch")


@pytest.fixture
def network(digits):
    """The network of the project as a torch module, with a layer of batch normalization that has seen data."""

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.BatchNorm1d(48), torch.nn.ReLU(), torch.nn.Linear(48, 10))

        def forward(self, x):
            return {"logits": self.layers(x)}

    module = Network()
    with torch.no_grad():
        for place, name in ((0, "0"), (3, "1")):
            module.layers[place].weight.copy_(torch.from_numpy(digits.weights[f"w{name}"].T))
            module.layers[place].bias.copy_(torch.from_numpy(digits.weights[f"b{name}"]))
    return module.train()


def recipe(project, **scheme):
    return project.write({"schemes": ["fp16", {"kind": "int8-qat", **scheme}]})


def accuracy(run, digits):
    return float(np.mean(run(digits.x[900:]).argmax(axis=1) == digits.y[900:]))


def fit(module, digits, steps=60):
    optimizer = torch.optim.Adam(module.parameter_groups(learning_rate=2e-3, scale_learning_rate=5e-3))
    x, y = torch.from_numpy(digits.x[:900]), torch.from_numpy(digits.y[:900].astype(np.int64))
    for step in range(steps):
        rows = slice(step % 9 * 100, step % 9 * 100 + 100)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(x[rows]), y[rows]).backward()
        optimizer.step()


def test_a_module_is_trained_and_its_artifact_gives_the_same_predictions(project, network, digits, tmp_path):
    before = {name: value.clone() for name, value in network.state_dict().items()}
    module = quant.prepare_qat(network, recipe(project, bits=3))
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())

    def twin(x):
        with torch.no_grad():
            return module(torch.from_numpy(x)).numpy()

    untrained = accuracy(twin, digits)
    fit(module, digits)
    trained = accuracy(twin, digits)
    assert trained > untrained + 0.03
    artifact = quant.convert(module, output=tmp_path / "artifact")
    runtime = Runtime(tmp_path / "artifact" / artifact.main, optimize=False)
    [inputs] = runtime.inputs
    found = runtime.run({inputs: digits.x[900:]})
    [logits] = found.values()
    np.testing.assert_allclose(logits, twin(digits.x[900:]), atol=1e-3)
    again = quant.convert(module, output=tmp_path / "again")
    assert again.files == artifact.files


def test_an_eight_bit_artifact_is_audited_like_any_other(project, network, tmp_path):
    module = quant.prepare_qat(network, recipe(project), target="onnxruntime")
    quant.convert(module, output=tmp_path / "artifact")
    audited = quant.audit(tmp_path / "artifact", plan=tmp_path / "artifact" / "plan.json")
    assert len(audited.audit.rows) == 2
    assert audited.wrong == ()


def test_without_a_module_the_recipes_own_is_taken_and_its_state_can_be_kept(project, digits):
    module = quant.prepare_qat(None, recipe(project))
    assert (module.inputs, module.outputs) == (("x",), ("logits", "embedding"))
    found = module(x=torch.from_numpy(digits.x[:2]))
    assert {name: tuple(value.shape) for name, value in found.items()} == {"logits": (2, 10), "embedding": (2, 48)}
    kept = {name: value.clone() for name, value in module.state_dict().items()}
    with torch.no_grad():
        for group in module.parameter_groups():
            for parameter in group["params"]:
                parameter.add_(0.1)
    assert not torch.equal(module(torch.from_numpy(digits.x[:2]))["logits"], found["logits"])
    module.load_state_dict(kept)
    assert torch.equal(module(torch.from_numpy(digits.x[:2]))["logits"], found["logits"])


@pytest.mark.parametrize("wrong", [((), {}), ((1, 1), {}), ((1,), {"x": 1}), ((), {"y": 1})])
def test_it_takes_its_inputs_each_once(project, digits, wrong):
    module = quant.prepare_qat(None, recipe(project))
    x = torch.from_numpy(digits.x[:1])
    with pytest.raises(TypeError, match="takes the inputs x, each once"):
        module(*(x for _ in wrong[0]), **dict.fromkeys(wrong[1], x))


def test_a_recipe_without_a_scheme_that_trains_is_refused(project, network):
    with pytest.raises(RecipeError, match=r"recipe.yaml:\d+: no scheme of this recipe trains\nhint: add `- int8-qat` to `schemes`"):
        quant.prepare_qat(network, project.write({"schemes": ["int8"]}))
    with pytest.raises(RecipeError, match="'int8-qta' is no scheme of this recipe that trains\nhint: did you mean 'int8-qat'"):
        quant.prepare_qat(network, recipe(project), scheme="int8-qta")
    with pytest.raises(RecipeError, match="the recipe has no target 'onnx'"):
        quant.prepare_qat(network, recipe(project), target="onnx")


def test_a_model_that_remembers_is_refused(project, network):
    path = project.write({"schemes": ["int8-qat"], "model": {"state": {"h": "hn"}}})
    with pytest.raises(ModelError, match=r"the model remembers \(h\), and is not trained through time\nhint: use `int8`"):
        quant.prepare_qat(network, path)
