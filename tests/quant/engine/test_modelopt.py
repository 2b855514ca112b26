"""A torch module that ModelOpt has quantized keeps its weights and scales in every dialect. The fast tests stand in for its classes."""

import copy

import numpy as np
import pytest

from quant.core.documents import Artifact, PrecisionPlan
from quant.engine.modelopt import from_modelopt
from quant.errors import DataError, ModelError, PlanError
from quant.graph.importing.modelopt import without_quantizers
from quant.graph.model import constant
from quant.graph.runtime import Runtime
from quant.targets import TARGETS

torch = pytest.importorskip("torch")

ROUNDING = 1e-5
"""Share of the largest output by which sums of a few hundred products in FP32 may differ when they are added in another order."""
PLAIN = "torch"
"""The target whose dialect quantizes what layers read, and nothing else, as ModelOpt does: what it computes can be held to ModelOpt."""


class TensorQuantizer(torch.nn.Module):
    """As ModelOpt's, in its attributes and in what it computes."""

    def __init__(self, bits, amax, *, block=0, on=True, unsigned=False, factors=None):
        super().__init__()
        self.num_bits, self.block_sizes, self.is_enabled, self.unsigned = bits, {-1: block, "type": "static"} if block else None, on, unsigned
        self.amax = None if amax is None else torch.as_tensor(amax, dtype=torch.float32)
        self.pre_quant_scale = factors

    def forward(self, x):
        x = x if self.pre_quant_scale is None else x * self.pre_quant_scale
        if not self.is_enabled:
            return x
        if self.num_bits == (4, 3):
            scale = 448 / self.amax
            return (x * scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() / scale
        high = 2 ** (self.num_bits - 1) - 1
        shape = x.shape
        blocks = x.reshape(-1, self.block_sizes[-1]) if self.block_sizes else x
        scale = high / self.amax
        return ((blocks * scale).round().clamp(-high - 1, high) / scale).reshape(shape)


class QuantLinear(torch.nn.Linear):
    """A Linear behind two of them."""

    def forward(self, x):
        return torch.nn.functional.linear(self.input_quantizer(x), self.weight_quantizer(self.weight), self.bias)


class QuantConv2d(torch.nn.Conv2d):
    """A convolution behind two of them."""

    def forward(self, x):
        return torch.nn.functional.conv2d(self.input_quantizer(x), self.weight_quantizer(self.weight), self.bias, padding=self.padding)


for stand_in in (TensorQuantizer, QuantLinear, QuantConv2d):
    stand_in.__module__ = "modelopt.torch.quantization.stand_in"


class Net(torch.nn.Module):
    """A convolution with a batch norm that is folded into it, and two products."""

    def __init__(self, conv=QuantConv2d, linear=QuantLinear):
        super().__init__()
        self.conv, self.norm = conv(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8)
        self.first, self.second = linear(8 * 16, 64), linear(64, 10)
        self.norm.running_var.uniform_(0.5, 2.0)
        self.norm.weight.data.normal_()

    def forward(self, image):
        hidden = torch.relu(self.norm(self.conv(image))).flatten(1)
        return self.second(torch.relu(self.first(hidden)))


LAYERS = ("conv", "first", "second")


def quantized(bits, *, share=1.0):
    """The net, its scales made for `share` of the largest magnitudes; and images.

    ModelOpt lets a weight at the low end have code -128. Behind a batch norm with a negative factor that is +128, which is no code: where
    weights are clipped, factors are positive.
    """
    torch.manual_seed(0)
    net, images = Net().eval(), torch.randn(16, 3, 4, 4)
    net.norm.weight.data.copy_(net.norm.weight.abs() if share < 1 else net.norm.weight)
    for name in LAYERS:
        layer = getattr(net, name)
        weight = layer.weight.detach()
        amax = weight.abs().flatten(1).amax(1).reshape(-1, *[1] * (weight.dim() - 1)) if bits == 8 else weight.abs().max()
        layer.weight_quantizer = TensorQuantizer(bits, share * amax)
        layer.input_quantizer = TensorQuantizer(bits, None, on=False)
    seen = {}
    hooks = [getattr(net, name).register_forward_pre_hook(lambda _m, args, name=name: seen.update({name: args[0].abs().max()})) for name in LAYERS]
    with torch.no_grad():
        net(images)
    for hook in hooks:
        hook.remove()
    for name in LAYERS:
        getattr(net, name).input_quantizer = TensorQuantizer(bits, share * seen[name])
    return net, images.numpy()


@pytest.fixture(scope="module")
def brought(tmp_path_factory):
    """The net in INT8, images, and what was read of it; not to be changed."""
    net, images = quantized(8)
    return net, images, from_modelopt(net, {"image": images}, tmp_path_factory.mktemp("brought"))


def computed(found, model, images):
    return Runtime(model, folder=found.path.parent, optimize=False).run({"image": images})["output"]


def scales(model, op="QuantizeLinear"):
    """Name of what is quantized -> (scale, zero point)."""
    return {n.inputs[0].name: (float(constant(n.inputs[1])), int(constant(n.inputs[2]))) for n in model.graph if n.op_type == op}


def held(net, images, found):
    """The plan, once the graph is held to the module."""
    with torch.no_grad():
        wanted = net(torch.from_numpy(images)).numpy()
    model, plan = found.apply(TARGETS.make(PLAIN).dialect)
    assert np.abs(computed(found, model, images) - wanted).max() <= ROUNDING * np.abs(wanted).max()
    return plan


def test_the_graph_computes_what_the_quantized_module_does(brought):
    plan = held(*brought)
    assert set(plan.quantized) == {choice.layer for choice in plan.layers}


@pytest.mark.slow
@pytest.mark.parametrize(("bits", "share"), [(8, 0.7), ((4, 3), 1.0), ((4, 3), 0.7)])
def test_so_it_does_in_other_formats_and_where_weights_are_clipped(tmp_path, bits, share):
    net, images = quantized(bits, share=share)
    plan = held(net, images, from_modelopt(net, {"image": images}, tmp_path))
    assert set(plan.quantized) == {choice.layer for choice in plan.layers}


def test_scales_of_inputs_are_kept_on_grids_with_a_zero_point_and_without(brought):
    net, _, found = brought
    steps = {name: np.float32(float(getattr(net, name).input_quantizer.amax) / 127) for name in LAYERS}
    for target, zero in (("onnxruntime", 128), ("tensorrt", 0)):
        read = scales(found.apply(TARGETS.make(target).dialect)[0])
        for tensor, layer in (("image", "conv"), ("relu", "first"), ("relu_1", "second")):
            if tensor in read:
                assert np.isclose(read[tensor][0], steps[layer], rtol=2**-22)
                assert read[tensor][1] == zero


def test_scales_of_weights_are_kept_and_follow_a_batch_norm_into_the_convolution(brought):
    net, _, found = brought
    model, _ = found.apply(TARGETS.make(PLAIN).dialect)
    factor = (net.norm.weight / torch.sqrt(net.norm.running_var + net.norm.eps)).abs().detach()
    wanted = {name: (getattr(net, name).weight_quantizer.amax.flatten() / 127 * (factor if name == "conv" else 1)).numpy() for name in LAYERS}
    read = {n.name.split(".")[0]: constant(n.inputs[1]) for n in model.graph if n.op_type == "DequantizeLinear" and "_weight_" in n.name}
    for name in LAYERS:
        np.testing.assert_allclose(read[name], wanted[name], rtol=1e-5)


def test_blocks_of_int4_are_kept(tmp_path):
    torch.manual_seed(0)
    net = torch.nn.Sequential(QuantLinear(128, 64), torch.nn.ReLU(), QuantLinear(64, 96)).eval()
    for layer in (net[0], net[2]):
        blocks = layer.weight.detach().reshape(-1, 32)
        layer.weight_quantizer = TensorQuantizer(4, blocks.abs().amax(1, keepdim=True) * 0.9, block=32)
        layer.input_quantizer = TensorQuantizer(8, None, on=False, factors=torch.rand(layer.in_features) + 0.5)
    x = torch.randn(8, 128)
    with torch.no_grad():
        wanted = net(x).numpy()
    found = from_modelopt(net, {"input": x.numpy()}, tmp_path)
    model, plan = found.apply(TARGETS.make(PLAIN).dialect)
    assert plan.base == "int4"
    assert len(plan.quantized) == 2
    got = Runtime(model, folder=tmp_path, optimize=False).run({"input": x.numpy()})["output"]
    assert np.abs(got - wanted).max() <= ROUNDING * np.abs(wanted).max()


def test_what_is_left_in_float_stays_so_and_says_why(tmp_path):
    net, images = quantized(8)
    for quantizer in (net.first.input_quantizer, net.first.weight_quantizer):
        quantizer.is_enabled = False
    found = from_modelopt(net, {"image": images}, tmp_path)
    plan = held(net, images, found)
    assert [(c.layer.split(".")[0], c.format, c.reason) for c in plan.layers if c.format != "int8"] == [
        ("first", "fp32", "ModelOpt leaves it in higher precision")
    ]


@pytest.mark.parametrize("target", ["onnxruntime", "torch"])
def test_the_artifact_runs_and_is_audited_like_any_other(brought, tmp_path, target):
    engine = TARGETS.make(target)
    if not (here := engine.available()).available:
        pytest.skip(here.reason)
    _, images, found = brought
    artifact = found.export(target, tmp_path / "artifact")
    assert artifact == Artifact.load(tmp_path / "artifact" / "artifact.json")
    plan = PrecisionPlan.load(tmp_path / "artifact" / "plan.json")
    audit = engine.audit(artifact, tmp_path / "artifact", plan, artifact.layers)
    assert [row.planned for row in audit.rows] == ["int8"] * 3
    got = engine.session(artifact, tmp_path / "artifact", threads=1).run({"image": images})["output"]
    model, _ = found.apply(engine.dialect)
    step = max(np.abs(got).max() / 127, 1e-6)
    assert np.abs(got - computed(found, model, images)).max() <= step


def test_the_module_stays_as_it_is():
    net, _ = quantized(8)
    before = copy.deepcopy(net.state_dict())
    plain = without_quantizers(net)
    assert {type(plain.get_submodule(name)) for name in LAYERS} == {torch.nn.Conv2d, torch.nn.Linear}
    assert type(net.conv) is QuantConv2d
    assert type(net.conv.input_quantizer) is TensorQuantizer
    assert all(torch.equal(before[name], array) for name, array in net.state_dict().items())


def _off(net):
    for module in net.modules():
        if isinstance(module, TensorQuantizer):
            module.is_enabled = False


def _without_inputs(net):
    for name in LAYERS:
        getattr(net, name).input_quantizer.is_enabled = False


REFUSED = {
    "nothing": (_off, "the model has no ModelOpt quantizers that are switched on"),
    "bits": (lambda n: setattr(n.conv.weight_quantizer, "num_bits", (2, 1)), r"ModelOpt's quantizer 'conv.weight_quantizer' writes \(2, 1\) bits"),
    "several": (lambda n: delattr(n.conv.weight_quantizer, "num_bits"), "ModelOpt's quantizer 'conv.weight_quantizer' is made of several"),
    "dynamic": (lambda n: setattr(n.conv.input_quantizer, "_dynamic", True), "ModelOpt's quantizer 'conv.input_quantizer' finds its scale while running"),
    "rotated": (lambda n: setattr(n.conv.input_quantizer, "rotate_is_enabled", True), "ModelOpt's quantizer 'conv.input_quantizer' rotates what it quantizes"),
    "empty": (lambda n: setattr(n.conv.input_quantizer, "amax", None), "ModelOpt's quantizer 'conv.input_quantizer' has no scale yet"),
    "channels": (lambda n: setattr(n.conv.input_quantizer, "amax", torch.ones(3)), "'conv.input_quantizer' has a scale for each channel"),
    "axis": (lambda n: setattr(n.first.weight_quantizer, "amax", torch.ones(1, 128)), "scales of the weight of 'first' lie along another axis"),
    "weights alone": (_without_inputs, "ModelOpt quantizes the weight of 'conv' to int8 and not its input, which no target runs"),
    "two": (lambda n: setattr(n.conv.input_quantizer, "num_bits", (4, 3)), "ModelOpt quantizes the weight of 'conv' to int8 and its input to fp8"),
    "mixed": (
        lambda n: [setattr(q, "num_bits", (4, 3)) for q in (n.conv.input_quantizer, n.conv.weight_quantizer)],
        "the model is quantized to fp8 and int8",
    ),
    "output": (lambda n: setattr(n.conv, "output_quantizer", TensorQuantizer(8, 1.0)), "'conv.output_quantizer' stands at what is no input and no weight"),
    "no weight": (
        lambda n: setattr(n.norm, "input_quantizer", TensorQuantizer(8, 1.0)),
        "ModelOpt quantizes the input of 'norm' and not its weight",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_written_is_refused_by_name(tmp_path, case):
    change, message = REFUSED[case]
    net, images = quantized(8)
    change(net)
    with pytest.raises(ModelError, match=message):
        from_modelopt(net, {"image": images}, tmp_path)


@pytest.mark.slow
def test_a_target_that_runs_none_of_it_says_so(tmp_path):
    net, images = quantized((4, 3))
    found = from_modelopt(net, {"image": images}, tmp_path)
    with pytest.raises(PlanError, match=r"none of the layers can be written: the target does not know FP8$"):
        found.apply(TARGETS.make("tvm").dialect)


def test_one_example_is_too_few(tmp_path):
    net, images = quantized(8)
    with pytest.raises(DataError, match=r"inputs hold \{'image': 1\} examples"):
        from_modelopt(net, {"image": images[:1]}, tmp_path)


CONFIGS = ("INT8_DEFAULT_CFG", "INT8_SMOOTHQUANT_CFG", "FP8_DEFAULT_CFG", "INT4_BLOCKWISE_WEIGHT_ONLY_CFG", "INT4_AWQ_CFG")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # other people's
@pytest.mark.parametrize("config", CONFIGS)
def test_modelopt_itself_is_read_weights_and_scales_kept(tmp_path, config):
    why = "the real ModelOpt is not here (pip install 'quant-toolkit[modelopt]'); what it writes is recorded for test_modelopt_recorded.py"
    mtq = pytest.importorskip("modelopt.torch.quantization", reason=why)
    torch.manual_seed(0)
    is_int4 = config.startswith("INT4")
    net = torch.nn.Sequential(torch.nn.Linear(256, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128)) if is_int4 else Net(torch.nn.Conv2d, torch.nn.Linear)
    x = torch.randn(16, 256) if is_int4 else torch.randn(16, 3, 4, 4)
    if not is_int4:
        net.norm.weight.data.abs_()  # see `quantized`
    made = mtq.quantize(net.eval(), getattr(mtq, config), lambda module: module(x))
    for module in made.modules():  # as training would: scales that are no longer those of the largest weight
        if getattr(module, "weight_quantizer", None) is not None and module.weight_quantizer.is_enabled:
            module.weight_quantizer.amax = module.weight_quantizer.amax * 0.9
    with torch.no_grad():
        wanted = made(x).numpy()
    name = "input" if is_int4 else "image"
    found = from_modelopt(made, {name: x.numpy()}, tmp_path)
    model, plan = found.apply(TARGETS.make(PLAIN).dialect)
    assert len(plan.quantized) == len(plan.layers)
    got = Runtime(model, folder=tmp_path, optimize=False).run({name: x.numpy()})["output"]
    plain = Runtime(found.path).run({name: x.numpy()})["output"]
    assert np.abs(got - wanted).max() <= ROUNDING * np.abs(wanted).max()
    assert np.abs(plain - wanted).max() > 100 * ROUNDING * np.abs(wanted).max(), "the rounding itself is far larger"
