"""Options and dialect that all targets of NVIDIA's engines share."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator

from quant.core.dialect import Body, Dialect, Float8, Int4Form
from quant.core.formats import INT8
from quant.graph.body import BODY_OPSET
from quant.graph.importing import MINIMUM_OPSET
from quant.targets import TargetOptions


class Profile(BaseModel):
    """Shapes that an input may have, batch axis included; the engine is tuned for `opt`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    min: tuple[int, ...]
    opt: tuple[int, ...]
    max: tuple[int, ...]

    @model_validator(mode="after")
    def _ordered(self) -> Profile:
        if not len(self.min) == len(self.opt) == len(self.max) or not all(0 < a <= b <= c for a, b, c in zip(self.min, self.opt, self.max, strict=True)):
            shown = f"min {list(self.min)}, opt {list(self.opt)}, max {list(self.max)}"
            raise ValueError(f"{shown}: they must have the same number of dimensions, with 0 < min <= opt <= max in each")
        return self


class EngineOptions(TargetOptions):
    """What every target of NVIDIA's engines can be told."""

    body: Body = "fp16"
    """What everything that is not quantized runs in; `bf16` where FP16 overflows in too many places (Ampere and newer)."""
    workspace_mib: int | None = Field(None, ge=1)
    """Most scratch memory that a layer may use, in MiB; all there is when not given."""
    tf32: bool = False
    """Let FP32 products be computed in TF32, with 10 bits of mantissa."""
    profiles: dict[str, Profile] = Field(default_factory=dict)
    """Input -> shapes it may have; from the calibration and evaluation samples when not given."""


_LARGEST_FP8_KERNEL = 32
"""Taps; a convolution in FP8 with more falls back to FP16 (7 x 7, say; seen in build logs)."""
_FEWEST_FP8_CHANNELS = 17
"""Below, FP8 convolutions are not worth their Q/DQ: the limit that NVIDIA's own Model Optimizer keeps to."""


def engine_dialect(body: Body, *, convolutions: bool = True, fp8_convolutions: bool = True) -> Dialect:
    """Signed symmetric Q/DQ in front of every quantized product and nowhere else, weights per output channel, float biases.

    Every type is written into the graph, for the network is strongly typed: what is not quantized is in `body`.

    Args:
        body: What is not quantized runs in it.
        convolutions: Whether all GPUs have integer kernels for convolutions.
        fp8_convolutions: Whether all GPUs have FP8 kernels for convolutions.
    """
    return Dialect(
        integer=frozenset({"Conv", "Gemm", "MatMul"} if convolutions else {"Gemm", "MatMul"}),
        dynamic=frozenset(),
        activations=INT8,
        operands=INT8,
        weights=INT8,
        chained=frozenset(),
        transparent=frozenset(),
        melting=frozenset(),
        integer_bias=frozenset(),
        opset=MINIMUM_OPSET if body == "fp32" else BODY_OPSET,
        body=body,
        residual=True,
        # Blocks of another size, along another axis, or one along the whole, are made floats by a kernel of their own at every run.
        int4=Int4Form(products="dequantize", tables="dequantize", sizes=(128, 64), pads=False, asymmetric=False, least_blocks=2),
        fp8=Float8(frozenset({"Conv", "Gemm", "MatMul"} if fp8_convolutions else {"Gemm", "MatMul"}), _LARGEST_FP8_KERNEL, _FEWEST_FP8_CHANNELS),
    )
