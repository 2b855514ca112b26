"""What the recipe `language-model` finds, and the same on a tiny decoder from end to end."""

import json
import subprocess
import sys

import pytest
import yaml

from quant.report.load import load_report

WORDS = ["?", *"abcdefghijklmnopqrstuvwxyz"]
INT4 = {"kind": "int4", "block_size": 64, "embeddings": False}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder with a decoder of 26 letters, its tokenizer, and texts that go through the alphabet."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("tiny")
    torch.manual_seed(0)
    sizes = {"vocab_size": 27, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "num_hidden_layers": 1}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, tie_word_embeddings=True))
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(folder / "model")
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": {"type": "Whitespace"}}
    inner = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "?"}
    (folder / "model" / "tokenizer.json").write_text(json.dumps({**tokenizer, "post_processor": None, "decoder": None, "model": inner}))
    rows = [{"text": " ".join(WORDS[1 + (start + step * i) % 26] for i in range(33))} for start in range(26) for step in (1, 3)]
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = {
        "version": 1,
        "name": "tiny",
        "model": {"source": "model"},
        "data": {"source": "texts.jsonl", "inputs": {"kind": "tokens", "length": 16}, "splits": {"calibration": 16, "evaluation": "rest"}},
        "schemes": [{**INT4, "name": "gptq", "method": "gptq"}, {**INT4, "name": "rtn", "method": "rtn", "search": False}],
        "evaluation": {"metrics": ["perplexity"]},
        "gate": {"max_drop": 0.3, "relative": True},
        "latency": {"requests": 2, "warmup": 0},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return folder


def test_a_tiny_decoder_goes_from_its_folder_to_a_verdict(tiny):
    from quant.engine.run import run

    report = run(tiny / "recipe.yaml", output=tiny / "out").report
    gates = {candidate.scheme: candidate.gates[0].verdict for candidate in report.candidates}
    assert set(gates) == {"gptq", "rtn"}
    # 26 starts and 2 steps; the second window of a text is another text's first.
    assert all(verdict.samples == 52 - 16 for verdict in gates.values())
    # An untrained model hesitates between about all 27 tokens.
    assert 20 < gates["gptq"].baseline < 40
    assert all(candidate.verdict == "pass" for candidate in report.candidates)
    assert all(candidate.size_ratio < 1 for candidate in report.candidates)
    audited = {row.planned for candidate in report.candidates for row in candidate.audit}
    assert "int4" in audited


def found(tmp_path, *overrides):
    """Scheme -> candidate, of the shipped recipe run as a user runs it, and the perplexity of FP32."""
    command = [sys.executable, "-m", "quant.cli", "run", "language-model", "--output", str(tmp_path), *(part for o in overrides for part in ("--set", o))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    report = load_report(tmp_path)
    assert report.sentence in done.stdout
    for candidate in report.candidates:
        gate = candidate.gates[0].verdict
        print(f"{candidate.scheme}: perplexity {gate.baseline:.2f} -> {gate.value:.2f}, size {candidate.size_ratio:.2f}")
    return {candidate.scheme: candidate for candidate in report.candidates}


def lost(candidate):
    verdict = candidate.gates[0].verdict
    return verdict.value - verdict.baseline


@pytest.mark.benchmark
@pytest.mark.network
def test_what_looks_at_data_loses_at_most_half_of_what_rounding_loses(tmp_path):
    candidates = found(tmp_path)
    assert lost(candidates["int4-rtn"]) > 0
    assert lost(candidates["int4-gptq"]) <= lost(candidates["int4-rtn"]) / 2
    assert lost(candidates["int4-awq"]) <= lost(candidates["int4-rtn"]) / 2
    # Of 134.5 million weights 28.3 stay, tied, in FP32; the others take 4 bits and 32 / 64 for their scales.
    assert candidates["int4-gptq"].size_ratio == pytest.approx((28.3 * 32 + 106.2 * 4.5) / (134.5 * 32), abs=0.01)
    # From 41.6 with plain ranges, where FP32 has 20.86, to 22 at most.
    int8 = candidates["int8"].gates[0].verdict
    assert int8.value / int8.baseline <= 22 / 20.86
