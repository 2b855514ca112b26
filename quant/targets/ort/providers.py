"""From options to the list of execution providers that a session of ONNX Runtime is given, in its own words.

The names are those that ONNX Runtime's TensorRT and CUDA providers read; each value is a string. Builds against TensorRT 11
take types from the graph alone and ignore `trt_fp16_enable` and `trt_int8_enable`; older ones need them to allow the types that the
graph has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import onnx_ir as ir
from pydantic import Field, model_validator

from quant.core.dialect import Body
from quant.targets import TargetOptions
from quant.targets.nvidia.options import Profile

ProviderName = Literal["cpu", "cuda", "tensorrt"]
CPU, CUDA, TENSORRT = "CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider"
_PROVIDERS: Mapping[ProviderName, tuple[str, ...]] = {"cpu": (CPU,), "cuda": (CUDA, CPU), "tensorrt": (TENSORRT, CUDA, CPU)}
_EVERYWHERE = frozenset({"provider", "allow_fallback", "int4"})
_OWN: Mapping[ProviderName, frozenset[str]] = {"cpu": _EVERYWHERE | {"accuracy_level"}, "cuda": _EVERYWHERE | {"device_id", "cuda_graph"}}
"""The options of providers that have not all of them."""
_MIB = 1 << 20
_HALF = frozenset({ir.DataType.FLOAT16})
_QUANTIZED = frozenset({"QuantizeLinear", "DequantizeLinear"})


class ProviderOptions(TargetOptions):
    """Options of `onnxruntime`; those from `engine_cache` on are TensorRT's alone."""

    provider: ProviderName = "cpu"
    """What runs the graph: `cpu`; `cuda`, in floating point; `tensorrt`, which builds engines of it when it is loaded. What a GPU provider
    does not take, the next runs: tensorrt, cuda, cpu."""
    int4: Literal["matmulnbits", "dequantize"] = "matmulnbits"
    """Form of products with weights of 4 bits: its own operator, or standard DequantizeLinear in blocks, which it turns into that one
    when it loads the model, then with INT8 activations. Tables are read in 4 bits by an operator of its own alone."""
    accuracy_level: Literal["auto", 1, 4] = "auto"
    """What `MatMulNBits` multiplies in on a CPU: 4 for INT8 (activations rounded while running, with a scale to each block), 1 for FP32;
    `auto`: 4, or 1 for a layer whose calibration data says that a few large activations would cost more than the 4 bits of its weights."""
    device_id: int | None = Field(None, ge=0)
    """Number of the GPU; the first when not given."""
    cuda_graph: bool = False
    """Record kernels once and replay them; shapes must not change then."""
    body: Body = "fp16"
    """What everything that is not quantized runs in with TensorRT, which takes types from the graph."""
    engine_cache: Path | None = None
    """Folder where engines are kept from one session to the next."""
    timing_cache: Path | None = None
    """Folder where the timings of kernels are kept from one build to the next."""
    workspace_mib: int | None = Field(None, ge=1)
    """Most scratch memory that a layer may use, in MiB."""
    builder_optimization_level: int | None = Field(None, ge=0, le=5)
    """How long to look for fast kernels, 0 to 5; TensorRT's own default when not given."""
    hardware_compatible: bool = False
    """Build engines for every GPU from Ampere on, not for this one alone; they are slower."""
    detailed_build_log: bool = False
    """Log how engines are built."""
    context_model: bool = False
    """Write an ONNX file that holds the engine, which loads without a build."""
    weight_stripped: bool = False
    """Build engines without weights, which are taken from the model when it is loaded."""
    profiles: dict[str, Profile] = Field(default_factory=dict)
    """Input -> shapes it may have; from the requests that come, with a build each time they leave what was seen, when not given."""

    @model_validator(mode="after")
    def _belongs(self) -> ProviderOptions:
        own = _OWN.get(self.provider)
        told = {name for name in type(self).model_fields if getattr(self, name) != type(self).model_fields[name].get_default(call_default_factory=True)}
        if own is not None and (strange := sorted(told - own)):
            raise ValueError(f"provider {self.provider!r} has no option {strange[0]!r}")
        return self


