"""What layers multiply, gathered from samples: the same whatever their order and the number of threads, and bounded."""

import importlib.util
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from quant.graph.layers import find_layers
from quant.graph.model import read_model, signature, write_model
from quant.stages import activations
from quant.stages.activations import gather_inputs
from quant.stages.running import Feeding

SPEC = importlib.util.spec_from_file_location("zoo", Path(__file__).parents[1] / "graph" / "zoo.py")
zoo = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(zoo)


@pytest.fixture
def work(tmp_path):
    path = write_model(ir.from_proto(zoo.ZOO["residual with relu"]()), tmp_path)
    model = read_model(path)
    return path, find_layers(model), Feeding(signature(model))


def feeds(count, seed=0):
    rng = np.random.default_rng(seed)
    return [[{"x": rng.normal(size=(3, 8, 8)).astype(np.float32)}] for _ in range(count)]


def gathered(work, samples):
    path, layers, feeding = work
    return {tuple(layer.name for layer in alike): rows for alike, rows in gather_inputs(path, samples, layers, feeding)}


def test_each_layer_gets_rows_of_its_own_width_and_layers_that_read_alike_share_them(work, samples):
    found = gathered(work, samples(feeds(3)))
    assert {names: rows.shape for names, rows in found.items()} == {
        ("conv_c1",): (1, 3 * 64, 27),
        ("conv_cr",): (1, 3 * 64, 72),
        ("conv_c2",): (1, 3 * 64, 72),
        ("gemm_y",): (1, 3, 8),
    }
    assert all(rows.dtype == np.float32 for rows in found.values())


def test_rows_are_the_same_in_any_order_of_samples_and_on_any_number_of_threads(work, samples, monkeypatch):
    made, rows = feeds(7), []
    for threads, order in (("1", made), ("3", made[::-1])):
        monkeypatch.setenv("QUANT_THREADS", threads)
        rows.append(gathered(work, samples(order)))
    assert all(np.array_equal(rows[0][names], rows[1][names]) for names in rows[0])


def test_rows_are_few_and_of_all_samples(work, samples, monkeypatch):
    monkeypatch.setattr(activations, "_INPUT_ROWS", 20)
    made = feeds(4)
    found = gathered(work, samples(made))
    assert {rows.shape[1] for names, rows in found.items() if names != ("gemm_y",)} == {20}
    centres = {float(feed["x"][0, y, x]) for [feed] in made for y in range(8) for x in range(8)}
    held = [float(v) for v in found["conv_c1",][0, :, 4]]  # the middle of a 3 by 3 patch of the first channel
    assert set(held) <= centres
    assert len({next(i for i, [feed] in enumerate(made) if v in feed["x"][0]) for v in held}) == 4


def test_layers_that_do_not_fit_together_are_had_by_further_passes_with_the_same_rows(work, samples, monkeypatch):
    whole = gathered(work, samples(feeds(3)))
    monkeypatch.setattr(activations, "_INPUT_BYTES", 1)
    passes = []
    monkeypatch.setattr(activations, "_pass", lambda *given, inner=activations._pass: passes.append(given[2]) or inner(*given))
    alone = gathered(work, samples(feeds(3)))
    assert len(passes) == 4
    assert all(np.array_equal(whole[names], alone[names]) for names in whole)
