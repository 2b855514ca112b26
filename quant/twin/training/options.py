"""What a recipe may say of training."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from quant.core.registry import Options


class EarlyStopping(Options):
    """When training stops before its last epoch: judged by the loss on the search samples."""

    patience: int = Field(2, ge=1)
    """Epochs in a row that may pass without a lower loss."""
    least: float = Field(0.0, ge=0, lt=1)
    """Share of the loss that it must fall by to count as lower."""


class TrainingOptions(Options):
    """How a quantized model is trained."""

    epochs: int = Field(4, ge=0, le=10_000)
    """Passes over the training samples; 0: none, the model is written as calibration alone makes it."""
    batch_size: int = Field(32, ge=1)
    """Samples to a step, at least."""
    learning_rate: float = Field(1e-4, gt=0)
    """Of weights and biases."""
    scale_learning_rate: float = Field(5e-3, gt=0)
    """Of the logarithms of scales: about the share of a scale that one step changes."""
    learn_scales: bool = True
    """Learn the scales too (LSQ); off: they stay as calibration chose them."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """`sgd` has a momentum of 0.9."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """`cosine`: learning rates fall to 0 along half a cosine."""
    weight_decay: float = Field(0.0, ge=0)
    """Of weights and biases, not of scales."""
    gradient_clip: float | None = Field(1.0, gt=0)
    """Largest norm of the gradients of all weights, and of those of all scales; none when null."""
    loss: Literal["auto", "labels", "distillation"] = "auto"
    """`labels`: cross-entropy for classes, squared error for numbers; `distillation`: closeness to the FP32 model's outputs, which needs no
    labels; `auto`: labels where the train split has them and a metric holds them against that output, else distillation."""
    output: str | None = None
    """The output that labels are about; the first float output when not given. Distillation takes all float outputs."""
    temperature: float = Field(2.0, gt=0)
    """Distillation of scores of classes: what they are divided by before they are compared."""
    features: float = Field(0.0, ge=0)
    """Distillation: weight of the closeness of what each planned layer gives, beside that of the outputs; 0: outputs alone."""
    early_stopping: EarlyStopping | None = None
    """Stop when the loss on the search samples falls no more."""
    seed: int = Field(0, ge=0)
    """Of the order of the samples."""
