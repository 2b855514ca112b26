import logging
import sys
import warnings

import numpy as np
import pytest

from quant.core.quiet import quiet
from quant.errors import ModelError
from quant.graph.importing.torch_export import export, flat_outputs, run_torch
from quant.graph.model import signature

torch = pytest.importorskip("torch")


class Net(torch.nn.Module):
    """A conv, a batch norm and a linear layer; its linear layer's weight is transposed by the exporter."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.body = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3, bias=False), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
        self.fc = torch.nn.Linear(8, 3)
        self.body[1].running_mean.uniform_()

    def forward(self, x):
        return {"embedding": self.fc(self.body(x).mean(-1).transpose(1, 2).flatten(2).reshape(x.shape[0], -1, 8))}


@pytest.fixture(scope="module")
def exported():
    module = Net().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = export(module, {"x": torch.zeros(2, 1, 6, 7)}, {"x": {0: "batch"}}, outputs=["embedding"])
    return module, model


def test_weights_and_layers_are_called_by_their_modules(exported):
    _, model = exported
    assert {"body.0.weight", "fc.weight", "fc.bias"} <= set(model.graph.initializers)
    layers = {n.name: n.inputs[1].name for n in model.graph if n.op_type in {"Conv", "MatMul", "Gemm"}}
    assert layers == {"body.0.Conv": "body.0.weight", "fc.MatMul": "fc.weight"}


def test_inputs_and_outputs_are_called_as_asked_with_a_dynamic_batch(exported):
    _, model = exported
    found = signature(model)
    assert [str(s) for s in found.inputs] == ["x: float32 [batch, 1, 6, 7]"]
    assert [(s.name, s.shape[0]) for s in found.outputs] == [("embedding", "batch")]


def test_nothing_of_this_machine_is_left_in_the_graph(exported):
    _, model = exported
    assert not model.metadata_props
    assert not any(n.metadata_props or n.doc_string for n in model.graph)


def test_the_graph_computes_what_the_module_computes(exported, rng, reference):
    module, model = exported
    feed = {"x": rng.normal(size=(3, 1, 6, 7)).astype("float32")}
    np.testing.assert_allclose(reference(model, feed)[0], run_torch(module, [feed])[0]["embedding"], atol=1e-6)


def test_what_torch_cannot_export_is_told_in_its_words():
    class Branches(torch.nn.Module):
        def forward(self, x):
            return x * 2 if x.sum() > 0 else x

    with pytest.raises(ModelError, match=r"torch cannot export the module: \w+: .*[Dd]ata-dependent"):
        export(Branches(), {"x": torch.zeros(2, 3)}, {}, outputs=["y"])


def test_outputs_are_named_by_keys_or_by_position():
    t = torch.zeros(1)
    assert list(flat_outputs(t, ())) == ["output"]
    assert list(flat_outputs([t], ())) == ["output"]
    assert list(flat_outputs((t, t), ())) == ["output_0", "output_1"]
    assert list(flat_outputs({"logits": t, "loss": None, "x": t}, ["x"])) == ["logits", "x_output"]


@pytest.mark.parametrize("found", [3, None, (), {"a": [1]}], ids=str)
def test_what_is_no_tensor_is_refused(found):
    with pytest.raises(ModelError, match="the module returns"):
        flat_outputs(found, ())


def test_quiet_silences_warnings_records_and_prints_and_puts_all_back(capsys, caplog):
    before = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with quiet():
            warnings.warn("never mind", stacklevel=1)
            logging.getLogger("third.party").warning("never mind")
            print("never mind")
            print("never mind", file=sys.stderr)
    assert logging.root.manager.disable == before
    assert capsys.readouterr() == ("", "")
    assert not caplog.records
