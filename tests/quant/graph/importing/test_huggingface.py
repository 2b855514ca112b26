import json
import warnings

import numpy as np
import pytest

from quant.errors import ModelError
from quant.graph.importing.bring import import_model
from quant.graph.importing.huggingface import load_encoder
from quant.graph.model import read_model, signature
from quant.graph.runtime import Runtime
from quant.recipe.schema import ModelSpec

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")
SIZES = {"vocab_size": 99, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 20}


def _save(model, folder):
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    torch.manual_seed(0)
    config = transformers.BertConfig(max_position_embeddings=32, **SIZES)
    return _save(transformers.BertModel(config, add_pooling_layer=False), tmp_path_factory.mktemp("bert"))


def _states(folder, feed):
    """What the model itself gives: `[batch, sequence, width]`."""
    model = transformers.AutoModel.from_pretrained(folder, add_pooling_layer=False).eval()
    with torch.no_grad():
        return model(**{k: torch.from_numpy(v) for k, v in feed.items()}).last_hidden_state.numpy()


def _feed(rng, batch=3, length=6):
    mask = np.ones((batch, length), np.int64)
    mask[1, 3:] = 0
    mask[2, 1:] = 0
    return {"input_ids": rng.integers(1, 99, (batch, length)), "attention_mask": mask, "token_type_ids": np.zeros((batch, length), np.int64)}


def _by_hand(states, mask, pooling):
    if pooling == "none":
        return states
    if pooling == "cls":
        return states[:, 0]
    rows = [(s[m == 1].mean(0) if pooling == "mean" else s[m == 1].max(0)) for s, m in zip(states, mask, strict=True)]
    return np.stack(rows)


@pytest.mark.parametrize("normalize", [False, True], ids=["raw", "normalized"])
@pytest.mark.parametrize("pooling", ["none", "mean", "cls", "max"])
def test_padding_counts_for_nothing_in_any_pooling(bert, rng, pooling, normalize):
    feed = _feed(rng)
    expected = _by_hand(_states(bert, feed), feed["attention_mask"], pooling)
    if normalize:
        expected = expected / np.linalg.norm(expected, axis=-1, keepdims=True)
    encoder = load_encoder(bert, pooling=pooling, normalize=normalize)
    with torch.no_grad():
        found = encoder.module(*(torch.from_numpy(feed[n]) for n in encoder.inputs))[encoder.output].numpy()
    assert encoder.output == ("last_hidden_state" if pooling == "none" else "embedding")
    np.testing.assert_allclose(found, expected, atol=2e-6)


