"""A language model (a decoder) out of a Hugging Face folder or a GGUF file: token ids in, logits of every position out, no cache of keys and values."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from quant.core.quiet import quiet
from quant.errors import ModelError
from quant.graph.importing.trial import Array

INPUT, OUTPUT = "input_ids", "logits"
DYNAMIC = {INPUT: {0: "batch", 1: "sequence"}}
_OTHERWISE = "bring the model as a Hugging Face folder, or as ONNX"
_LENGTHS = (8, 5)  # of the texts that stand in for data when there is none


@dataclass(frozen=True)
class Decoder:
    """A loaded decoder, ready for export.

    Args:
        module: Takes ids `[batch, sequence]` and gives a mapping with `logits`, `[batch, sequence, vocabulary]`.
        stand_in: Feeds (without the batch axis) of the right form, for export and comparison.
    """

    module: Any
    stand_in: tuple[dict[str, Array], ...]


def load_decoder(path: Path) -> Decoder:
    """The decoder in a GGUF file, dequantized to FP32.

    Raises:
        ModelError: gguf is not installed, the file is damaged, or transformers does not know its architecture.
    """
    try:
        import gguf  # noqa: F401, PLC0415 - transformers reads the file with it
    except ImportError as error:
        raise ModelError("gguf is not installed", where=str(path), hint="install it again: pip install gguf") from error
    import transformers  # noqa: PLC0415 - heavy
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint  # noqa: PLC0415 - heavy

    try:
        with quiet():
            config = transformers.AutoConfig.from_pretrained(os.fspath(path.parent), gguf_file=path.name, local_files_only=True)
            model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")  # type: ignore[no-untyped-call]  # transformers has no types
            # Not `from_pretrained`, which wants one more package to do the same.
            weights = load_gguf_checkpoint(os.fspath(path), return_tensors=True, model_to_load=model)["tensors"]  # type: ignore[no-untyped-call]  # transformers has no types
            told = model.load_state_dict(weights, strict=False)
            model.tie_weights()
    except (OSError, ValueError, KeyError, IndexError, ImportError, RuntimeError, struct.error) as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(f"transformers cannot load the GGUF file: {said}", where=str(path), hint=_OTHERWISE) from error
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    lost = sorted({*told.missing_keys} - tied)
    if lost or told.unexpected_keys:
        what = f"the file has no weight for {lost[0]!r}" if lost else f"the file has a weight {told.unexpected_keys[0]!r} that a {config.model_type} has not"
        raise ModelError(what, where=str(path), hint=_OTHERWISE)
    return wrap_decoder(model, config)


def wrap_decoder(model: Any, config: Any) -> Decoder:
    """`model` (a causal language model of transformers) as it is exported: without a cache, and without a mask."""
    import torch  # noqa: PLC0415 - heavy

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
            return {OUTPUT: self.model(input_ids=input_ids, use_cache=False).logits}

    model.float().eval()
    size = int(config.get_text_config().vocab_size)
    return Decoder(Logits().eval(), tuple({INPUT: np.random.default_rng(length).integers(0, size, length, dtype=np.int64)} for length in _LENGTHS))
