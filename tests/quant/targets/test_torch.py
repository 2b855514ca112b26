"""PyTorch: programs that keep their dimensions open, the same bytes each time, and audits from the program itself."""

import hashlib
import importlib.util
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch

from quant.core.documents import LayerChoice, PrecisionPlan
from quant.errors import TargetError
from quant.graph.runtime import Runtime
from quant.targets import TARGETS, Shapes
from quant.targets.aten import exporting, reading, scripting

SPEC = importlib.util.spec_from_file_location("zoo", Path(__file__).parents[1] / "graph" / "zoo.py")
zoo = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(zoo)


def target(**options):
    return TARGETS.make("torch", options)


def plan(form, **layers):
    return PrecisionPlan(scheme="x", base=form, layers=tuple(LayerChoice(layer=n, op=op, format=form, reason="test") for n, op in layers.items()))


def sequence_model():
    """A product, then a shape that is computed from the input's, a grouped convolution and one of a single place."""
    nodes = [
        zoo.node("MatMul", "x w", "h", "first"),
        zoo.node("Shape", "x", "s"),
        zoo.node("Gather", "s zero", "b"),
        zoo.node("Gather", "s one", "t"),
        zoo.node("Concat", "b t four two", "shape", axis=0),
        zoo.node("Reshape", "h shape", "r"),
        zoo.node("Transpose", "r", "p", perm=[0, 2, 1, 3]),
        zoo.node("Conv", "p k", "c", "depthwise", group=4, pads=[1, 1, 1, 1]),
        zoo.node("Conv", "c q bias", "e", "pointwise"),
        zoo.node("Relu", "e", "y"),
    ]
    weights = {"w": zoo.draw(6, 8), "k": zoo.draw(4, 1, 3, 3), "q": zoo.draw(5, 4, 1, 1), "bias": zoo.draw(5)}
    weights |= {n: np.array([v], np.int64) for n, v in (("zero", 0), ("one", 1), ("four", 4), ("two", 2))}
    return zoo.model(nodes, {"x": ["batch", "time", 6]}, {"y": None}, weights)


@pytest.mark.parametrize(("form", "file"), [("both", "model.pt2"), ("exported-program", "model.pt2"), ("torchscript", "model.pt")])
def test_symbolic_dimensions_stay_open(form, file, tmp_path):
    proto = sequence_model()
    engine = target(format=form)
    artifact = engine.export(ir.from_proto(proto), tmp_path, scheme="fp32")
    assert artifact.main == file
    assert sorted(artifact.files) == (["model.pt", "model.pt2"] if form == "both" else [file])
    session, runtime = engine.session(artifact, tmp_path, threads=1), Runtime(ir.from_proto(proto), optimize=False)
    for batch, time in ((1, 1), (1, 7), (5, 2)):
        feed = {"x": np.random.default_rng(0).normal(size=(batch, time, 6)).astype(np.float32)}
        np.testing.assert_allclose(session.run(feed)["y"], runtime.run(feed)["y"], rtol=1e-4, atol=1e-5)


def test_torchscript_computes_what_the_program_does_bit_for_bit(tmp_path):
    for name in ("residual with relu", "attention", "gemm with factors"):
        proto = zoo.ZOO[name]()
        artifact = target().export(ir.from_proto(proto), tmp_path / name, scheme="fp32")
        runs = []
        for file in sorted(artifact.files):
            session = target().session(artifact.model_copy(update={"main": file}), tmp_path / name, threads=1)
            runs.append(session.run(zoo.feed(proto)))
        assert {k: v.tobytes() for k, v in runs[0].items()} == {k: v.tobytes() for k, v in runs[1].items()}


def test_the_files_load_without_the_toolkit_and_hold_no_paths(tmp_path):
    proto = sequence_model()
    target().export(ir.from_proto(proto), tmp_path, scheme="fp32")
    feed = torch.from_numpy(np.ones((2, 3, 6), np.float32))
    with torch.no_grad():
        (program,) = torch.export.load(tmp_path / "model.pt2").module()(feed)
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            (script,) = torch.jit.load(str(tmp_path / "model.pt"))(feed)
    assert torch.equal(program, script)
    for path in tmp_path.iterdir():
        assert b"/quant/" not in path.read_bytes()


