"""What calibration costs beside the plain FP32 pass, in time and in memory: a MiniLM encoder over film reviews of 128 tokens."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from quant.core.signature import Signature

pytestmark = [pytest.mark.benchmark, pytest.mark.slow, pytest.mark.network]

RECIPE = "text-sentiment"
TOKENS = 128
BATCH = 8
ROUNDS = 3
TIME_LIMIT = 1.5
MEMORY_LIMIT = 1.05


@dataclass(frozen=True)
class Texts:
    """Rows of token numbers, each exactly `TOKENS` long, as calibration samples."""

    tokens: np.ndarray
    inputs: tuple[str, ...]
    role: str = "calibration"
    digest: str = "texts"

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, position):
        from quant.data.samples import Sample

        fill = {"input_ids": self.tokens[position], "attention_mask": np.ones(TOKENS, np.int64), "token_type_ids": np.zeros(TOKENS, np.int64)}
        return Sample(position, ({name: fill[name] for name in self.inputs},))

    def __iter__(self):
        return (self[i] for i in range(len(self)))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """Folder with the FP32 graph, and with the reviews of the movie set laid end to end and cut into rows of `TOKENS` tokens."""
    from tokenizers import Tokenizer

    from quant.data.sources import fetch
    from quant.engine.bind import bind
    from quant.graph.importing import import_model
    from quant.recipe.load import load_recipe

    folder = tmp_path_factory.mktemp("encoder")
    loaded = load_recipe(RECIPE, [])
    bind(loaded, trust_code=False)
    recipe = loaded.recipe
    source = fetch(recipe.model, base=loaded.path)
    import_model(recipe.model, source, folder, base=loaded.path, where="model", trust_code=False, examples=[], batch_axes={})
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    lines = fetch(recipe.data, base=loaded.path).read_text(encoding="utf-8", errors="replace").splitlines()
    ids = [i for line in lines for i in tokenizer.encode(line.split("\t")[-1], add_special_tokens=False).ids]
    inner = TOKENS - 2
    rows = np.asarray(ids[: 512 * inner], np.int64).reshape(512, inner)
    first, last = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    np.save(folder / "tokens.npy", np.concatenate([np.full((512, 1), first), rows, np.full((512, 1), last)], axis=1))
    return folder


class Bench:
    """The FP32 pass and the calibration of the encoder in `folder` over its first `texts` rows."""

    def __init__(self, folder: Path, texts: int) -> None:
        from quant.graph.layers import find_layers
        from quant.graph.model import read_model, signature
        from quant.schemes import SCHEMES
        from quant.stages.running import Feeding
        from quant.targets import TARGETS

        self.path = folder / "model.onnx"
        model = read_model(self.path)
        found: Signature = signature(model)
        dialect = TARGETS.make("onnxruntime").dialect
        scheme = SCHEMES.make("int8")
        self.points = dict(scheme.needs(model, scheme.plan(model, find_layers(model), dialect), dialect).ranges)
        self.samples = Texts(np.load(folder / "tokens.npy")[:texts], tuple(spec.name for spec in found.inputs))
        self.feeding = Feeding(found, BATCH)

    def plain(self) -> None:
        from quant.graph.runtime import Runtime
        from quant.stages.running import run_samples

        for _ in run_samples(Runtime(self.path).run, self.samples, self.feeding):
            pass

    def calibrate(self) -> None:
        """One pass, and the ranges of all calibrators from it."""
        from calibrators import CALIBRATORS
        from calibrators.ranges import ranges
        from quant.core.formats import UINT8
        from quant.stages.calibrate import calibrate

        table = calibrate(self.path, self.samples, sorted(self.points), self.feeding, magnitudes=False, digest="")
        for kind in CALIBRATORS:
            ranges(table.statistics, CALIBRATORS.make(kind), UINT8, workers=1)


def timed(work) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def test_calibration_costs_at_most_half_a_pass_more_than_the_pass_itself(encoder, monkeypatch):
    monkeypatch.setenv("QUANT_THREADS", "1")
    bench = Bench(encoder, 128)
    bench.plain()
    plain, calibration = [], []
    for _ in range(ROUNDS):
        plain.append(timed(bench.plain))
        calibration.append(timed(bench.calibrate))
    ratios = {}
    for at, clock in enumerate(("wall", "CPU")):
        pass_s, whole_s = (statistics.median(run[at] for run in runs) for runs in (plain, calibration))
        ratios[clock] = whole_s / pass_s
        print(
            f"{clock:4}: FP32 pass {pass_s:6.2f} s, calibration with all calibrators {whole_s:6.2f} s, ratio {ratios[clock]:.3f} ({len(bench.points)} tensors)"
        )
    assert ratios["CPU"] <= TIME_LIMIT


@pytest.mark.parametrize("work", ["calibrate"])
def test_four_times_the_texts_need_no_more_memory(encoder, work):
    peaks = {}
    for texts in (128, 512):
        environment = {**os.environ, "QUANT_THREADS": "2"}
        command = [sys.executable, __file__, str(encoder), work, str(texts)]
        out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        peaks[texts] = json.loads(out)["peak_bytes"]
    print(f"peak memory: {peaks[128] / 2**20:.0f} MiB with 128 texts, {peaks[512] / 2**20:.0f} MiB with 512, ratio {peaks[512] / peaks[128]:.3f}")
    assert peaks[512] <= MEMORY_LIMIT * peaks[128]


if __name__ == "__main__":
    import resource

    getattr(Bench(Path(sys.argv[1]), int(sys.argv[3])), sys.argv[2])()
    sys.stdout.write(json.dumps({"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}) + "\n")
