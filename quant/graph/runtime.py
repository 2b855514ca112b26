"""ONNX Runtime as the toolkit's own calculator: the FP32 baseline, calibration, and the plain meaning of any graph.

A session runs on one thread. Work is spread over threads batch by batch, so that a result never depends on their number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from quant.errors import ModelError

Optimize = bool | Literal["basic", "extended"]
"""How far ONNX Runtime may rewrite a graph: all the way, not at all, or up to one of its levels."""


def plain_options(*, threads: int = 1, optimize: Optimize = True) -> Any:
    """Session options: `threads` for one run, quiet, deterministic; without `optimize` the graph is run as written."""
    import onnxruntime as ort  # noqa: PLC0415 - heavy

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.use_deterministic_compute = True
    # Threads that go on spinning after a run take the cores from the session that is timed next: measured in turns on two
    # cores, FP32 took 9.2 ms instead of 3.7.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    level = {True: "ENABLE_ALL", False: "DISABLE_ALL"}[optimize] if isinstance(optimize, bool) else f"ENABLE_{optimize.upper()}"
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_{level}")
    return options


_ON_THE_CPU: Sequence[tuple[str, dict[str, str]]] = (("CPUExecutionProvider", {}),)


def start_session(source: str | bytes, options: Any, providers: Sequence[tuple[str, dict[str, str]]], *, where: str) -> Any:
    """ONNX Runtime's session of a model.

    Args:
        source: Path of its file, or its bytes.
        options: As `plain_options` makes them.
        providers: As for `Runtime`.
        where: What the model is called, should it be refused.

    Raises:
        ModelError: ONNX Runtime refuses the model.
    """
    import onnxruntime as ort  # noqa: PLC0415 - heavy

    try:
        return ort.InferenceSession(source, options, providers=list(providers))
    except Exception as error:  # ONNX Runtime's exceptions have no common class of their own
        if type(error).__module__.split(".")[0] != "onnxruntime":
            raise
        said = str(error).strip().splitlines()[0].replace(f"Load model from {where} failed:", "")
        raise ModelError(f"ONNX Runtime refuses the model: {said}", where=where) from error  # messages do not depend on where files lie


class Runtime:
    """A loaded ONNX model.

    Args:
        model: File of the model, or a model in memory whose external data lies in `folder`.
        folder: Where the external data of a model in memory lies.
        threads: Threads of one run.
        optimize: Whether ONNX Runtime may rewrite the graph; without, every node is computed as ONNX defines it.
        providers: (execution provider, its settings) in the order in which ONNX Runtime asks them.

    Raises:
        ModelError: ONNX Runtime refuses the model.
    """

    def __init__(
        self,
        model: Path | ir.Model,
        *,
        folder: Path | None = None,
        threads: int = 1,
        optimize: Optimize = True,
        providers: Sequence[tuple[str, dict[str, str]]] = _ON_THE_CPU,
    ) -> None:
        options = plain_options(threads=threads, optimize=optimize)
        where = str(model) if isinstance(model, Path) else str(folder or "model")
        source: str | bytes = str(model) if isinstance(model, Path) else ir.to_proto(model).SerializeToString()
        if folder is not None:
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
        self._session = start_session(source, options, providers, where=where)

    @cached_property
    def providers(self) -> tuple[str, ...]:
        """The execution providers that could be started, in order; ONNX Runtime leaves out the others in silence."""
        return tuple(self._session.get_providers())

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs, in order."""
        return tuple(o.name for o in self._session.get_outputs())

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, in order."""
        return tuple(i.name for i in self._session.get_inputs())

    def run(self, feed: Mapping[str, npt.NDArray[Any]], outputs: Sequence[str] | None = None) -> dict[str, npt.NDArray[Any]]:
        """The outputs (all, or those named) for one batch.

        Raises:
            ModelError: ONNX Runtime cannot run the model on this input.
        """
        names = list(self.outputs if outputs is None else outputs)
        if missing := [name for name in self.inputs if name not in feed]:
            raise ModelError(f"there is nothing for the model's input {missing[0]!r}: it is given {', '.join(feed) or 'nothing'}")
        try:
            found = self._session.run(names, {name: feed[name] for name in self.inputs})
        except Exception as error:
            if type(error).__module__.split(".")[0] != "onnxruntime":
                raise
            shapes = ", ".join(f"{k} {v.dtype}{list(v.shape)}" for k, v in feed.items())
            raise ModelError(f"ONNX Runtime cannot run the model on {shapes}: {str(error).strip().splitlines()[0]}") from error
        return {name: np.asarray(array) for name, array in zip(names, found, strict=True)}
