"""Reports made by hand: small, with numbers that can be checked by eye."""

import os
import shutil
from functools import cache

import pytest

from quant.core.documents import AuditRow, LayerChoice, Verdict
from quant.report.document import Baseline, Calibration, Candidate, DataSummary, FidelityRow, LatencyRow, ModelSummary, RangeRow, Report, Timings
from quant.report.gate_row import GateRow
from quant.report.graph import GraphPart, LayerGraph
from quant.report.mixing import EffectRow, FrontPoint, LeftOut, MixingRow, PlanStep
from quant.report.sentence import verdict_sentence

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-sandbox"]
SHA = "0123456789abcdef" * 4


def verdict(decision="pass", **changes):
    values = {
        "baseline": 0.8,
        "value": 0.798,
        "drop": 0.002,
        "drop_lower": -0.002,
        "drop_upper": 0.006,
        "limit": 0.01,
        "relative": False,
        "confidence": 0.95,
        "method": "exact paired test (Buehler bounds, Tango's order)",
        "samples": 2000,
    }
    return Verdict(decision=decision, **(values | changes))


def gate(decision="pass", *, metric="accuracy", unit="share", direction="higher", **changes):
    return GateRow(metric=metric, direction=direction, unit=unit, verdict=verdict(decision, **changes))


FAILING = {"value": 0.76, "drop": 0.04, "drop_lower": 0.031, "drop_upper": 0.049}
OPEN = {"value": 0.792, "drop": 0.008, "drop_lower": 0.003, "drop_upper": 0.013, "needed": 1200}


def graph(*layers):
    """Layers one after the other, with a branch around every third."""
    parts = [GraphPart(name="input_ids", kind="input")]
    for number, name in enumerate(layers):
        parts.append(GraphPart(name=name, op="MatMul", kind="layer", reads=(len(parts) - 1,)))
        if number % 3 == 2:
            parts.append(GraphPart(name=f"{name}/Add", op="Add", kind="join", reads=(len(parts) - 1, len(parts) - 4)))
    return LayerGraph(parts=(*parts, GraphPart(name="logits", kind="output", reads=(len(parts) - 1,))))


def fidelity(**changes):
    values = {
        "output": "logits",
        "samples": 2000,
        "exact": False,
        "sqnr_db": 31.24,
        "cosine_mean": 0.99912,
        "cosine_min": 0.98731,
        "max_abs_error": 0.4211,
        "kl": 0.00213,
        "agreement": 0.987,
    }
    return FidelityRow(**(values | changes))


PLAN = (
    LayerChoice(layer="encoder.layer.0.attention.query", op="MatMul", format="int8", reason="scheme int8"),
    LayerChoice(layer="encoder.layer.0.output.dense", op="MatMul", format="fp32", reason="outliers in its input"),
    LayerChoice(layer="classifier", op="Gemm", format="int8", reason="scheme int8"),
)
AUDIT = (
    AuditRow(layer="encoder.layer.0.attention.query", planned="int8", runs="int8", kernel="MatMulIntegerToFloat", agrees=True),
    AuditRow(layer="encoder.layer.0.output.dense", planned="fp32", runs="fp32", kernel="MatMul", agrees=True),
    AuditRow(layer="classifier", planned="int8", runs="fp32", kernel="FusedGemm", agrees=False),
)


def candidate(scheme="int8", *gates, **changes):
    gates = gates or (gate(),)
    decisions = [g.verdict.decision for g in gates]
    first = gates[0]
    values = {
        "target": "onnxruntime",
        "status": "measured",
        "metric": first.metric,
        "value": first.verdict.value,
        "drop": first.verdict.drop,
        "drop_upper": first.verdict.drop_upper,
        "verdict": "fail" if "fail" in decisions else "inconclusive" if "inconclusive" in decisions else "pass",
        "gates": gates,
        "metrics": {g.metric: g.verdict.value for g in gates},
        "latency_ratio": 0.53,
        "size_bytes": 23_900_000,
        "size_ratio": 0.262,
        "fidelity": fidelity(),
        "plan": PLAN,
        "audit": AUDIT[:2],
        "artifact": f"artifacts/onnxruntime/{scheme}",
        "files": {"model.onnx": SHA},
    }
    return Candidate(scheme=scheme, **(values | changes))


