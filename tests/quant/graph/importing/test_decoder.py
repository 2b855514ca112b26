"""Language models out of folders and GGUF files, against what transformers computes."""

import numpy as np
import pytest

from quant.errors import ModelError
from quant.graph.importing.bring import import_model
from quant.graph.importing.decoder import load_decoder
from quant.graph.layers import find_layers
from quant.graph.model import read_model, signature
from quant.graph.runtime import Runtime
from quant.recipe.schema import ModelSpec

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")
V, H, HEADS, SHARED, INNER = 300, 64, 4, 2, 96


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(0)
    sizes = {"vocab_size": V, "hidden_size": H, "num_attention_heads": HEADS, "num_key_value_heads": SHARED, "intermediate_size": INNER, "num_hidden_layers": 1}
    config = transformers.LlamaConfig(**sizes, max_position_embeddings=64, tie_word_embeddings=True, attn_implementation="eager", rms_norm_eps=1e-5)
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.1)
    return model


@pytest.fixture(scope="module")
def folder(llama, tmp_path_factory):
    transformers.utils.logging.disable_progress_bar()
    llama.save_pretrained(made := tmp_path_factory.mktemp("llama"))
    return made


@pytest.fixture(scope="module")
def gguf_file(llama, tmp_path_factory):
    """The same weights as llama.cpp's own converter lays them out: the two halves of each rotated pair beside each other."""
    gguf = pytest.importorskip("gguf")
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(64)
    writer.add_embedding_length(H)
    writer.add_block_count(1)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(SHARED)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(H // HEADS)
    writer.add_vocab_size(V)
    weights = {name: array.numpy() for name, array in llama.state_dict().items()}

    def beside(name, heads):
        array = weights[f"model.layers.0.self_attn.{name}.weight"]
        return array.reshape(heads, 2, -1, H).swapaxes(1, 2).reshape(array.shape)

    inside = {
        "attn_norm": weights["model.layers.0.input_layernorm.weight"],
        "ffn_norm": weights["model.layers.0.post_attention_layernorm.weight"],
        "attn_q": beside("q_proj", HEADS),
        "attn_k": beside("k_proj", SHARED),
        "attn_v": weights["model.layers.0.self_attn.v_proj.weight"],
        "attn_output": weights["model.layers.0.self_attn.o_proj.weight"],
        **{f"ffn_{part}": weights[f"model.layers.0.mlp.{part}_proj.weight"] for part in ("gate", "up", "down")},
    }
    outside = {"token_embd": weights["model.embed_tokens.weight"], "output_norm": weights["model.norm.weight"]}
    for name, array in {**outside, **{f"blk.0.{name}": array for name, array in inside.items()}}.items():
        writer.add_tensor(f"{name}.weight", np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def imported(folder, tmp_path_factory):
    """The graph's file, and what was said of the import."""
    out = tmp_path_factory.mktemp("out")
    return out / "model.onnx", import_model(ModelSpec(source="m"), folder, out, base=out, where="r.yaml:2", trust_code=False, examples=(), batch_axes={})


def logits(llama, ids):
    with torch.no_grad():
        return llama(input_ids=torch.from_numpy(ids), use_cache=False).logits.numpy()


def test_a_decoder_gives_the_logits_of_every_position_and_holds_its_table_once(imported, llama, rng):
    path, report = imported
    model = read_model(path)
    assert report.kind == "huggingface"
    assert "tie tables" in [step.name for step in report.steps]
    assert [str(s) for s in signature(model).inputs] == ["input_ids: int64 [batch, sequence]"]
    assert [str(s) for s in signature(model).outputs] == [f"logits: float32 [batch, sequence, {V}]"]
    for shape in ((1, 5), (3, 17)):
        ids = rng.integers(0, V, shape)
        np.testing.assert_allclose(Runtime(path).run({"input_ids": ids})["logits"], logits(llama, ids), rtol=0, atol=1e-5)
    assert sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value.size >= V * H) == 4 * V * H
    layers = {layer.name for layer in find_layers(model)}
    assert {"lm_head.MatMul", "model.layers.0.mlp.down_proj.MatMul", "model.layers.0.self_attn.q_proj.MatMul"} <= layers


def test_a_position_does_not_see_what_comes_after_it(imported, rng):
    ids = rng.integers(0, V, (1, 9))
    runtime = Runtime(imported[0])
    whole, part = (runtime.run({"input_ids": ids[:, :end]})["logits"] for end in (9, 6))
    np.testing.assert_allclose(whole[:, :6], part, rtol=0, atol=1e-5)


def test_a_gguf_file_is_the_same_model(gguf_file, llama, rng):
    decoder = load_decoder(gguf_file)
    ids = rng.integers(0, V, (2, 9))
    with torch.no_grad():
        found = decoder.module(torch.from_numpy(ids))["logits"].numpy()
    np.testing.assert_allclose(found, logits(llama, ids), rtol=0, atol=1e-5)
    assert {name for feed in decoder.stand_in for name in feed} == {"input_ids"}


def test_a_gguf_file_is_known_by_its_first_bytes(gguf_file, tmp_path):
    from quant.graph.importing.kinds import model_kind

    assert model_kind(ModelSpec(source="m"), gguf_file, where="w") == "gguf"
    assert model_kind(ModelSpec(source="m", kind="gguf"), gguf_file, where="w") == "gguf"
    with pytest.raises(ModelError, match=r"w: kind 'onnx' is not that of a GGUF file\nhint: write `kind: gguf`"):
        model_kind(ModelSpec(source="m", kind="onnx"), gguf_file, where="w")
    (other := tmp_path / "a.gguf").write_bytes(b"something else")
    with pytest.raises(ModelError, match="kind 'gguf' needs a GGUF file"):
        model_kind(ModelSpec(source="m", kind="gguf"), other, where="w")


def test_a_damaged_gguf_file_is_said(gguf_file, tmp_path):
    (broken := tmp_path / "b.gguf").write_bytes(gguf_file.read_bytes()[:100])
    with pytest.raises(ModelError, match="transformers cannot load the GGUF file"):
        load_decoder(broken)