def test_the_same_graph_gives_the_same_bytes(tmp_path):
    digests = [target().export(ir.from_proto(sequence_model()), tmp_path / str(i), scheme="fp32").files for i in range(2)]
    assert digests[0] == digests[1]


def test_results_do_not_depend_on_threads_nor_change_how_many_there_are(tmp_path):
    proto = zoo.ZOO["residual with relu"]()
    artifact = target().export(ir.from_proto(proto), tmp_path, scheme="fp32")
    before = torch.get_num_threads()
    runs = [target().session(artifact, tmp_path, threads=n).run(zoo.feed(proto)) for n in (1, 2, 3)]
    assert len({hashlib.sha256(b"".join(v.tobytes() for v in run.values())).hexdigest() for run in runs}) == 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("form", ["both", "torchscript"])
def test_an_audit_tells_the_operation_and_the_types_that_it_multiplies(form, tmp_path):
    engine = target(format=form)
    artifact = engine.export(ir.from_proto(sequence_model()), tmp_path, scheme="int8")
    rows = engine.audit(artifact, tmp_path, plan("int8", first="MatMul", depthwise="Conv", pointwise="Conv", gone="Conv"), {}).rows
    assert [(r.layer, r.runs, r.kernel, r.agrees) for r in rows] == [
        ("first", "fp32", "aten.matmul (float32 x float32)", False),
        ("depthwise", "fp32", "aten.conv2d (float32 x float32)", False),
        ("pointwise", "fp32", "aten.matmul (float32 x float32)", False),
        ("gone", "unknown", "(not found)", False),
    ]
    assert engine.emulates("int8")
    assert engine.emulates("fp32") is None


@pytest.mark.parametrize("form", ["both", "torchscript"])
def test_tables_and_products_of_integers_are_found(form, tmp_path):
    """Integers are multiplied in float64, which holds every sum of them."""
    weights = {"table": zoo.draw(5, 8), "codes": np.arange(-16, 16, dtype=np.int8).reshape(8, 4)}
    nodes = [
        zoo.node("Gather", "table x", "rows", "embedding"),
        zoo.node("DynamicQuantizeLinear", "rows", "q s z"),
        zoo.node("MatMulInteger", "q codes z", "y", "layer_MatMulInteger"),
    ]
    proto = zoo.model(nodes, {"x": ["N"]}, {"y": None}, weights, types={"x": 7, "y": 6})
    engine = target(format=form)
    artifact = engine.export(ir.from_proto(proto), tmp_path, scheme="int8-dynamic")
    rows = engine.audit(artifact, tmp_path, plan("int8", embedding="Gather", layer="MatMul"), {}).rows
    assert [(r.runs, r.kernel) for r in rows] == [("fp32", "aten.embedding (float32)"), ("fp64", "aten.matmul (float64 x float64)")]
    feed = {"x": np.array([4, 0, 4], np.int64)}
    np.testing.assert_array_equal(engine.session(artifact, tmp_path, threads=1).run(feed)["y"], Runtime(ir.from_proto(proto), optimize=False).run(feed)["y"])


def test_a_half_precision_layer_is_seen_as_one(tmp_path):
    proto = zoo.model(
        [zoo.node("MatMul", "x w", "y", "layer")], {"x": ["N", 8]}, {"y": None}, {"w": zoo.draw(8, 4).astype(np.float16)}, types={"x": 10, "y": 10}
    )
    artifact = target().export(ir.from_proto(proto), tmp_path, scheme="fp16")
    (row,) = target().audit(artifact, tmp_path, plan("fp16", layer="MatMul"), {}).rows
    assert (row.runs, row.kernel, row.agrees) == ("fp16", "aten.matmul (float16 x float16)", True)


