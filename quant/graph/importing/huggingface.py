"""A Hugging Face folder (`config.json` and safetensors): encoders of text or pictures and their classifiers, and language models."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from quant.core.quiet import quiet
from quant.errors import ModelError
from quant.graph.importing.decoder import Decoder, wrap_decoder
from quant.graph.importing.trial import Array

_TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_CLASSIFIERS = {
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForTokenClassification": "AutoModelForTokenClassification",
    "ForImageClassification": "AutoModelForImageClassification",
}
_LENGTHS = (8, 5)  # of the texts that stand in for data when there is none


@dataclass(frozen=True)
class Encoder:
    """A loaded encoder, ready for export.

    Args:
        module: Takes the inputs by position and gives a mapping with one output.
        inputs: Names of the inputs, in order.
        output: Name of the output.
        stand_in: Feeds (without the batch axis) of the right form, for export and comparison.
        dynamic: Input -> axis -> name of the axis.
    """

    module: Any
    inputs: tuple[str, ...]
    output: str
    stand_in: tuple[dict[str, Array], ...]
    dynamic: dict[str, dict[int, str]]


def load_encoder(folder: Path, *, pooling: str, normalize: bool) -> Encoder:
    """The encoder in `folder`, with pooling and normalization.

    A fine-tuned classifier keeps its own head (output `logits`) when no pooling is asked for.

    Raises:
        ModelError: transformers is not installed, the folder lacks something, its weights are pickled, or it is no encoder.
    """
    config = _check_folder(folder)
    head = next((auto for suffix, auto in _CLASSIFIERS.items() if str((config.get("architectures") or [""])[0]).endswith(suffix)), None)
    keeps_head = head is not None and pooling == "none" and not normalize
    model, settings = _load(folder, str(head) if keeps_head else "AutoModel", _check_encoder)
    return _wrap(model.float().eval(), settings, folder, pooling=pooling, normalize=normalize, output="logits" if keeps_head else None)


def load_language_model(folder: Path) -> Decoder:
    """The decoder in `folder`, with its head.

    Raises:
        ModelError: As `load_encoder`.
    """
    _check_folder(folder)
    return wrap_decoder(*_load(folder, "AutoModelForCausalLM", lambda _settings, _folder: None))


def is_language_model(folder: Path) -> bool:
    """Whether `folder` holds a model that foretells the next token.

    Raises:
        ModelError: `config.json` is missing or damaged.
    """
    from transformers.models.auto import modeling_auto as auto  # noqa: PLC0415 - heavy

    config = _check_folder(folder)
    kind = config.get("model_type")
    decodes = kind in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    classifies = str((config.get("architectures") or [""])[0]).endswith(tuple(_CLASSIFIERS))
    return decodes and not classifies and not config.get("is_encoder_decoder", False)


def _load(folder: Path, auto: str, check: Callable[[Any, Path], None]) -> tuple[Any, Any]:
    """(model, its settings), by the class `auto` of transformers."""
    try:
        import transformers  # noqa: PLC0415 - heavy
    except ImportError as error:
        raise ModelError("transformers is not installed", where=str(folder), hint="install it again: pip install transformers") from error
    with quiet(), _no_progress(transformers):
        try:
            settings = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
            check(settings, folder)
            options = {"attn_implementation": "eager", "local_files_only": True, "use_safetensors": True, "output_loading_info": True}
            model, loaded = getattr(transformers, auto).from_pretrained(folder, **options)
        except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ModelError(
                f"transformers cannot load the folder: {said}", where=str(folder), hint="check config.json and the weights; custom code is not run"
            ) from error
    _check_weights(loaded, folder)
    return model, settings


def _check_weights(loaded: Mapping[str, Any], folder: Path) -> None:
    """Refuse a model some of whose weights would be random; BERT's pooler is not used, and often not there."""
    missing = sorted(k for k in loaded["missing_keys"] if "pooler" not in k)
    uneven = sorted(str(k) for k in loaded["mismatched_keys"])
    if missing or uneven:
        what = (
            f"the safetensors lack {len(missing)} weights, such as {missing[0]!r}"
            if missing
            else f"weights have other shapes than config.json says: {uneven[0]}"
        )
        raise ModelError(what, where=str(folder), hint="config.json and the weights must be of one model; copy the folder again")