def provider_list(options: ProviderOptions, model: ir.Model | None = None) -> list[tuple[str, dict[str, str]]]:
    """(provider, settings) in the order in which ONNX Runtime is to ask them, for `InferenceSession(..., providers=...)`.

    Args:
        options: What the recipe says.
        model: The graph to be run: older TensorRT must be told of the types in it.

    Example:
        >>> provider_list(ProviderOptions(provider="cuda", device_id=1))
        [('CUDAExecutionProvider', {'device_id': '1'}), ('CPUExecutionProvider', {})]
    """
    device = {"device_id": str(options.device_id)} if options.device_id is not None else {}
    graphs = {"enable_cuda_graph": "1"} if options.cuda_graph and options.provider == "cuda" else {}
    settings = {CPU: {}, CUDA: {**device, **graphs}, TENSORRT: {**device, **tensorrt_settings(options, model)}}
    return [(name, settings[name]) for name in _PROVIDERS[options.provider]]


def tensorrt_settings(options: ProviderOptions, model: ir.Model | None = None) -> dict[str, str]:
    """What the TensorRT provider is told, apart from the device; nothing where its own default will do."""
    types = {} if model is None else {"trt_fp16_enable": _has_half(model), "trt_int8_enable": _has_pairs(model)}
    flags = {
        **types,
        "trt_engine_cache_enable": options.engine_cache is not None,
        "trt_timing_cache_enable": options.timing_cache is not None,
        "trt_cuda_graph_enable": options.cuda_graph,
        "trt_engine_hw_compatible": options.hardware_compatible,
        "trt_detailed_build_log": options.detailed_build_log,
        "trt_dump_ep_context_model": options.context_model,
        "trt_weight_stripped_engine_enable": options.weight_stripped,
    }
    values = {
        "trt_engine_cache_path": options.engine_cache,
        "trt_timing_cache_path": options.timing_cache,
        "trt_max_workspace_size": None if options.workspace_mib is None else options.workspace_mib * _MIB,
        "trt_builder_optimization_level": options.builder_optimization_level,
    }
    shapes = {
        f"trt_profile_{which}_shapes": ",".join(f"{name}:{'x'.join(map(str, getattr(profile, which)))}" for name, profile in options.profiles.items())
        for which in ("min", "opt", "max")
    }
    told = {name: "1" for name, flag in flags.items() if flag} | {name: str(value) for name, value in values.items() if value is not None}
    return told | {name: text for name, text in shapes.items() if text}


def missing(options: ProviderOptions, here: Iterable[str]) -> str:
    """Why the provider cannot be had, given the names of those that this build of ONNX Runtime has; empty when it can.

    Example:
        >>> missing(ProviderOptions(provider="cuda"), ["AzureExecutionProvider", "CPUExecutionProvider"])
        'this build of ONNX Runtime has no CUDAExecutionProvider; it has AzureExecutionProvider, CPUExecutionProvider'
    """
    wanted, found = _PROVIDERS[options.provider][0], sorted(here)
    return "" if wanted in found else f"this build of ONNX Runtime has no {wanted}; it has {', '.join(found)}"


def _has_half(model: ir.Model) -> bool:
    graph = model.graph
    values = [*graph.inputs, *graph.initializers.values(), *(out for node in graph for out in node.outputs)]
    casts = (node.attributes.get("to") for node in graph if node.op_type == "Cast")
    return any(value.dtype in _HALF for value in values) or any(to is not None and ir.DataType(to.as_int()) in _HALF for to in casts)


def _has_pairs(model: ir.Model) -> bool:
    return any(node.op_type in _QUANTIZED for node in model.graph)