def test_a_quantized_graph_gives_the_values_that_onnx_defines(tmp_path):
    weights = {
        "s": np.float32(0.03),
        "z": np.uint8(120),
        "wq": np.arange(-16, 16, dtype=np.int8).reshape(8, 4),
        "ws": np.linspace(0.01, 0.02, 4, dtype=np.float32),
    }
    nodes = [
        zoo.node("QuantizeLinear", "x s z", "q"),
        zoo.node("DequantizeLinear", "q s z", "d"),
        zoo.node("DequantizeLinear", "wq ws", "w", axis=1),
        zoo.node("MatMul", "d w", "y", "layer"),
    ]
    proto = zoo.model(nodes, {"x": ["N", 8]}, {"y": None}, weights)
    artifact = target().export(ir.from_proto(proto), tmp_path, scheme="int8")
    x = zoo.feed(proto, scale=2)["x"]
    codes = np.clip(np.rint(x / np.float32(0.03)) + 120, 0, 255) - 120
    expected = (codes * 0.03) @ (weights["wq"] * weights["ws"].astype(np.float64))
    np.testing.assert_allclose(target().session(artifact, tmp_path, threads=1).run({"x": x})["y"], expected, rtol=1e-5, atol=1e-5)


def test_a_dimension_that_torch_must_fix_is_told_with_the_refusal(tmp_path):
    """The lengths of a resized picture are worked out when the program is written."""
    nodes = [zoo.node("Resize", "x - scales", "y", mode="linear")]
    proto = zoo.model(nodes, {"x": ["N", 2, "side", 4]}, {"y": None}, {"scales": np.float32([1, 1, 2, 2])})
    shapes = {"x": Shapes((1, 2, 6, 4), (1, 2, 6, 4), (4, 2, 6, 4))}
    artifact = target().export(ir.from_proto(proto), tmp_path, scheme="fp32", shapes=shapes)
    session = target().session(artifact, tmp_path, threads=1)
    feed = {"x": np.random.default_rng(0).normal(size=(1, 2, 6, 4)).astype(np.float32)}
    np.testing.assert_allclose(session.run(feed)["y"], Runtime(ir.from_proto(proto), optimize=False).run(feed)["y"], rtol=1e-5, atol=1e-6)
    assert session.run({"x": np.concatenate([feed["x"]] * 3)})["y"].shape == (3, 2, 12, 8)
    hint = r"hint: torch could not keep every dimension open: x has its axis 2 \(side\) fixed at 6"
    with pytest.raises(TargetError, match=r"PyTorch cannot run the program on x float32\[1, 2, 5, 4\]: [\s\S]*\n" + hint):
        session.run({"x": feed["x"][:, :, :5]})


def test_a_graph_that_runs_at_no_length_is_refused():
    nodes = [zoo.node("Reshape", "x shape", "y")]
    proto = zoo.model(nodes, {"x": ["N"]}, {"y": None}, {"shape": np.array([1009, 1], np.int64)})
    with pytest.raises(TargetError, match="runs at none of the lengths that were tried for N"):
        exporting.export_program(ir.from_proto(proto))


@pytest.mark.parametrize("file", ["model.pt2", "model.pt"])
def test_a_damaged_file_is_refused(file, tmp_path):
    target().export(ir.from_proto(zoo.ZOO["gemm with factors"]()), tmp_path, scheme="fp32")
    path = tmp_path / file
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(TargetError, match=r"PyTorch \S+ cannot load the artifact: "):
        reading.load(path)


def test_what_torchscript_cannot_say_is_refused():
    class Branch(torch.nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda t: t + 1, lambda t: t - 1, (x,))

    program = torch.export.export(Branch(), (torch.ones(2),), strict=False)
    with pytest.raises(TargetError, match=r"has no TorchScript form\nhint: set `format: exported-program`"):
        scripting.to_script(program, exporting.Interface(("x",), ("y",), {"x": "float32"}))


def test_numbers_and_types_are_written_as_torchscript_reads_them():
    class Odd(torch.nn.Module):
        def forward(self, x):
            masked = torch.where(x > 0, x, torch.full((), float("-inf")))
            return torch.clamp(masked.to(torch.float64), max=float("inf")), torch.arange(x.shape[0], dtype=torch.int64, device=torch.device("cpu"))

    program = torch.export.export(Odd(), (torch.ones(3),), dynamic_shapes=({0: torch.export.Dim.AUTO},), strict=False)
    script, _ = scripting.to_script(program, exporting.Interface(("x",), ("y", "z"), {"x": "float32"}))
    y, z = script(torch.tensor([-1.0, 2.0, 3.0, 4.0]))
    assert y.tolist() == [float("-inf"), 2, 3, 4]
    assert z.tolist() == [0, 1, 2, 3]