def _check_folder(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError("no config.json in the folder", where=str(folder), hint="give the folder of a Hugging Face model") from error
    except ValueError as error:
        raise ModelError(f"not JSON: {error}", where=str(file), hint="the file is damaged; copy it again") from error
    if not isinstance(config, dict):
        raise ModelError("not a mapping", where=str(file), hint="give the config.json of a Hugging Face model")
    if not any(folder.glob("*.safetensors")):
        pickled = sorted(p.name for p in folder.glob("*.bin")) + sorted(p.name for p in folder.glob("*.pt"))
        if pickled:
            hint = "save the model with safe_serialization=True (safetensors)"
            raise ModelError(f"pickled weights are not loaded: {pickled[0]}", where=str(folder), hint=hint)
        raise ModelError("no *.safetensors in the folder", where=str(folder), hint="give the folder of a Hugging Face model with its weights")
    return config


@contextmanager
def _no_progress(transformers: Any) -> Iterator[None]:
    """No progress bars and no messages while a model is loaded; as before afterwards."""
    shown, level = transformers.utils.logging.is_progress_bar_enabled(), transformers.logging.get_verbosity()
    transformers.utils.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(level)
        if shown:
            transformers.utils.logging.enable_progress_bar()


def _check_encoder(settings: Any, folder: Path) -> None:
    from transformers.models.auto import modeling_auto as auto  # noqa: PLC0415 - heavy

    hint = "export it to ONNX, or name a function that builds the module (kind: torch)"
    if getattr(settings, "is_encoder_decoder", False):
        raise ModelError(f"{settings.model_type} is an encoder-decoder; encoders and decoders are read from a folder", where=str(folder), hint=hint)
    decodes = settings.model_type in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and settings.model_type not in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if decodes or getattr(settings, "is_decoder", False):
        raise ModelError(f"{settings.model_type} is a decoder, which has nothing to pool", where=str(folder), hint=hint)


def _wrap(model: Any, settings: Any, folder: Path, *, pooling: str, normalize: bool, output: str | None) -> Encoder:
    taken = inspect.signature(model.forward).parameters
    main = str(model.main_input_name)
    output = output or ("last_hidden_state" if pooling == "none" else "embedding")
    if main == "input_ids":
        inputs = tuple(n for n in _TEXT_INPUTS if n in taken and (n != "token_type_ids" or getattr(settings, "type_vocab_size", 0) > 1))
        stand_in = tuple(_text(inputs, length, settings) for length in _LENGTHS)
        dynamic = {name: {0: "batch", 1: "sequence"} for name in inputs}
    elif main == "pixel_values":
        inputs, dynamic = ("pixel_values",), {"pixel_values": {0: "batch"}}
        stand_in = (_picture(settings, folder),)
    else:
        raise ModelError(
            f"{settings.model_type} reads {main!r}; encoders of text and pictures are read from a folder", where=str(folder), hint="export it to ONNX"
        )
    return Encoder(_module(model, inputs, output, pooling=pooling, normalize=normalize), inputs, output, stand_in, dynamic)


def _text(inputs: Sequence[str], length: int, settings: Any) -> dict[str, Array]:
    """Tokens of a fixed seed; the last of them is padding."""
    tokens = np.random.default_rng(length).integers(0, int(settings.vocab_size), length, dtype=np.int64)
    pad = getattr(settings, "pad_token_id", None)
    if pad is not None:
        tokens[tokens == pad] = (pad + 1) % int(settings.vocab_size)
        tokens[-1] = pad
    mask = np.ones(length, dtype=np.int64)
    mask[-1] = 0
    feed = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": np.zeros(length, dtype=np.int64)}
    return {name: feed[name] for name in inputs}


def _picture(settings: Any, folder: Path) -> dict[str, Array]:
    side = getattr(settings, "image_size", None)
    if side is None:
        raise ModelError("config.json has no image_size", where=str(folder), hint="add the height and width that the model was trained with")
    height, width = side if isinstance(side, list | tuple) else (side, side)
    shape = (int(getattr(settings, "num_channels", 3)), int(height), int(width))
    return {"pixel_values": np.random.default_rng(0).normal(size=shape).astype(np.float32)}


def _module(model: Any, inputs: Sequence[str], output: str, *, pooling: str, normalize: bool) -> Any:
    import torch  # noqa: PLC0415 - heavy

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *arrays: torch.Tensor) -> dict[str, torch.Tensor]:
            named = dict(zip(inputs, arrays, strict=True))
            found = self.model(**named)
            if output == "logits":
                return {output: found.logits}
            return {output: _pool(found.last_hidden_state, named.get("attention_mask"), pooling=pooling, normalize=normalize)}

    return Pooled().eval()


def _pool(states: Any, mask: Any, *, pooling: str, normalize: bool) -> Any:
    """`[batch, sequence, width]` to `[batch, width]`; padding counts for nothing."""
    import torch  # noqa: PLC0415 - heavy

    keep = None if mask is None else mask.unsqueeze(-1).to(states.dtype)
    if pooling == "mean":
        pooled = states.mean(1) if keep is None else (states * keep).sum(1) / keep.sum(1).clamp(min=1e-9)
    elif pooling == "max":
        pooled = (states if keep is None else states.masked_fill(keep == 0, torch.finfo(states.dtype).min)).amax(1)
    else:
        pooled = states[:, 0] if pooling == "cls" else states
    return torch.nn.functional.normalize(pooled, p=2.0, dim=-1) if normalize else pooled
