"""The typed recipe. Unknown keys are refused; every default is written here and nowhere else.

Plug-ins (schemes, transforms, targets, calibrators, metrics, processors) are named by `kind` with their options beside it, or by the
bare name: `- int8` is `- {kind: int8}`. Their options are checked against the plug-in's own `Options` when the recipe is
bound, with the line of the recipe in the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

NAME = r"^[a-z0-9][a-z0-9-]*$"
SHA256 = r"^[0-9a-f]{64}$"


class Section(BaseModel):
    """One mapping of a recipe: frozen, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)


class Source(Section):
    """Where a file comes from.

    `source` is a path (relative to the recipe), `hf:ORG/NAME[@REVISION]`, `package:NAME==VERSION` (PyPI) or `npm:NAME@VERSION`.
    """

    source: str = Field(description="path, hf:ORG/NAME, package:NAME==VERSION, npm:NAME@VERSION, or module:function")
    file: str | None = Field(None, description="file or folder inside the source; `archive.tar.gz!/inner` looks inside a nested archive")
    sha256: str | None = Field(
        None, pattern=SHA256, description="SHA-256 of the file (of a folder: over the names and SHA-256 of its files), checked before use"
    )


class Use(BaseModel):
    """A plug-in by its `kind`, with its options beside it."""

    model_config = ConfigDict(frozen=True, extra="allow")

    kind: str
    name: str | None = Field(None, pattern=NAME, description="what it is called in the report; its kind when not given")

    @property
    def title(self) -> str:
        """What it is called in reports."""
        return self.name or self.kind

    @property
    def options(self) -> dict[str, Any]:
        """The options as written."""
        return dict(self.model_extra or {})


def _several(value: object) -> object:
    """One thing, or several, as a tuple. Lists within become tuples, too: behind a validator of ours nothing is checked as JSON any more, where a list may."""
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else (_tuples(value),)


def _tuples(value: object) -> object:
    if isinstance(value, list | tuple):
        return tuple(map(_tuples, value))
    return {key: _tuples(inner) for key, inner in value.items()} if isinstance(value, dict) else value


