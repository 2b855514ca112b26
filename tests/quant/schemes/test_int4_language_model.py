"""SmolLM2-135M in 4 bits: what looks at data loses at most half of what rounding to the nearest loses."""

import csv
import importlib.util
from pathlib import Path

import pytest

from quant.core.table import CalibrationTable
from quant.data.samples import Sample
from quant.graph.importing.opset import raise_opset
from quant.graph.layers import find_layers
from quant.graph.model import read_model, signature, write_model
from quant.schemes import SCHEMES, Evidence
from quant.stages.calibrate import calibrate
from quant.stages.running import Feeding
from quant.targets import TARGETS

pytest.importorskip("gguf", reason="gguf, which reads the model, is not installed")
pytestmark = [pytest.mark.benchmark, pytest.mark.network, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
csv.field_size_limit(10**7)

SPEC = importlib.util.spec_from_file_location("smollm", Path(__file__).with_name("smollm.py"))
smollm = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(smollm)

SCORED, CALIBRATED = 4, 16
OPTIONS = {"block_size": 64, "embeddings": False, "exclude": ["*lm_head*"]}
"""The output layer is tied to the table: both stay in FP32, as in the figures that this is compared with."""


class Windows:
    """Calibration text, a window to a sample."""

    role, digest = "calibration", "book-excerpts"

    def __init__(self, ids):
        self.ids = ids

    def __len__(self):
        return CALIBRATED

    def __getitem__(self, position):
        return Sample(position, ({"input_ids": self.ids[position * smollm.WINDOW : (position + 1) * smollm.WINDOW]},))

    def __iter__(self):
        return (self[i] for i in range(len(self)))


@pytest.fixture(scope="module")
def source():
    return smollm.gguf_file()


@pytest.fixture(scope="module")
def fp32(source, tmp_path_factory):
    return smollm.export_fp32(smollm.load(source), tmp_path_factory.mktemp("fp32"))


@pytest.fixture(scope="module")
def scored(source):
    return smollm.tokens("grimm-tales", source)


@pytest.fixture(scope="module")
def table(fp32, source, tmp_path_factory):
    scheme, dialect, model = SCHEMES.make("int4", OPTIONS), TARGETS.make("onnxruntime").dialect, read_model(fp32)
    needs = scheme.needs(model, scheme.plan(model, find_layers(model), dialect), dialect)
    folder = tmp_path_factory.mktemp("table")
    samples = Windows(smollm.tokens("book-excerpts", source))
    calibrate(fp32, samples, [], Feeding(signature(model), 1), magnitudes=False, digest="", moments=needs.moments).save(folder)
    return CalibrationTable.load(folder)


def lost(fp32, scored, folder, moments, **options):
    """(perplexity, size as a share of FP32's) with weights of 4 bits, products computed in FP32."""
    scheme, dialect = SCHEMES.make("int4", OPTIONS | options), TARGETS.make("onnxruntime", {"accuracy_level": 1}).dialect
    model = raise_opset(read_model(fp32), 21)
    plan = scheme.plan(model, find_layers(model), dialect)
    scheme.apply(model, plan, Evidence(moments=moments), dialect)
    path = write_model(model, folder)
    size = sum(f.stat().st_size for f in folder.iterdir()) / sum(f.stat().st_size for f in fp32.parent.iterdir())
    return smollm.perplexity(path, scored, SCORED), size


def test_data_halves_what_four_bits_lose(fp32, scored, table, tmp_path):
    exact = smollm.perplexity(fp32, scored, SCORED)
    found = {"rtn": lost(fp32, scored, tmp_path / "rtn", {}, method="rtn", search=False)}
    for method in ("gptq", "awq"):
        found[method] = lost(fp32, scored, tmp_path / method, table.moments, method=method)
    print(
        f"perplexity over {SCORED} windows: FP32 {exact:.2f}, "
        + ", ".join(f"{name} {value:.2f} ({size:.2f} of the size)" for name, (value, size) in found.items())
    )
    losses = {name: value - exact for name, (value, _) in found.items()}
    assert losses["rtn"] > 0
    assert losses["gptq"] <= losses["rtn"] / 2
    assert losses["awq"] <= losses["rtn"] / 2
