"""Every engine computes what its graph means, in every scheme; run over the registries."""

import importlib.util
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml

import quant
from quant.schemes import SCHEMES
from quant.targets import TARGETS

SPEC = importlib.util.spec_from_file_location("zoo", Path(__file__).parents[1] / "quant" / "graph" / "zoo.py")
zoo = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(zoo)

GRAPHS = ("residual with relu", *(pytest.param(name, marks=pytest.mark.slow) for name in ("attention", "gemm with factors")))
SCHEMES_WITHOUT_TRAINING = [kind for kind in SCHEMES if SCHEMES.get(kind).data != "training"]


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", TARGETS.kinds())
def test_every_scheme_of_a_target_computes_what_its_graph_means(kind, graph, tmp_path):
    engine = TARGETS.make(kind)
    here = engine.available()
    if not here.available or engine.ahead_of_time:
        pytest.skip(here.reason or "its engines run elsewhere")
    proto = zoo.ZOO[graph]()
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):  # fixed shapes, which every engine takes
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_value = zoo.ROWS
    onnx.save(proto, tmp_path / "model.onnx")
    feeds = [zoo.feed(proto, seed) for seed in range(16)]
    np.savez(tmp_path / "data.npz", **{name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]})
    recipe = {
        "version": 1,
        "name": "zoo",
        "model": {"source": "model.onnx"},
        "data": {"source": "data.npz", "splits": {"calibration": 24, "evaluation": 24}},
        "schemes": SCHEMES_WITHOUT_TRAINING,
        "targets": [kind],
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    found = quant.ladder(tmp_path / "recipe.yaml")
    ran = [rung for rung in found.rungs if rung.agreement is not None]
    assert len(ran) > 1, [(rung.name, rung.reason) for rung in found.rungs]
    assert all(rung.agreement.agrees for rung in ran), [(rung.name, rung.agreement) for rung in ran if not rung.agreement.agrees]
    assert found.agrees
