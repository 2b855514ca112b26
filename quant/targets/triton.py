"""`triton`: a model repository for NVIDIA Triton Inference Server, around the artifact of another target.

What is evaluated, timed and audited is the artifact within, by its own engine: Triton's backends open the very same files.

    targets:
      - kind: triton
        engine: {kind: openvino}
        model_name: digits
        dynamic_batching: {preferred_batch_sizes: [4, 8], max_queue_delay_us: 100}

The folder that is written is the repository, `REPOSITORY/digits/config.pbtxt` and `REPOSITORY/digits/1/...`; the server takes it with
`tritonserver --model-repository=REPOSITORY`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import onnx_ir as ir
from pydantic import Field, ValidationError, field_validator
from pydantic_core import ErrorDetails

from quant.core.dialect import Dialect
from quant.core.digest import digest_of_file
from quant.core.documents import Artifact, Audit, PrecisionPlan
from quant.core.files import write_text
from quant.core.registry import did_you_mean
from quant.errors import RecipeError, TargetError
from quant.graph.model import signature
from quant.targets import TARGETS, Availability, Session, Shapes, TakesSamples, Target, TargetOptions
from quant.targets.model_repository import warmup
from quant.targets.model_repository.backends import BACKENDS, REFUSED, Backend, Device
from quant.targets.model_repository.configuration import CONFIG_FILE, Served, configuration
from quant.targets.model_repository.options import RepositoryOptions
from quant.targets.model_repository.schema import PACKAGE, has_schema, parsed
from quant.targets.nvidia.options import EngineOptions
from quant.targets.ort.providers import ProviderOptions, tensorrt_settings


@TARGETS.add
class Triton:
    """A model repository of Triton Inference Server, around another target's artifact."""

    kind: ClassVar[str] = "triton"

    class Options(RepositoryOptions, TargetOptions):
        """Options of `triton`."""

        engine: dict[str, Any] = Field(default_factory=lambda: {"kind": "onnxruntime"})
        """The target whose artifact is served, as in `{kind: openvino}`, with its own options."""

        @field_validator("engine", mode="before")
        @classmethod
        def _engine(cls, value: object) -> object:
            found = {"kind": value} if isinstance(value, str) else value
            if not isinstance(found, Mapping) or not isinstance(found.get("kind"), str):
                raise ValueError("name the target whose artifact is served, as in {kind: onnxruntime}")  # noqa: TRY004 - pydantic reads it
            kind, options = found["kind"], {key: value for key, value in found.items() if key != "kind"}
            if kind not in BACKENDS:
                TARGETS.get(kind)  # a name that is none has a better message there
                why = REFUSED.get(kind, f"Triton has no backend for artifacts of {kind!r}")
                raise RecipeError(f"{why} (engine {kind!r})", hint=did_you_mean(kind, [known for known in BACKENDS if known in TARGETS]))
            try:
                TARGETS.get(kind).Options.model_validate(options)
            except ValidationError as error:
                known = list(TARGETS.get(kind).Options.model_fields)
                raise ValueError(f"options of engine {kind!r}: " + "; ".join(_said(each, known) for each in error.errors())) from error
            return dict(found)

    reference_samples: int  # only where the engine within or warm-up wants samples

    def __init__(self, options: Options) -> None:
        self.options = options
        self._kind = str(options.engine["kind"])
        self._inner: Target = TARGETS.make(self._kind, {key: value for key, value in options.engine.items() if key != "kind"})
        wanted = [self._inner.reference_samples] if isinstance(self._inner, TakesSamples) else []
        wanted += [max(options.warmup.batch_sizes)] if options.warmup else []
        if wanted:
            self.reference_samples = max(wanted)

    @property
    def dialect(self) -> Dialect:
        """That of the engine within."""
        return self._inner.dialect

    @property
    def ahead_of_time(self) -> bool:
        """As the engine within."""
        return self._inner.ahead_of_time

    def available(self) -> Availability:
        """As the engine within; the server is not needed to write what it reads, nor is its schema, which checks it."""
        here = self._inner.available()
        if not here.available:
            return Availability(available=False, reason=f"the engine within, {self._kind}: {here.reason}", install=here.install)
        note = (
            f"configurations are checked with the schema of {PACKAGE} {version(PACKAGE)}"
            if has_schema()
            else "configurations are written unchecked: pip install 'quant-toolkit[triton]' brings Triton's schema"
        )
        return Availability(available=True, version=f"{self._kind} {here.version}", note="; ".join(filter(None, (note, here.note))))

    def emulates(self, number_format: str) -> str | None:
        """As the engine within."""
        return self._inner.emulates(number_format)

    def export(
        self,
        model: ir.Model,
        folder: Path,
        *,
        scheme: str,
        shapes: Mapping[str, Shapes] | None = None,
        samples: Sequence[warmup.Feed] | None = None,
    ) -> Artifact:
        """Write the repository: the artifact within, the configuration, and the data of warm-up requests.

        An engine that is built elsewhere is not in it: what builds it lies where it is to be, and the server starts when it was run.

        Raises:
            TargetError: The engine refuses the model, the options do not fit it, or Triton's schema refuses the configuration.
        """
        place, files = self._place(), self._files(folder)
        told = signature(model)
        if isinstance(self._inner, TakesSamples):
            inner = self._inner.export(model, files, scheme=scheme, shapes=shapes, samples=(samples or ())[: self._inner.reference_samples])
        else:
            inner = self._inner.export(model, files, scheme=scheme, shapes=shapes)
        backend = BACKENDS[self._kind]
        served = Served(
            backend=backend,
            file=_opened(backend, inner, files),
            signature=told,
            options=self.options,
            device=self._device(backend),
            most=self._most(shapes or {}),
            accelerator=self._accelerator(model),
        )
        home = folder / place.parent
        text = configuration(served, warmup.requests(served, home, shapes=shapes or {}, samples=samples or ()))
        if has_schema():
            parsed(text)
        write_text(home / CONFIG_FILE, text)
        own = [home / CONFIG_FILE, *sorted((home / warmup.FOLDER).glob("*"))]
        digests = {str(place / name): digest for name, digest in inner.files.items()}
        digests |= {path.relative_to(folder).as_posix(): digest_of_file(path) for path in own}
        size = inner.size_bytes + sum(path.stat().st_size for path in own)
        return Artifact(target=self.kind, scheme=scheme, main=str(place / inner.main), files=digests, size_bytes=size)

    def session(self, artifact: Artifact, folder: Path, *, threads: int) -> Session:
        """Load the artifact within into its own engine."""
        return self._inner.session(self._within(artifact), self._files(folder), threads=threads)

    def audit(self, artifact: Artifact, folder: Path, plan: PrecisionPlan, layers: Mapping[str, str]) -> Audit:
        """That of the artifact within."""
        found = self._inner.audit(self._within(artifact), self._files(folder), plan, layers)
        return found.model_copy(update={"target": self.kind})

    def _place(self) -> PurePosixPath:
        return PurePosixPath(self.options.model_name, str(self.options.version))

    def _files(self, folder: Path) -> Path:
        return folder / self._place()

    def _within(self, artifact: Artifact) -> Artifact:
        """The artifact that the engine within was given."""
        place = self._place()
        files = {str(PurePosixPath(name).relative_to(place)): digest for name, digest in artifact.files.items() if PurePosixPath(name).is_relative_to(place)}
        main = str(PurePosixPath(artifact.main).relative_to(place))
        return Artifact(target=self._kind, scheme=artifact.scheme, main=main, files=files, size_bytes=artifact.size_bytes)

    def _device(self, backend: Backend) -> Device:
        """What the artifact is made for."""
        options = self._inner.options
        return "gpu" if isinstance(options, ProviderOptions) and options.provider != "cpu" else backend.devices[0]

    def _accelerator(self, model: ir.Model) -> tuple[str, Mapping[str, str]] | None:
        """ONNX Runtime's own way to TensorRT, which its backend must be told of."""
        options = self._inner.options
        if not isinstance(options, ProviderOptions) or options.provider != "tensorrt":
            return None
        return "tensorrt", tensorrt_settings(options, model)

    def _most(self, shapes: Mapping[str, Shapes]) -> int | None:
        """Largest batch that an engine with profiles takes: the recipe's profiles, else the data's shapes; None where it takes any."""
        options = self._inner.options
        if not isinstance(options, EngineOptions | ProviderOptions):
            return None
        tops = [profile.max[0] for profile in options.profiles.values()]
        if not tops and isinstance(options, EngineOptions):
            tops = [found.largest[0] for found in shapes.values() if found.largest]
        return min(tops, default=None)


def _said(found: ErrorDetails, known: Sequence[str]) -> str:
    """What is wrong with an option of the engine within."""
    place = ".".join(map(str, found["loc"]))
    if found["type"] == "extra_forbidden":
        return f"unknown key {place!r}" + (f" ({hint})" if (hint := did_you_mean(place, known)) else "")
    return f"{place}: {found['msg']}"


def _opened(backend: Backend, inner: Artifact, files: Path) -> str:
    """Name of the file that the backend opens; for an engine that is built on the machine with the GPU, of what is built there."""
    if inner.main.endswith(backend.suffix):
        return inner.main
    there = sorted(path.name for path in files.glob(f"*{backend.suffix}"))
    if len(there) == 1:
        return there[0]
    if backend.graphs and not there:
        return f"model{backend.suffix}"
    raise TargetError(f"the artifact has {len(there) or 'no'} files that Triton's backend {backend.name!r} could open (*{backend.suffix})", where=inner.target)
