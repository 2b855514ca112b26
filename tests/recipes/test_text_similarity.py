"""What the recipe `text-similarity` finds."""

from pathlib import Path

import numpy as np
import pytest

from quant.recipe.load import load_recipe


def rows():
    from quant.data.sources import fetch

    file = fetch(load_recipe(Path("text-similarity")).recipe.data, base=Path(), where="test")
    lines = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return [(first, second, float(rating)) for first, second, rating in lines]


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of transformers
def test_fp32_agrees_with_people_as_much_as_the_plain_encoder_does():
    from scipy.stats import pearsonr, spearmanr

    from quant.api import evaluate

    pairs = rows()
    cosines = _cosines([pair[:2] for pair in pairs])
    ratings = np.array([pair[2] for pair in pairs])
    assert spearmanr(cosines, ratings).statistic == pytest.approx(0.7289, abs=5e-5)  # what is known of this encoder on all 353 pairs
    first = [position for position, pair in enumerate(pairs) if pair[:2] not in [earlier[:2] for earlier in pairs[:position]]]
    assert len(first) == 352  # `money cash` is rated twice; inputs count once
    found = evaluate("text-similarity")
    assert found["spearman"] == pytest.approx(spearmanr(cosines[first], ratings[first]).statistic, abs=1e-4)
    assert found["pearson"] == pytest.approx(pearsonr(cosines[first], ratings[first]).statistic, abs=1e-5)


def _cosines(pairs):
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModel

    from quant.data.sources import fetch

    folder = fetch(load_recipe(Path("text-similarity")).recipe.model, base=Path(), where="test")
    model = AutoModel.from_pretrained(folder).eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()

    def embed(word):
        encoded = tokenizer.encode(word)
        with torch.no_grad():
            found = model(input_ids=torch.tensor([encoded.ids]), attention_mask=torch.tensor([encoded.attention_mask])).last_hidden_state[0].mean(0)
        return found.numpy().astype(np.float64)

    words = {word: embed(word) for pair in pairs for word in pair}
    return np.array([words[a] @ words[b] / np.linalg.norm(words[a]) / np.linalg.norm(words[b]) for a, b in pairs])


@pytest.mark.slow
@pytest.mark.network
def test_no_pair_is_calibrated_on_and_judged_and_every_pair_of_the_collection_is_judged():
    from quant.data.load import load_data
    from quant.data.sources import fetch

    loaded = load_recipe(Path("text-similarity"))
    folder = fetch(loaded.recipe.model, base=loaded.path, where="test")
    roles = load_data(loaded.recipe.data, base=loaded.path, where=loaded.where, model_folder=folder).roles
    assert {role: len(samples) for role, samples in roles.items()} == {"calibration": 256, "evaluation": 352}
    assert {len(sample.feeds) for samples in roles.values() for sample in samples} == {2}
    assert not {entry.content for entry in roles["calibration"].entries} & {entry.content for entry in roles["evaluation"].entries}
