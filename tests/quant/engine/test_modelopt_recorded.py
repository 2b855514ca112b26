"""What the real ModelOpt once wrote into modules (see `modelopt_recorded/make.py`) is read and computes what its own module did."""

import json
from pathlib import Path

import numpy as np
import pytest

from quant.engine.modelopt import from_modelopt
from quant.graph.runtime import Runtime
from quant.targets import TARGETS

torch = pytest.importorskip("torch", reason="modules are torch's: pip install 'quant-toolkit[torch]'")

RECORDS = sorted((Path(__file__).parent / "modelopt_recorded").glob("*.npz"))
ROUNDING = 1e-5
"""Share of the largest output by which sums of a few hundred products in FP32 may differ when they are added in another order."""


def like(told):
    """A class that is called as the recorded one."""
    base = torch.nn.Module if told["class"].endswith("Quantizer") else torch.nn.Linear
    return type(told["class"], (base,), {"__module__": told["module"]})


def quantizer(told, tensors):
    made = like(told)()
    plain = {name: value for name, value in told.items() if name not in {"class", "module", "block_sizes"}}
    bits = plain["num_bits"]
    plain["num_bits"] = tuple(bits) if isinstance(bits, list) else bits
    plain["block_sizes"] = None if told["block_sizes"] is None else {key: value for key, value in told["block_sizes"]}  # noqa: C416 - pairs from JSON
    for name, value in plain.items():
        setattr(made, name, value)
    for name in ("amax", "pre_quant_scale"):
        setattr(made, name, None if name not in tensors else torch.from_numpy(tensors[name]))
    return made


def rebuilt(path):
    """(the module as it was recorded, its input, its output, what is told of it)."""
    with np.load(path, allow_pickle=False) as found:
        arrays = dict(found)
    told = json.loads(str(arrays["told"]))
    layers = []
    for number, layer in told["layers"].items():
        weight = arrays[f"{number}.weight"]
        part = like(layer)(weight.shape[1], weight.shape[0])
        part.load_state_dict({"weight": torch.from_numpy(weight), "bias": torch.from_numpy(arrays[f"{number}.bias"])})
        for name, attributes in layer["quantizers"].items():
            stem = f"{number}.{name}."
            part.add_module(name, quantizer(attributes, {key.removeprefix(stem): array for key, array in arrays.items() if key.startswith(stem)}))
        layers.append(part)
    return torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1]).eval(), arrays["x"], arrays["y"], told


def test_there_are_records_of_every_format_with_the_version_that_wrote_them():
    told = [rebuilt(path)[3] for path in RECORDS]
    assert {str(layer["quantizers"]["weight_quantizer"]["num_bits"]) for one in told for layer in one["layers"].values()} == {"8", "[4, 3]", "4"}
    assert all(one["version"] and one["config"].lower() == path.stem for one, path in zip(told, RECORDS, strict=True))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_weights_and_scales_are_kept(tmp_path, path):
    module, x, wanted, _ = rebuilt(path)
    found = from_modelopt(module, {"input": x}, tmp_path)
    model, plan = found.apply(TARGETS.make("torch").dialect)  # which quantizes what layers read and nothing else, as ModelOpt does
    assert len(plan.quantized) == 2
    got = Runtime(model, folder=tmp_path, optimize=False).run({"input": x})["output"]
    plain = Runtime(found.path).run({"input": x})["output"]
    assert np.abs(got - wanted).max() <= ROUNDING * np.abs(wanted).max()
    assert np.abs(plain - wanted).max() > 100 * ROUNDING * np.abs(wanted).max(), "the rounding itself is far larger"
