"""The content of a report: one document, from which every page and file is made.

Everything but `timings` and the `latency_ratio` of candidates is the same, byte for byte, whenever the same recipe runs on
the same inputs with the same versions; `results_digest` is the digest of just that part.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from evaluators.agreement import Agreement
from quant.core.digest import digest_of
from quant.core.documents import AuditRow, Decision, Document, LayerChoice
from quant.report.delivered import Delivered
from quant.report.faces import ReportFaces
from quant.report.gate_row import GateRow
from quant.report.graph import LayerGraph
from quant.report.mixing import MixingRow

REPORT_VERSION = 1


class FidelityRow(Document):
    """Closeness of a candidate's output to FP32, without labels.

    Args:
        output: The output that was compared.
        samples: Number of rows compared.
        exact: Whether every value was the same (then `sqnr_db` is None).
        sqnr_db: Signal to quantization noise, dB.
        cosine_mean: Mean over samples of the cosine to FP32.
        cosine_min: The smallest of them.
        max_abs_error: Largest absolute difference.
        kl: Mean KL divergence of the softmax from FP32's; None for outputs with one column.
        agreement: Share of rows with the same largest entry; None for outputs with one column.
    """

    output: str
    samples: int
    exact: bool
    sqnr_db: float | None
    cosine_mean: float
    cosine_min: float
    max_abs_error: float
    kl: float | None
    agreement: float | None


class TransformRow(Document):
    """What became of one transform.

    Args:
        transform: Its title.
        kept: Whether the model was quantized with it.
        before: Squared error of the quantized outputs without it, on the samples that judge, as a share of their square; None when not finite.
        after: The same with it; None when it found nothing to do, too.
        reason: Why it was kept or not.
        layers: Layer -> what was done to it; empty when not kept.
    """

    transform: str
    kept: bool
    before: float | None
    after: float | None
    reason: str
    layers: dict[str, str] = Field(default_factory=dict)


class EpochRow(Document):
    """One pass of training.

    Args:
        loss: Mean loss over the training samples, while weights changed; None for the state before training.
        search_loss: Loss on the search samples after it; None without any.
        metrics: Metric -> value on the search samples.
    """

    loss: float | None
    search_loss: float | None = None
    metrics: dict[str, float] = Field(default_factory=dict)


class TrainingRow(Document):
    """What training did to a candidate.

    Args:
        role: Role of the samples that it was trained on.
        samples: How many.
        loss: What was made small.
        epochs: What was found after each epoch; the first entry is the state before training.
        kept: The epoch that was taken; 0: the state before training.
        weights: Number of weights and biases that were trained.
        scales: Number of scales that were learned.
    """

    role: str
    samples: int
    loss: str
    epochs: tuple[EpochRow, ...]
    kept: int
    weights: int
    scales: int


class Candidate(Document):
    """One scheme on one target.

    Args:
        scheme: The scheme.
        target: The serving engine.
        status: `measured`, `failed` (it could not be built, loaded, or run to the end: its verdict is `fail`), `not available` (the
            engine is missing), `not applicable` (nothing to quantize by this scheme) or `not tried` (another was all that was wanted).
        reason: Why, when it was not measured; of a measured one, what must be said aloud, such as layers that fell back to float.
        emulated: Why the engine has no speed of its own for this format here; None when it has.
        metric: Name of the first gate's metric (None when the recipe has none).
        value: Its value.
        drop: How much worse than the baseline (see Verdict).
        drop_upper: Upper confidence bound of `drop`.
        verdict: Over all gates.
        gates: Every gate.
        slices: What was found in each part of slices, gated or not; bounds hold for all parts of a metric at once.
        repeats: How often each sample was run; more than once where outputs differ from run to run.
        metrics: Name -> value of every metric.
        latency_ratio: Median time over that of FP32 in the same engine and run; None when emulated or not measured.
        size_bytes: Size of the artifact.
        size_ratio: Size over that of the FP32 artifact of the same target.
        fidelity: Closeness to FP32; None when there is no output to compare.
        transforms: What was tried on the FP32 model before it was quantized, in order.
        training: How it was trained; None when it was not.
        agreement: The engine against the plain meaning of the graph that it was given; None when they were not compared.
        plan: Every layer's format and reason.
        audit: Planned format against what the engine runs.
        unaudited: Why the engine could not be looked into; empty when it was, and when the candidate was not measured.
        artifact: Folder of the artifact, relative to the run's folder.
        files: Name -> SHA-256 of its files.
    """

    scheme: str
    target: str
    status: Literal["measured", "failed", "not available", "not applicable", "not tried"]
    reason: str = ""
    emulated: str | None = None
    metric: str | None = None
    value: float | None = None
    drop: float | None = None
    drop_upper: float | None = None
    verdict: Decision | None = None
    gates: tuple[GateRow, ...] = ()
    slices: tuple[GateRow, ...] = ()
    repeats: int = 1
    metrics: dict[str, float] = Field(default_factory=dict)
    latency_ratio: float | None = None
    size_bytes: int | None = None
    size_ratio: float | None = None
    fidelity: FidelityRow | None = None
    agreement: Agreement | None = None
    transforms: tuple[TransformRow, ...] = ()
    training: TrainingRow | None = None
    plan: tuple[LayerChoice, ...] = ()
    audit: tuple[AuditRow, ...] = ()
    unaudited: str = ""
    artifact: str | None = None
    files: dict[str, str] = Field(default_factory=dict)

    @property
    def word(self) -> str:
        """The verdict; the status where there is none."""
        return self.verdict or self.status


class Baseline(Document):
    """The FP32 model on the same samples.

    Args:
        metric: Name of the first gate's metric; None when the recipe has none.
        value: Its value.
        metrics: Name -> value of every metric.
        units: Name -> unit of every metric.
        samples: Number of evaluation samples.
        size_bytes: Size of the FP32 graph.
        model_sha256: SHA-256 of the FP32 graph.
    """

    metric: str | None
    value: float | None
    metrics: dict[str, float]
    units: dict[str, str] = Field(default_factory=dict)
    samples: int
    size_bytes: int
    model_sha256: str


class ModelSummary(Document):
    """The model as it came in, and what was done before quantizing.

    Args:
        kind: Form it came in.
        source: Where it came from.
        parameters: Number of weights.
        layers: Number of layers that a plan speaks about.
        opset: ONNX opset that is worked in.
        inputs: Name, type and shape of each input.
        outputs: Name, type and shape of each output.
        steps: What was done to the graph before quantizing, in order.
        notes: What should be said about the model aloud.
    """

    kind: str
    source: str
    parameters: int
    layers: int
    opset: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    steps: tuple[str, ...]
    notes: tuple[str, ...]


class DataSummary(Document):
    """Samples by role, and what should be said about them aloud.

    Args:
        source: Where they came from.
        roles: Role -> number of samples.
        notes: What should be said aloud: overlaps, classes that are missing, ...
        samples_sha256: SHA-256 of the samples of all roles; empty when it was not taken.
    """

    source: str
    roles: dict[str, int]
    notes: tuple[str, ...]
    samples_sha256: str = ""


class RangeRow(Document):
    """A calibrated tensor: what was seen, and the range chosen.

    Args:
        tensor: Name of the tensor.
        minimum: Smallest value seen.
        maximum: Largest value seen.
        rms: Root mean square of the values seen.
        low: Lower end of the chosen range.
        high: Upper end of the chosen range.
        clipped: Share of the values seen that lie outside the range.
    """

    tensor: str
    minimum: float
    maximum: float
    rms: float
    low: float
    high: float
    clipped: float


class Calibration(Document):
    """How ranges were found.

    Args:
        calibrator: The calibrator that chose them.
        samples: Number of samples seen.
        table_sha256: SHA-256 of the calibration table.
        ranges: One row for every calibrated tensor.
    """

    calibrator: str
    samples: int
    table_sha256: str
    ranges: tuple[RangeRow, ...]


class LatencyRow(Document):
    """Times of one artifact, measured interleaved with the others.

    Args:
        scheme: The scheme, or `fp32`.
        target: The serving engine.
        p50_ms: Median time of one request.
        p90_ms: Time that 90 % of requests stay below.
        p99_ms: Time that 99 % of requests stay below.
        throughput_per_s: Samples a second, one request after the other.
        ratio: Median of the time over FP32's, pair by pair.
        ratio_low: Lower end of the ratio's 95 % interval.
        ratio_high: Upper end.
        first_inference_s: Load and first run in a fresh process.
        peak_memory_bytes: Peak resident memory of that process.
        quantiles_ms: Times that 0 %, 5 %, ... 100 % of requests stay below; empty in reports of older versions.
        requests: Timed requests; 0 in reports of older versions.
    """

    scheme: str
    target: str
    p50_ms: float
    p90_ms: float
    p99_ms: float
    throughput_per_s: float
    ratio: float
    ratio_low: float
    ratio_high: float
    first_inference_s: float | None = None
    peak_memory_bytes: int | None = None
    quantiles_ms: tuple[float, ...] = ()
    requests: int = 0


class Choice(Document):
    """What `schemes: auto` chose on one target.

    Args:
        target: The serving engine.
        scheme: The first scheme that passes and is as fast and as small as was wanted; None when none is.
        steps: What was found of each that was tried, in order.
    """

    target: str
    scheme: str | None
    steps: tuple[str, ...]


class Timings(Document):
    """What differs from run to run: dates, durations, times.

    Args:
        started: ISO 8601, UTC.
        seconds: Duration of the whole run.
        stages: Stage -> seconds; 0 when its result was already there.
        threads: Threads of one timed request.
        batch_size: Samples in one timed request.
        latency: Times of every artifact.
        fastest_passing: The passing candidate with the smallest time (`scheme on target`); None when none passes.
        choices: What `schemes: auto` chose on each target; empty where schemes are listed.
        mixing: How the plan that mixes formats was found on each target; it goes by times.
    """

    started: str
    seconds: float
    stages: dict[str, float]
    threads: int
    batch_size: int
    latency: tuple[LatencyRow, ...]
    fastest_passing: str | None
    choices: tuple[Choice, ...] = ()
    mixing: tuple[MixingRow, ...] = ()


class Report(Document, ReportFaces):
    """A whole run.

    Args:
        version: Version of this document's form.
        name: The recipe's name.
        description: The recipe's description.
        verdict: Over all candidates.
        sentence: The verdict in one sentence.
        baseline: The FP32 model.
        candidates: Every scheme on every target, in the recipe's order.
        model: The model as it came in.
        data: The samples.
        calibration: How ranges were found; None when no scheme needs any.
        environment: Name -> version or property of what the run was computed with.
        recipe: The resolved recipe, as YAML.
        results_digest: SHA-256 of everything that does not differ from run to run.
        timings: What differs from run to run.
        delivered: What is delivered on each target; empty where the recipe has no `on_fail`.
        graph: The model's layers and what connects them; None in reports of older versions.
    """

    version: Literal[1] = 1
    name: str
    description: str
    verdict: Decision
    sentence: str
    baseline: Baseline
    candidates: tuple[Candidate, ...]
    model: ModelSummary
    data: DataSummary
    calibration: Calibration | None
    environment: dict[str, str]
    recipe: str
    results_digest: str = ""
    timings: Timings
    delivered: tuple[Delivered, ...] = ()
    graph: LayerGraph | None = None

    def with_digest(self) -> Report:
        """This report with the digest of everything that does not differ from run to run."""
        content = self.model_dump(mode="json", exclude={"timings", "results_digest"})
        for candidate in content["candidates"]:
            del candidate["latency_ratio"]
        return self.model_copy(update={"results_digest": digest_of(content)})