@pytest.mark.slow
def test_a_folder_becomes_a_graph_of_any_batch_and_length(bert, rng, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spec = ModelSpec(source="bert", pooling="mean", normalize=True)
        report = import_model(spec, bert, tmp_path, base=tmp_path, where="r.yaml:2", trust_code=False, examples=(), batch_axes={})
    model = read_model(tmp_path / "model.onnx")
    assert [str(s) for s in signature(model).inputs] == [f"{n}: int64 [batch, sequence]" for n in ("input_ids", "attention_mask", "token_type_ids")]
    assert [str(s) for s in signature(model).outputs] == ["embedding: float32 [batch, 16]"]
    assert report.kind == "huggingface"
    assert report.parity_max_abs < 1e-6
    query = next(n for n in model.graph if n.name == "encoder.layer.0.attention.self.query.MatMul")
    assert query.inputs[1].name == "encoder.layer.0.attention.self.query.weight"
    for batch, length in ((1, 4), (3, 6), (4, 17)):
        feed = {k: v[:batch] for k, v in _feed(rng, max(3, batch), length).items()}
        expected = _by_hand(_states(bert, feed), feed["attention_mask"], "mean")
        expected /= np.linalg.norm(expected, axis=-1, keepdims=True)
        np.testing.assert_allclose(Runtime(tmp_path / "model.onnx").run(feed)["embedding"], expected, atol=1e-6)


@pytest.mark.slow
def test_importing_twice_gives_the_same_bytes(bert, tmp_path):
    for name in "ab":
        import_model(ModelSpec(source="bert"), bert, tmp_path / name, base=tmp_path, where="w", trust_code=False, examples=(), batch_axes={})
    assert (tmp_path / "a" / "model.onnx").read_bytes() == (tmp_path / "b" / "model.onnx").read_bytes()
    assert (tmp_path / "a" / "model.onnx.data").read_bytes() == (tmp_path / "b" / "model.onnx.data").read_bytes()


@pytest.mark.slow
def test_a_classifier_keeps_its_own_head(rng, tmp_path):
    torch.manual_seed(1)
    model = transformers.DistilBertForSequenceClassification(
        transformers.DistilBertConfig(vocab_size=99, dim=16, n_layers=1, n_heads=2, hidden_dim=20, num_labels=3)
    )
    folder = _save(model.eval(), tmp_path / "distil")
    import_model(ModelSpec(source="distil"), folder, tmp_path / "out", base=tmp_path, where="w", trust_code=False, examples=(), batch_axes={})
    feed = {k: v for k, v in _feed(rng).items() if k != "token_type_ids"}
    with torch.no_grad():
        expected = model(**{k: torch.from_numpy(v) for k, v in feed.items()}).logits.numpy()
    runtime = Runtime(tmp_path / "out" / "model.onnx")
    assert runtime.inputs == ("input_ids", "attention_mask")
    np.testing.assert_allclose(runtime.run(feed)["logits"], expected, atol=1e-6)


@pytest.mark.slow
def test_an_encoder_of_pictures_is_read_too(rng, tmp_path):
    torch.manual_seed(2)
    sizes = {k: v for k, v in SIZES.items() if k != "vocab_size"}
    model = transformers.ViTModel(transformers.ViTConfig(image_size=16, patch_size=8, **sizes), add_pooling_layer=False).eval()
    folder = _save(model, tmp_path / "vit")
    import_model(ModelSpec(source="vit", pooling="cls"), folder, tmp_path / "out", base=tmp_path, where="w", trust_code=False, examples=(), batch_axes={})
    x = rng.normal(size=(3, 3, 16, 16)).astype("float32")
    with torch.no_grad():
        expected = model(torch.from_numpy(x)).last_hidden_state[:, 0].numpy()
    np.testing.assert_allclose(Runtime(tmp_path / "out" / "model.onnx").run({"pixel_values": x})["embedding"], expected, atol=1e-6)


def _config(folder, **settings):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "gpt2"}, "gpt2 is a decoder, which has nothing to pool"),
        ({"model_type": "t5"}, "t5 is an encoder-decoder; encoders and decoders are read"),
        ({"model_type": "nothing-known"}, "transformers cannot load the folder: "),
    ],
    ids=["decoder", "encoder-decoder", "unknown"],
)
def test_what_is_no_encoder_is_refused_before_its_weights_are_read(tmp_path, settings, message):
    folder = _config(tmp_path / "m", **settings)
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=message):
        load_encoder(folder, pooling="mean", normalize=False)


def test_pickled_weights_are_refused(tmp_path):
    folder = _config(tmp_path / "m", model_type="bert")
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02")
    with pytest.raises(ModelError, match=r"pickled weights are not loaded: pytorch_model.bin\nhint: .*safetensors"):
        load_encoder(folder, pooling="mean", normalize=False)


def test_a_folder_without_weights_or_with_a_broken_config_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"no \*.safetensors"):
        load_encoder(_config(tmp_path / "a", model_type="bert"), pooling="mean", normalize=False)
    with pytest.raises(ModelError, match=r"no config.json"):
        load_encoder(tmp_path, pooling="mean", normalize=False)
    (tmp_path / "a" / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"not JSON"):
        load_encoder(tmp_path / "a", pooling="mean", normalize=False)


def test_weights_that_would_be_random_are_an_error(bert, tmp_path):
    import safetensors.torch

    folder = tmp_path / "m"
    folder.mkdir()
    weights = safetensors.torch.load_file(bert / "model.safetensors")
    lost = weights.pop("encoder.layer.0.output.dense.weight")
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text((bert / "config.json").read_text())
    with pytest.raises(ModelError, match=r"the safetensors lack 1 weights, such as 'encoder.layer.0.output.dense.weight'"):
        load_encoder(folder, pooling="mean", normalize=False)
    weights["encoder.layer.0.output.dense.weight"] = lost[:, :-1].contiguous()
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"other shapes than config.json says|cannot load the folder"):
        load_encoder(folder, pooling="mean", normalize=False)
