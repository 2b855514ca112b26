"""`config.pbtxt`: what Triton is told of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from quant.core.signature import Signature, TensorSpec
from quant.errors import TargetError
from quant.targets.model_repository.backends import Backend, Device
from quant.targets.model_repository.options import RepositoryOptions
from quant.targets.model_repository.tensors import described, dims_of, no_batch_axis
from quant.targets.model_repository.text import Field, Message, Word, as_text, entries

CONFIG_FILE = "config.pbtxt"
_USUAL_BATCH = 8


@dataclass(frozen=True)
class Served:
    """A model as it is to be served.

    Args:
        backend: What opens its file.
        file: Name of the file that is opened.
        signature: Its inputs and outputs.
        options: What the recipe says.
        device: What it runs on when the recipe does not say.
        most: Largest batch that the engine takes; None when any.
        accelerator: What ONNX Runtime runs it with on a GPU, and how: (name, parameters).
    """

    backend: Backend
    file: str
    signature: Signature
    options: RepositoryOptions
    device: Device
    most: int | None = None
    accelerator: tuple[str, Mapping[str, str]] | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """What clients call the inputs."""
        return _names(self.signature.inputs, "INPUT", numbered=self.backend.numbered)

    @property
    def outputs(self) -> tuple[str, ...]:
        """What clients call the outputs."""
        return _names(self.signature.outputs, "OUTPUT", numbered=self.backend.numbered)

    def max_batch_size(self) -> int:
        """Largest batch that Triton may make; 0 when it makes none.

        Raises:
            TargetError: The recipe wants batches that the model or its engine cannot take.
        """
        asked, why = self.options.max_batch_size, no_batch_axis(self.signature)
        if why:
            if asked:
                raise TargetError(f"max_batch_size is {asked}, and Triton cannot make batches for this model: {why}", hint="leave max_batch_size out, or 0")
            if self.options.dynamic_batching:
                raise TargetError(f"dynamic_batching needs a batch axis: {why}", hint="leave dynamic_batching out, or export the model with a free first axis")
            return 0
        preferred = self.options.dynamic_batching.preferred_batch_sizes if self.options.dynamic_batching else ()
        chosen = asked if asked is not None else (self.most or max(_USUAL_BATCH, *preferred, 0))
        if self.most is not None and chosen > self.most:
            what = f"max_batch_size is {chosen}, and the engine's profile ends at batches of {self.most}"
            raise TargetError(what, hint="widen the engine's `profiles`, or lower max_batch_size")
        if chosen == 0 and self.options.dynamic_batching:
            raise TargetError("dynamic_batching needs a max_batch_size of 1 or more, and it is 0")
        if any(size > chosen for size in preferred):
            raise TargetError(f"a preferred batch size of {max(preferred)} is more than max_batch_size, {chosen}")
        return chosen


def configuration(served: Served, warmup: list[Message]) -> str:
    """The text of `config.pbtxt`.

    Args:
        served: The model.
        warmup: Its warm-up requests, as `warmup.requests` gives them.

    Raises:
        TargetError: The recipe asks for what the model or its backend cannot do.
    """
    options, largest = served.options, served.max_batch_size()
    told: dict[str, Field] = {
        "name": options.model_name,
        "backend": served.backend.name,
        "max_batch_size": largest,
        "default_model_filename": served.file,
        "version_policy": {"specific": {"versions": [options.version]}},
        "input": described(served.signature.inputs, served.inputs, batched=largest > 0),
        "output": described(served.signature.outputs, served.outputs, batched=largest > 0),
    }
    if options.dynamic_batching:
        batching = options.dynamic_batching
        told["dynamic_batching"] = {
            "preferred_batch_size": list(batching.preferred_batch_sizes),
            "max_queue_delay_microseconds": batching.max_queue_delay_us,
        }
    told["instance_group"] = [_instances(served)]
    if optimization := _optimization(served, largest):
        told["optimization"] = optimization
    if options.compute_capabilities:
        told["cc_model_filenames"] = entries({c: engine_file(served.file, c) for c in options.compute_capabilities})
    told["model_warmup"] = warmup
    return as_text(told)


def engine_file(file: str, capability: str) -> str:
    """Name of the engine for one GPU, beside `file`.

    Example:
        >>> engine_file("model.engine", "8.9")
        'model.sm89.engine'
    """
    stem, _, suffix = file.rpartition(".")
    return f"{stem}.sm{capability.replace('.', '')}.{suffix}"


def _names(specs: tuple[TensorSpec, ...], word: str, *, numbered: bool) -> tuple[str, ...]:
    return tuple(f"{word}__{number}" if numbered else spec.name for number, spec in enumerate(specs))


def _instances(served: Served) -> Message:
    group = served.options.instance_group
    kind = group.kind or ("gpu" if group.gpus else served.device)
    if kind not in served.backend.devices:
        raise TargetError(f"Triton's backend {served.backend.name!r} has no instances of kind {kind!r}", hint=f"it has {', '.join(served.backend.devices)}")
    if group.gpus and kind != "gpu":
        raise TargetError("instance_group names `gpus`, and its kind is cpu", hint="leave one of the two out")
    return {"count": group.count, "kind": Word(f"KIND_{kind.upper()}"), "gpus": list(group.gpus)}


def _optimization(served: Served, largest: int) -> dict[str, Field]:
    options = served.options
    if (options.cuda_graphs or options.compute_capabilities) and not served.backend.graphs:
        name = "cuda_graphs" if options.cuda_graphs else "compute_capabilities"
        raise TargetError(f"Triton's backend {served.backend.name!r} knows no {name}; only that of TensorRT engines does", hint=f"leave {name} out")
    if options.cuda_graphs:
        return {"cuda": {"graphs": True, "graph_spec": _graph_specs(served, largest)}}
    if served.accelerator is not None:
        name, parameters = served.accelerator
        accelerator: Message = {"name": name, "parameters": entries(parameters)}
        return {"execution_accelerators": {"gpu_execution_accelerator": [accelerator]}}
    return {}


def _graph_specs(served: Served, largest: int) -> list[Message]:
    """A graph for each preferred batch size, and the largest; none, which leaves it to Triton, for a model with other open lengths."""
    batching = served.options.dynamic_batching
    sizes = sorted({*(batching.preferred_batch_sizes if batching else ()), largest})
    dims = {name: dims_of(spec, batched=largest > 0) for name, spec in zip(served.inputs, served.signature.inputs, strict=True)}
    if any(-1 in found for found in dims.values()):
        return []
    return [{"batch_size": size, "input": entries({name: {"dim": found} for name, found in dims.items()})} for size in sizes]