def absent(scheme, target, status, reason):
    return Candidate(scheme=scheme, target=target, status=status, reason=reason)


def latency(scheme, ratio, target="onnxruntime"):
    return LatencyRow(
        scheme=scheme,
        target=target,
        p50_ms=21.4 * ratio,
        p90_ms=23.0 * ratio,
        p99_ms=30.1 * ratio,
        throughput_per_s=46.7 / ratio,
        ratio=ratio,
        ratio_low=ratio * 0.97,
        ratio_high=ratio * 1.03,
        first_inference_s=0.41,
        peak_memory_bytes=318_000_000,
    )


def report(*candidates, decision=None, **changes):
    decisions = [c.verdict for c in candidates]
    overall = decision or ("pass" if "pass" in decisions else "inconclusive" if "inconclusive" in decisions else "fail")
    names = sorted({g.metric for c in candidates for g in c.gates})
    baseline = Baseline(
        metric=next(iter(names), None),
        value=0.8 if names else None,
        metrics=dict.fromkeys(names, 0.8),
        units=dict.fromkeys(names, "share"),
        samples=2000,
        size_bytes=91_200_000,
        model_sha256=SHA,
    )
    values = {
        "name": "minilm-sentiment",
        "description": "Sentiment of film reviews, at most one point of accuracy.",
        "verdict": overall,
        "sentence": verdict_sentence(overall, candidates, baseline=baseline),
        "baseline": baseline,
        "candidates": candidates,
        "model": ModelSummary(
            kind="torch",
            source="package:some-model==0.1.0",
            parameters=22_713_216,
            layers=36,
            opset=21,
            inputs=("input_ids: int64 [batch, tokens]", "attention_mask: int64 [batch, tokens]"),
            outputs=("logits: float32 [batch, 2]",),
            steps=("exported from torch (1)", "constants folded (12)"),
            notes=("the exported graph equals torch within 4.1e-07",),
        ),
        "data": DataSummary(
            source="package:reviews==3.3.2", roles={"calibration": 256, "evaluation": 2000}, notes=("3 evaluation samples occur twice",), samples_sha256=SHA
        ),
        "calibration": Calibration(
            calibrator="mse",
            samples=256,
            table_sha256=SHA,
            ranges=(
                RangeRow(tensor="input", minimum=-1.0, maximum=3.0, rms=0.7, low=-1.0, high=3.0, clipped=0.0),
                RangeRow(tensor="dense/output", minimum=-31.5, maximum=12.25, rms=0.9, low=-6.0, high=6.5, clipped=0.00012),
            ),
        ),
        "environment": {"python": "3.11.9", "onnxruntime": "1.32.0", "cpu": "a processor (avx2 avx512_vnni)"},
        "recipe": "version: 1\nname: minilm-sentiment\nschemes: [int8]\n",
        "graph": graph(*(choice.layer for choice in PLAN)),
        "timings": Timings(
            started="2026-03-01T12:00:00Z",
            seconds=83.2,
            stages={"calibrate": 12.5, "evaluate": 61.0, "export": 0},
            threads=2,
            batch_size=1,
            latency=(latency("fp32", 1.0), *(latency(c.scheme, c.latency_ratio, c.target) for c in candidates if c.latency_ratio)),
            fastest_passing=next((f"{c.scheme} on {c.target}" for c in candidates if c.verdict == "pass"), None),
        ),
    }
    return Report(**(values | changes)).with_digest()


EVIL = "<img src=x onerror=alert(1)>"
VERY_EVIL = "a|b`c`\n*d* \x00\x1b[31m\u202e</script>]]>&amp;\ufffe"