def _use(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


UseOf = Annotated[Use, BeforeValidator(_use, json_schema_input_type=str | Use)]


class Head(Section):
    """A head to be fitted on the FP32 embeddings of the `train` split and fused into the graph."""

    kind: Literal["linear-probe"] = "linear-probe"
    C: float = Field(1.0, gt=0, description="inverse regularization strength of the logistic regression (scikit-learn's C)")
    max_iter: int = Field(1000, ge=1)
    output: str | None = Field(None, description="the output that holds the embeddings; the only one when not given")


class ModelSpec(Source):
    """The FP32 model: an ONNX file, a Hugging Face folder (encoders, language models), a GGUF file, or a torch module from `module:function`."""

    kind: Literal["auto", "onnx", "huggingface", "gguf", "torch"] = "auto"
    pooling: Literal["none", "mean", "cls", "max"] = Field("none", description="how an encoder's token vectors become one vector")
    normalize: bool = Field(default=False, description="divide the pooled vector by its L2 norm")
    head: Head | None = None
    state: dict[str, str] = Field(default_factory=dict, description="state input -> the output that feeds it at the next step")
    arguments: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of a module:function")
    batch_axes: dict[str, int | None] = Field(default_factory=dict, description="input -> its batch axis; null for an input without one (default: axis 0)")


class Condition(Section):
    """Keeps the rows whose `column` meets every bound that is given."""

    column: str
    above: float | None = None
    below: float | None = None
    magnitude_above: float | None = Field(None, description="keep rows with |value| above this")
    equals: str | float | int | None = None
    any_of: tuple[str | float | int, ...] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Condition:
        if not self.model_fields_set - {"column"}:
            raise ValueError("no bound is given, so that every row would stay")
        return self


class Label(Section):
    """Where the label of a sample comes from, and how it is read."""

    column: str | None = Field(None, description="column of the table, or key of the arrays file")
    file_name: str | None = Field(None, description="regular expression on the file's name; its first group is the label")
    above: float | None = Field(None, description="label is 1 where the column is above this, else 0")
    classes: tuple[str | int | float, ...] | None = Field(None, description="values in class order; the label is the position")
    kind: Literal["auto", "class", "number", "text"] = "auto"


class RowsSpec(Source):
    """Rows: where they are, how they are read, and which of them are kept."""

    kind: Literal["auto", "csv", "tsv", "json", "parquet", "arrow", "text", "images", "imagefolder", "audiofolder", "npz", "npy", "dataset", "function"] = (
        Field("auto", description="form of the data; `auto` goes by the file's ending")
    )
    columns: tuple[str, ...] | None = Field(None, description="names of the columns, for tables without a header")
    skip_rows: int = Field(0, ge=0, description="lines to skip at the top of a table")
    encoding: str = "utf-8"
    arguments: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of a module:function")
    where: tuple[Condition, ...] = ()


class OtherData(RowsSpec):
    """Data of one role alone, from elsewhere than the other roles'."""

    inputs: UseOf | None = Field(None, description="the processor; that of `data` when not given")
    label: Label | None = Field(None, description="where labels come from; as in `data` when not given, but calibration then has none")


class Split(Section):
    """Which samples a role gets.

    `samples` is a number of samples, a share (0..1) of the rows, or `rest`.
    """

    samples: int | float | Literal["rest"] = "rest"
    of: str | None = Field(None, description="take them from this named split of the source (such as `train`); all rows when not given")
    data: OtherData | None = Field(None, description="take them from these data instead of the recipe's")


# A union, and no BeforeValidator: what is inside a mapping is then still checked as JSON, where a list may become a tuple.
SplitValue = Annotated[int | float | Literal["rest"] | Split, AfterValidator(lambda v: v if isinstance(v, Split) else Split(samples=v))]


class Splits(Section):
    """The roles of data. They never overlap (compared by content) unless `data.overlap` is `allow`."""

    train: SplitValue | None = Field(None, description="fits a head, or trains")
    calibration: SplitValue = Field(Split(samples=128), description="ranges of activations")
    search: SplitValue | None = Field(None, description="sensitivity, plan, repair")
    evaluation: SplitValue = Field(Split(samples="rest"), description="the gate; looked at once per candidate")


class DataSpec(RowsSpec):
    """Samples: rows or files, a processor that turns each into model inputs, labels, and splits."""

    files: dict[str, str] = Field(default_factory=dict, description="named splits of the source -> file inside it (instead of `file`)")
    limit: int | None = Field(None, ge=1, description="use at most so many rows, chosen by the seed")
    inputs: UseOf = Field(Use(kind="arrays"), description="the processor that makes model inputs, with its options")
    label: Label | None = None
    splits: Splits = Splits()
    seed: int = Field(0, ge=0)
    overlap: Literal["error", "allow"] = "error"


class CalibrationSpec(Section):
    """How activation ranges are found."""

    calibrator: UseOf = Field(Use(kind="mse"), description="how a tensor's statistics become a range")
    minimum: int = Field(16, ge=1, description="fewer calibration samples than this are an error")
    batch_size: int = Field(8, ge=1)


class SliceSpec(Section):
    """What parts the evaluation samples are looked at in, besides all together: one for each value, or of numbers and lengths, quantiles."""

    by: Literal["label", "column", "length"] = Field("column", description="`length` is the number of values that a sample feeds the model")
    column: str | None = Field(None, description="the column of the data, for `column`")
    bins: int = Field(4, ge=2, le=100, description="parts of about as many samples, for lengths and for numbers of more than 20 values")

    @model_validator(mode="after")
    def _has_its_column(self) -> SliceSpec:
        if (self.by == "column") != (self.column is not None):
            raise ValueError("a column goes with `by: column`, and with nothing else")
        return self

    @property
    def title(self) -> str:
        """What the slices are called together."""
        return self.column or self.by


SliceOf = Annotated[SliceSpec, BeforeValidator(lambda v: {"by": v} if isinstance(v, str) else v, json_schema_input_type=Literal["label", "length"] | SliceSpec)]


class EvaluationSpec(Section):
    """What is measured on predictions and outputs."""

    metrics: tuple[UseOf, ...] = Field((), description="metrics; the first is the one shown first. None: fidelity alone")
    slices: tuple[SliceOf, ...] = Field((), description="`label`, `length` or {column: NAME}: parts whose metrics the report shows; gates name them by title")
    repeats: int = Field(3, ge=2, le=100, description="runs over the samples of an engine that gives other outputs for the same batch")
    minimum: int = Field(1, ge=1, description="fewer evaluation samples than this are an error")
    batch_size: int = Field(16, ge=1)
    fidelity_output: str | None = Field(None, description="output whose closeness to FP32 is shown; the first float output when not given")
    agreement_samples: int = Field(16, ge=0, description="samples on which each engine is held to the plain meaning of its graph; 0: it is not")


class SequentialSpec(Section):
    """When a gate looks before all samples were evaluated, to end as soon as it is sure; its error probability is shared by all looks."""

    looks: int = Field(5, ge=2, le=50, description="looks, evenly spaced, the one at all samples included")
    spending: Literal["obrien-fleming", "pocock"] = Field(
        "obrien-fleming", description="hardly anything is spent early, so that the last look is nearly as sharp as the only one; or as much at each look"
    )


class GateSpec(Section):
    """The largest loss that is acceptable, and how sure the verdict must be."""

    metric: str | None = Field(None, description="`kind` of one of evaluation.metrics; the first when not given")
    max_drop: float = Field(0.01, ge=0, description="largest drop (in the direction that is worse), in the metric's unit or as a share of the baseline")
    relative: bool = Field(default=False, description="max_drop is a share of the baseline's value")
    confidence: float = Field(0.95, gt=0.5, lt=1)
    resamples: int = Field(2000, ge=200, le=1_000_000, description="bootstrap resamples, for metrics that are no proportion")
    slices: tuple[str, ...] = Field((), description="titles of evaluation.slices: each of their parts must keep the limit, instead of all samples together")
    sequential: Annotated[
        SequentialSpec | None,
        BeforeValidator(lambda v: (SequentialSpec() if v else None) if isinstance(v, bool) else v, json_schema_input_type=bool | SequentialSpec | None),
    ] = Field(None, description="end the evaluation as soon as the verdict is sure; all gates of a recipe, or none")


class LatencySpec(Section):
    """How time is measured: candidates and FP32 interleaved, in one process, on requests from the evaluation data."""

    requests: int = Field(40, ge=1, description="timed runs of each artifact")
    warmup: int = Field(5, ge=0)
    batch_size: int = Field(1, ge=1)
    threads: int | None = Field(None, ge=1, le=1024, description="threads of one run; all cores when not given")


class LimitsSpec(Section):
    """What `quant validate` holds an artifact to, on the machine that it runs on; what is not given is not held."""

    first_inference_s: float | None = Field(None, gt=0, description="largest time of loading and the first inference, in a fresh process")
    memory_mib: float | None = Field(None, gt=0, description="most memory that a process which serves it holds, under load, interpreter and libraries included")
    p99_ms: float | None = Field(None, gt=0, description="largest 99th percentile of the time of a request, measured as `latency` says")
    throughput_per_s: float | None = Field(None, gt=0, description="least number of samples a second, one request after the other")
    size_mib: float | None = Field(None, gt=0, description="largest size of the artifact's files")
    load_s: float = Field(3.0, gt=0, le=86_400, description="seconds of sustained load")
    load_threads: int = Field(4, ge=1, le=256, description="threads that ask at once under load")


class PlanSpec(Section):
    """A format for each layer: the cheapest plan that passes the gates, predicted from sensitivity and cost, then measured as a whole."""

    schemes: tuple[str, ...] = Field(
        (), description="titles of schemes whose formats are mixed; of each format the first that does not train and finds something to quantize when empty"
    )
    file: str | None = Field(None, description="a plan to carry out, as `quant plan` writes it, instead of looking for one")
    minimize: Literal["time", "size", "bits"] = Field("time", description="what is to be least")
    within: dict[Literal["time", "size", "bits"], Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict, description="budgets, as shares of what the FP32 model costs; with them the most accurate plan is looked for"
    )
    max_error: float | None = Field(None, gt=0, description="largest error of the outputs, in the profile's measure; needed where there are no metrics")
    keep: dict[str, str] = Field(default_factory=dict, description="pattern of layers -> the format that they are kept in")
    together: tuple[tuple[str, ...], ...] = Field((), description="patterns of layers that share one format, group by group, besides those found by structure")
    apart: tuple[str, ...] = Field((), description="patterns of layers that structure does not bind to others")
    estimator: UseOf = Field(Use(kind="sketch"), description="how the effect of each layer is found")
    costs: UseOf | None = Field(None, description="where times come from; measured on the engine where it runs here, when not given")
    samples: int = Field(64, ge=2, description="search samples that effects are measured on, at most")
    time_limit: float = Field(900.0, gt=0, description="seconds after which no further plan is measured")
    looks: int = Field(
        3, ge=1, le=20, description="plans that are judged on the evaluation samples at most, while none passes; they share what the gate's confidence leaves"
    )


class AutoSchemes(Section):
    """Schemes that are tried one after the other on each target, the cheapest first, until one is all that is wanted."""

    kind: Literal["auto"] = "auto"
    speed: float | None = Field(1.0, gt=0, description="largest time, as a share of FP32's, of a candidate that is fast enough; null: any")
    size: float | None = Field(None, gt=0, description="largest size, as a share of FP32's, of a candidate that is small enough; null: any")
    among: tuple[UseOf, ...] = Field((), description="the schemes to choose among; all that there are when empty")


def _form(value: object) -> str:
    """Which of its forms the value of `schemes` has; what has none of them is called a list, as most are."""
    return "mapping" if isinstance(value, Mapping | AutoSchemes) else "name" if value == "auto" else "list"


Schemes = Annotated[
    Annotated[tuple[UseOf, ...], Field(min_length=1), Tag("list")]
    | Annotated[Literal["auto"], AfterValidator(lambda _: AutoSchemes()), Tag("name")]
    | Annotated[AutoSchemes, Tag("mapping")],
    Discriminator(_form),
]


class Recipe(Section):
    """A whole recipe."""

    version: Literal[1]
    name: str = Field(pattern=NAME)
    description: str = ""
    model: ModelSpec
    data: DataSpec
    calibration: CalibrationSpec = CalibrationSpec()
    schemes: Schemes = Field((Use(kind="int8"),), description="schemes, each tried on every target; or `auto`")
    transforms: tuple[UseOf, ...] = Field(
        (
            Use(kind="smoothquant"),
            Use(kind="range-search"),
            Use.model_validate({"kind": "adaround", "convolutions": False}),  # patches of convolutions take minutes
            Use(kind="bias-correction"),
        ),
        description="changes to the FP32 model before it is quantized, in order; each is kept only if it helps on the search data. `[]`: none",
    )
    targets: tuple[UseOf, ...] = Field((Use(kind="onnxruntime"),), min_length=1)
    evaluation: EvaluationSpec = EvaluationSpec()
    gate: Annotated[
        tuple[GateSpec, ...],
        BeforeValidator(_several, json_schema_input_type=GateSpec | tuple[GateSpec, ...]),
    ] = Field((GateSpec(),), min_length=1, description="one gate, or several: a candidate must pass all")
    plan: PlanSpec | None = Field(None, description="also look for a plan that mixes the formats of the schemes; needs search samples")
    on_fail: Annotated[tuple[UseOf, ...], BeforeValidator(_several, json_schema_input_type=UseOf | tuple[UseOf, ...])] = Field(
        (), description="schemes that are tried in turn on a target on which nothing passes; behind them stands FP32, so that there is something to deploy"
    )
    latency: LatencySpec = LatencySpec()
    limits: LimitsSpec = LimitsSpec()

    @property
    def auto(self) -> AutoSchemes | None:
        """What is wanted of the first scheme that is enough; None where schemes are listed."""
        return self.schemes if isinstance(self.schemes, AutoSchemes) else None

    @property
    def listed(self) -> tuple[Use, ...]:
        """The schemes as they are listed; none where they are `auto`."""
        return self.schemes if isinstance(self.schemes, tuple) else ()
