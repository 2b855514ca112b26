"""Running an engine: NumPy arrays in, NumPy arrays out."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .cuda import Cuda
from .loading import last_words, load_engine
from .timing import Times, take_times

Array = npt.NDArray[Any]
_TYPES = {"FLOAT": "float32", "HALF": "float16", "INT8": "int8", "UINT8": "uint8", "INT32": "int32", "INT64": "int64", "BOOL": "bool"}


class EngineError(Exception):
    """An engine cannot be loaded or run."""


class Engine:
    """An engine on the GPU, with memory for what goes in and out.

    Args:
        trt: The Python module of TensorRT.
        log: What `make_log` made.
        plan: The engine's bytes.
        cuda: CUDA.
        cuda_graph: Whether an inference is captured, and launched as one from then on.
        weights_from: The ONNX file that weights are taken from, when the engine was built without them.

    Raises:
        RefusedError: The engine is not one for this GPU and this version.
        EngineError: It cannot be made ready.
    """

    def __init__(self, trt: Any, log: Any, plan: bytes, *, cuda: Cuda, cuda_graph: bool = True, weights_from: Path | None = None) -> None:
        self._trt, self._log, self._cuda, self._cuda_graph = trt, log, cuda, cuda_graph
        self._runtime, engine = load_engine(trt, log, plan)
        self._engine = engine
        if weights_from is not None:
            self._refit(weights_from)
        if engine.streamable_weights_size:
            engine.weight_streaming_budget_v2 = engine.get_weight_streaming_automatic_budget()
        context = engine.create_execution_context()
        if context is None:
            raise EngineError(f"TensorRT gives the engine no context to run in: {last_words(self._log)}")
        self._context = context
        self._stream = cuda.stream()
        self._memory: dict[str, tuple[int, int]] = {}
        self._graphs: dict[tuple[Any, ...], int] = {}
        self._held: dict[str, Array] = {}
        weakref.finalize(self, _free, cuda, self._memory)
        names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        self.inputs = tuple(n for n in names if engine.get_tensor_mode(n) == trt.TensorIOMode.INPUT)
        self.outputs = tuple(n for n in names if n not in self.inputs)

    def _refit(self, model: Path) -> None:
        refitter = self._trt.Refitter(self._engine, self._log)
        onnx_refitter = self._trt.OnnxParserRefitter(refitter, self._log)
        if not onnx_refitter.refit_from_file(str(model)) or not refitter.refit_cuda_engine():
            raise EngineError(f"TensorRT does not take the weights of {model.name}: {last_words(self._log)}")

    def run(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs for one batch.

        Raises:
            EngineError: The engine is not built for these shapes, or does not run.
        """
        results = self._load(feed)
        self._enqueue()
        self._cuda.wait(self._stream)
        for name, array in results.items():
            if array.nbytes and not self._on_host(name):
                self._cuda.to_host(array.ctypes.data, self._memory[name][0], array.nbytes)
        return results

    def time(self, feed: Mapping[str, Array]) -> Times:
        """Times of many inferences on one batch, as trtexec takes them: data stay on the GPU."""
        self._load(feed)
        return take_times(_Between(self._cuda, self._stream, self._enqueue))

    def _on_host(self, name: str) -> bool:
        return bool(self._engine.get_tensor_location(name) == self._trt.TensorLocation.HOST)

    def _dtype(self, name: str) -> np.dtype[Any]:
        kind = str(self._engine.get_tensor_dtype(name)).rsplit(".", 1)[-1]
        if kind not in _TYPES:
            raise EngineError(f"{name!r} is of type {kind}, which NumPy does not have")
        return np.dtype(_TYPES[kind])

    def _load(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        """Bring the inputs to where the engine reads them; gives arrays for its outputs."""
        self._held = {}
        for name in self.inputs:
            array = np.ascontiguousarray(feed[name], self._dtype(name)).reshape(np.shape(feed[name]))
            if not self._context.set_input_shape(name, tuple(array.shape)):
                raise EngineError(f"the engine is not built for {name!r} of shape {list(array.shape)}: {last_words(self._log)}")
            self._place(name, array)
            if array.nbytes and not self._on_host(name):
                self._cuda.to_device(self._memory[name][0], array.ctypes.data, array.nbytes)
        results = {}
        for name in self.outputs:
            shape = tuple(self._context.get_tensor_shape(name))
            if any(n < 0 for n in shape):
                raise EngineError(f"the shape of output {name!r} depends on the values of the inputs: {list(shape)}")
            results[name] = np.empty(shape, self._dtype(name))
            self._place(name, results[name])
        return results

    def _place(self, name: str, array: Array) -> None:
        """Tell the engine where `name` is: in `array` itself, or in memory of the GPU, which only ever grows."""
        if self._on_host(name):
            self._held[name] = array
            self._context.set_tensor_address(name, array.ctypes.data)
            self._graphs.clear()  # an address on the host changes from batch to batch
            return
        address, size = self._memory.get(name, (0, 0))
        if address == 0 or size < array.nbytes:
            if address:
                self._cuda.free(address)
            size = max(array.nbytes, 1)
            address = self._cuda.allocate(size)
            self._memory[name] = address, size
            self._graphs.clear()  # they hold the old address
        self._context.set_tensor_address(name, address)

    def _enqueue(self) -> None:
        """Put one inference into the stream."""
        if not self._cuda_graph:
            self._execute()
            return
        shapes = tuple(tuple(self._context.get_tensor_shape(name)) for name in self.inputs)
        if shapes not in self._graphs:
            self._execute()  # what TensorRT does but once for new shapes must not be captured
            self._cuda.wait(self._stream)
            with self._cuda.capture(self._stream) as made:
                self._execute()
            self._graphs[shapes] = made[0]
        self._cuda.launch(self._graphs[shapes], self._stream)

    def _execute(self) -> None:
        if not self._context.execute_async_v3(self._stream):
            raise EngineError(f"the engine does not run: {last_words(self._log)}")


def _free(cuda: Cuda, memory: Mapping[str, tuple[int, int]]) -> None:
    for address, _size in memory.values():
        cuda.free(address)


class _Between:
    """One inference between two events."""

    def __init__(self, cuda: Cuda, stream: int, inference: Any) -> None:
        self._cuda, self._stream, self._inference = cuda, stream, inference
        self._start, self._end = cuda.event(), cuda.event()

    def enqueue(self) -> None:
        self._cuda.record(self._start, self._stream)
        self._inference()
        self._cuda.record(self._end, self._stream)

    def finish(self) -> float:
        self._cuda.wait(self._stream)
        return self._cuda.milliseconds(self._start, self._end)