def evil():
    plan = (LayerChoice(layer=EVIL, op=EVIL, format="int8", reason=VERY_EVIL), LayerChoice(layer=VERY_EVIL, op="Conv", format="fp32", reason=EVIL))
    audit = tuple(AuditRow(layer=name, planned="int8", runs=EVIL, kernel=VERY_EVIL, agrees=False) for name in (EVIL, VERY_EVIL))
    bad = candidate(
        EVIL,
        gate(metric=EVIL, unit=EVIL, method=EVIL),
        gate(metric=VERY_EVIL),
        plan=plan,
        audit=audit,
        files={EVIL: EVIL},
        artifact=EVIL,
        fidelity=fidelity(output=EVIL),
    )
    plain = report(bad, candidate(VERY_EVIL, emulated=EVIL, latency_ratio=None), absent(EVIL, EVIL, "not available", VERY_EVIL))
    calibration = plain.calibration.model_copy(update={"calibrator": EVIL, "ranges": (plain.calibration.ranges[0].model_copy(update={"tensor": EVIL}),)})
    return plain.model_copy(
        update={
            "name": EVIL,
            "graph": graph(EVIL, VERY_EVIL),
            "description": VERY_EVIL,
            "recipe": f"name: {EVIL}\n{VERY_EVIL}\n",
            "timings": plain.timings.model_copy(update={"mixing": (mixing(EVIL, target=EVIL), mixing(VERY_EVIL, target=VERY_EVIL))}),
            "environment": {EVIL: VERY_EVIL, "url": "https://example.org/x.js"},
            "calibration": calibration,
            "data": DataSummary(source="https://example.org/data", roles={EVIL: 3, VERY_EVIL: 4}, notes=(EVIL, VERY_EVIL)),
            "model": plain.model.model_copy(update={"source": EVIL, "inputs": (EVIL,), "outputs": (VERY_EVIL,), "steps": (EVIL,), "notes": (VERY_EVIL,)}),
        }
    ).with_digest()


def mixing(name="encoder/MatMul", target="onnxruntime"):
    """How a plan that mixes formats was found; every text in it is `name`."""
    told = {"action": "front", "told": name, "said": name, "predicted_error": 0.001, "measured_error": 0.002}
    return MixingRow(
        target=target,
        formats=("int8", "int4"),
        measure="output_error",
        estimator="sketch",
        samples=64,
        cost=name,
        unit="ms",
        estimated=False,
        ended=name,
        steps=(
            PlanStep(quantized=3, predicted=0.02, measured=0.4, cost=1.0, passes=False, **told),
            PlanStep(quantized=2, predicted=0.01, measured=0.012, cost=1.5, passes=True, **told),
        ),
        front=(FrontPoint(error=0.02, cost=1.0, quantized=3), FrontPoint(error=0.01, cost=1.5, quantized=2), FrontPoint(error=0.0, cost=3.0, quantized=0)),
        uniform=(FrontPoint(name=name, error=0.02, cost=1.0, quantized=3),),
        effects=tuple(EffectRow(layer=f"{name}{n}", format="int8", value=0.01 * n, standard_error=0.001, cost=0.5) for n in range(30)),
        left_out=(LeftOut(layer=name, why=(name, "a second sentence.")),),
        notes=(name,),
    )


def planned_for(layers):
    """Three layers whose effects are 0.05, 0 (it is in FP32) and 1 on one target; on another nothing was profiled."""
    made = report(candidate("int8"), candidate("int8", target="openvino"))
    effects = tuple(EffectRow(layer=name, format="int8", value=v, standard_error=0.001) for name, v in zip(layers, (0.05, 0.5, 1.0), strict=True))
    row = mixing().model_copy(update={"effects": effects})
    return made.model_copy(update={"timings": made.timings.model_copy(update={"mixing": (row,)})})


def planned():
    made = report(candidate("int8"), candidate("mixed"))
    return made.model_copy(update={"timings": made.timings.model_copy(update={"mixing": (mixing(), mixing(target="openvino"))})})


def crowded():
    """Twelve candidates close together, one far away, of every verdict."""
    near = [candidate(f"int8-variant-{i}", gate(drop=0.002 + 0.0001 * i), latency_ratio=0.5 + 0.004 * i) for i in range(9)]
    far = candidate("int8-per-tensor", gate("fail", **(FAILING | {"drop": 0.31, "drop_lower": 0.29, "drop_upper": 0.33})), latency_ratio=0.49)
    return report(
        *near, candidate("int8-percentile", gate("inconclusive", **OPEN), latency_ratio=0.52), far, candidate("int8-exact", fidelity=fidelity(exact=True))
    )


