"""What a recipe may say of a model repository, apart from the engine in it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from quant.targets.model_repository.backends import Device

Positive = Annotated[int, Field(ge=1)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DynamicBatching(_Part):
    """How Triton puts waiting requests together."""

    preferred_batch_sizes: tuple[Positive, ...] = ()
    """Sizes that it sends off at once; any size up to the largest batch when not given."""
    max_queue_delay_us: int = Field(0, ge=0)
    """How long a request may wait for others, in microseconds."""


class InstanceGroup(_Part):
    """How many copies of the model run, and on what."""

    count: int = Field(1, ge=1)
    """Copies on each device."""
    kind: Device | None = None
    """`cpu` or `gpu`; what the engine runs on when not given."""
    gpus: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Numbers of the GPUs; all there are when not given."""


class Warmup(_Part):
    """Requests that Triton sends to the model itself before it takes others."""

    data: Literal["samples", "zero", "random"] = "samples"
    """What they hold: samples of the evaluation data, zeros, or random values."""
    batch_sizes: tuple[Positive, ...] = (1,)
    """One request of each size; only for a model with a batch axis."""
    shapes: dict[str, tuple[Positive, ...]] = Field(default_factory=dict)
    """Input -> its shape without the batch axis, for zeros and random values; that of the data when not given."""
    count: int = Field(1, ge=1)
    """How often each request is sent."""


class RepositoryOptions(_Part):
    """Options of a model repository that its configuration is written from."""

    model_name: str = Field("model", pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")
    """What clients call the model; the name of its folder."""
    version: int = Field(1, ge=1)
    """Its version; the name of the folder with its files."""
    max_batch_size: int | None = Field(None, ge=0)
    """Largest batch that Triton makes; 0: it makes none. When not given: 8 for a model with a free first axis on every input and output, else 0."""
    dynamic_batching: DynamicBatching | None = None
    """Put requests together that arrive one by one."""
    instance_group: InstanceGroup = InstanceGroup()
    """Copies of the model, and what they run on."""
    warmup: Warmup | None = None
    """Send requests to the model before it serves."""
    cuda_graphs: bool = False
    """Record kernels once and replay them; TensorRT engines alone."""
    compute_capabilities: tuple[Annotated[str, Field(pattern=r"^\d+\.\d$")], ...] = ()
    """GPUs that have an engine of their own, as in `"8.9"`; TensorRT engines alone. Triton opens `model.sm89.engine` on such a GPU."""

    @model_validator(mode="after")
    def _batches(self) -> RepositoryOptions:
        largest = self.max_batch_size
        asked = max(self.dynamic_batching.preferred_batch_sizes, default=0) if self.dynamic_batching else 0
        if largest is not None and asked > largest:
            raise ValueError(f"a preferred batch size of {asked} is more than max_batch_size, {largest}")
        return self