def unjudged():
    measured = Candidate(
        scheme="int8", target="onnxruntime", status="measured", latency_ratio=0.5, size_bytes=1000, size_ratio=0.25, fidelity=fidelity(), plan=PLAN, audit=AUDIT
    )
    return report(measured, decision="inconclusive")


def large():
    plan = tuple(LayerChoice(layer=f"encoder.layer.{i}.attention.self.query/MatMul", op="MatMul", format="int8", reason="scheme int8") for i in range(500))
    audit = tuple(AuditRow(layer=c.layer, planned="int8", runs="int8", kernel="QLinearMatMul", agrees=True) for c in plan)
    ranges = tuple(RangeRow(tensor=f"{c.layer}_output_{i}", minimum=-1, maximum=1, rms=0.2, low=-0.9, high=0.9, clipped=0.001) for c in plan for i in range(2))
    made = report(*(candidate(f"int8-{i}", plan=plan, audit=audit) for i in range(6)))
    effects = tuple(EffectRow(layer=c.layer, format="int8", value=1e-6 * 1.02**i, standard_error=1e-7, cost=0.5) for i, c in enumerate(plan))
    changed = {
        "calibration": made.calibration.model_copy(update={"ranges": ranges}),
        "graph": graph(*(choice.layer for choice in plan)),
        "timings": made.timings.model_copy(update={"mixing": (mixing().model_copy(update={"effects": effects}),)}),
    }
    return made.model_copy(update=changed)


MIXED = (
    candidate("int8"),
    candidate("int8-percentile", gate("inconclusive", **OPEN), latency_ratio=0.51, size_bytes=23_800_000, size_ratio=0.261),
    candidate("int8-dynamic", gate("fail", **FAILING), latency_ratio=0.58, audit=AUDIT),
    candidate(
        "fp16", emulated="this processor has no FP16 arithmetic; the engine computes in FP32", latency_ratio=None, size_bytes=45_700_000, size_ratio=0.501
    ),
    absent("int8", "tensorrt", "not available", "no NVIDIA GPU on this machine"),
    absent("int4", "onnxruntime", "not applicable", "no layer has weights that it can pack"),
)
MAKERS = {
    "pass": lambda: report(candidate()),
    "fail": lambda: report(candidate("int8", gate("fail", **FAILING))),
    "inconclusive": lambda: report(candidate("int8", gate("inconclusive", **OPEN))),
    "mixed": lambda: report(*MIXED),
    "not available": lambda: report(absent("int8", "tensorrt", "not available", "no NVIDIA GPU on this machine")),
    "emulated": lambda: report(candidate("fp16", emulated="no FP16 arithmetic here", latency_ratio=None)),
    "no metrics": unjudged,
    "no candidates": report,
    "several gates": lambda: report(candidate("int8", gate(), gate("fail", metric="f1", **FAILING), gate("inconclusive", metric="auc", **OPEN))),
    "crowded": crowded,
    "evil": evil,
    "planned": planned,
    "large": large,
}


@cache
def made_once(name):
    return MAKERS[name]()


@pytest.fixture(params=MAKERS, ids=str)
def any_report(request):
    """One report after the other, of every kind; reports are frozen, so one of a kind is made once."""
    return made_once(request.param)


@pytest.fixture
def make():
    """The makers of reports, by name; and the parts they are made of."""

    class Make:
        reports = MAKERS
        report = staticmethod(report)
        candidate = staticmethod(candidate)
        absent = staticmethod(absent)
        gate = staticmethod(gate)
        fidelity = staticmethod(fidelity)
        planned_for = staticmethod(planned_for)
        failing, undecided, plan, audit, evil_name, very_evil_name, sha = FAILING, OPEN, PLAN, AUDIT, EVIL, VERY_EVIL, SHA

    return Make


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        assert not os.environ.get("CI"), "CI must have a browser: install chromium"
        pytest.skip("no chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield started
        started.close()
