"""A GPU and a TensorRT of no more than the toolkit calls: memory is the host's, and an engine runs its graph in ONNX Runtime.

Every call is kept in order, for what has an order. Calling what is not here fails, as it would with another version.
"""

import ctypes
import json
import re
from types import SimpleNamespace

import numpy as np
import onnx

from quant.graph.runtime import Runtime

ERROR = 35


class Library:
    """CUDA's runtime library."""

    def __init__(self, *, capability=(8, 9), driver=True):
        self.calls, self.memory, self.graphs = [], {}, {}
        self.capability, self.driver = capability, driver
        self.handles = iter(range(1000, 100000))
        self.now = 0.0
        self.capturing = None
        self.cudaGetErrorString = Text()

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append(name)
            return getattr(self, re.sub("([A-Z])", lambda found: "_" + found[1].lower(), name.removeprefix("cuda")))(*arguments)

        if not name.startswith("cuda"):
            raise AttributeError(name)
        return call

    def _get_device_count(self, count):
        count._obj.value = 1
        return 0 if self.driver else ERROR

    def _get_device(self, device):
        device._obj.value = 0
        return 0 if self.driver else ERROR

    def _device_get_attribute(self, value, which, _device):
        value._obj.value = self.capability[which - 75]
        return 0

    def _malloc(self, address, size):
        buffer = ctypes.create_string_buffer(size.value)
        address._obj.value = ctypes.addressof(buffer)
        self.memory[address._obj.value] = buffer
        return 0

    def _free(self, address):
        del self.memory[address.value]
        return 0

    def _memcpy(self, to, source, size, _kind):
        ctypes.memmove(to.value, source.value, size.value)
        return 0

    def _handle(self, made):
        made._obj.value = next(self.handles)
        return 0

    _stream_create = _event_create = _handle

    def _stream_synchronize(self, _stream):
        self.now += 1.0
        return 0

    def _event_record(self, _event, _stream):
        return 0

    def _event_elapsed_time(self, milliseconds, _start, _end):
        milliseconds._obj.value = 2.0
        return 0

    def _stream_begin_capture(self, _stream, _mode):
        self.capturing = []
        return 0

    def _stream_end_capture(self, _stream, graph):
        self._handle(graph)
        self.graphs[graph._obj.value], self.capturing = self.capturing, None
        return 0

    def _graph_instantiate_with_flags(self, runnable, graph, _flags):
        self._handle(runnable)
        self.graphs[runnable._obj.value] = self.graphs[graph.value]
        return 0

    def _graph_destroy(self, graph):
        del self.graphs[graph.value]
        return 0

    def _graph_launch(self, graph, _stream):
        for inference in self.graphs[graph.value]:
            inference()
        return 0

    def put(self, inference):
        """What is put into the stream: run at once, or kept while a graph is captured."""
        if self.capturing is None:
            inference()
        else:
            self.capturing.append(inference)


class Text:
    """`cudaGetErrorString`, whose result type is set before it is called."""

    restype = None

    def __call__(self, code):
        return b"CUDA driver version is insufficient for CUDA runtime version" if code == ERROR else b"unknown"


class Settable(SimpleNamespace):
    """Takes any attribute, and keeps the calls of methods that set something."""

    def __init__(self, calls):
        super().__init__()
        self.__dict__["calls"] = calls

    def __setattr__(self, name, value):
        self.calls.append((name, value))

    def __getattr__(self, name):
        if not name.startswith(("set_", "clear_", "add_")):
            raise AttributeError(name)
        return lambda *arguments, **named: self.calls.append((name, *arguments, *named.values())) or True


class Names:
    """An enumeration that has every name."""

    def __init__(self, title):
        self.title = title

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return 0 if name == "STRONGLY_TYPED" else f"{self.title}.{name}"


def fake_trt(library, *, layers=(), refuses=False, change=None, host_inputs=()):  # noqa: C901 one small class after the other
    """A module like TensorRT's; `layers` is what the inspector tells, `change` is done to outputs."""
    said = SimpleNamespace(config=[], network=None, refitted=[])

    class Parser:
        num_errors = 1

        def __init__(self, network, _log):
            self.network = network

        def parse_from_file(self, path):
            self.network.path = path
            return not refuses

        def get_error(self, _index):
            return SimpleNamespace(node_operator=lambda: "Odd", node_name=lambda: "odd", desc=lambda: "no such operator")

    class Builder:
        def __init__(self, _log):
            pass

        def create_network(self, flags):
            said.network = flags
            return SimpleNamespace(path=None)

        def create_builder_config(self):
            config = Settable(said.config)
            config.__dict__["create_timing_cache"] = lambda old: SimpleNamespace(serialize=lambda: old + b"+times")
            return config

        def create_optimization_profile(self):
            return Settable(said.config)

        def build_serialized_network(self, network, _config):
            return network.path.encode()

    class LoadedRuntime:
        engine_host_code_allowed = False

        def __init__(self, _log):
            pass

        def deserialize_cuda_engine(self, plan):
            return LoadedEngine(plan.decode())

    class LoadedEngine:
        streamable_weights_size = 0

        def __init__(self, path):
            graph = onnx.load(path).graph
            self.path, self.values = path, {v.name: v for v in (*graph.input, *graph.output)}
            self.given = [v.name for v in graph.input]
            self.num_io_tensors = len(self.values)

        def get_tensor_name(self, index):
            return list(self.values)[index]

        def get_tensor_mode(self, name):
            return "TensorIOMode.INPUT" if name in self.given else "TensorIOMode.OUTPUT"

        def get_tensor_location(self, name):
            return "TensorLocation.HOST" if name in host_inputs else "TensorLocation.DEVICE"

        def get_tensor_dtype(self, name):
            return {1: "DataType.FLOAT", 7: "DataType.INT64"}[self.values[name].type.tensor_type.elem_type]

        def create_engine_inspector(self):
            return SimpleNamespace(get_engine_information=lambda _form: json.dumps({"Layers": list(layers)}))

        def create_execution_context(self):
            return Context(self)

    class Context:
        def __init__(self, engine):
            self.engine, self.runtime, self.shapes, self.places = engine, Runtime(path_of(engine.path), optimize=False), {}, {}

        def set_input_shape(self, name, shape):
            dims = [d.dim_value for d in self.engine.values[name].type.tensor_type.shape.dim]
            self.shapes[name] = shape
            return len(dims) == len(shape) and all(d in {0, n} for d, n in zip(dims, shape, strict=True))

        def get_tensor_shape(self, name):
            if name in self.shapes:
                return self.shapes[name]
            return self._outputs(zeros=True)[name].shape

        def set_tensor_address(self, name, address):
            self.places[name] = address

        def execute_async_v3(self, _stream):
            library.calls.append("execute_async_v3")
            library.put(self._run)
            return True

        def _run(self):
            for name, plain in self._outputs().items():
                array = np.ascontiguousarray(plain if change is None else change(plain))
                ctypes.memmove(self.places[name], array.ctypes.data, array.nbytes)

        def _outputs(self, *, zeros=False):
            feed = {}
            for name in self.engine.given:
                array = np.zeros(self.shapes[name], {"DataType.FLOAT": np.float32, "DataType.INT64": np.int64}[self.engine.get_tensor_dtype(name)])
                if not zeros:
                    ctypes.memmove(array.ctypes.data, self.places[name], array.nbytes)
                feed[name] = array
            return self.runtime.run(feed)

    class Refitter:
        def __init__(self, _engine, _log):
            pass

        def refit_cuda_engine(self):
            return True

    class OnnxParserRefitter:
        def __init__(self, _refitter, _log):
            pass

        def refit_from_file(self, path):
            said.refitted.append(path)
            return True

    enumerations = ("NetworkDefinitionCreationFlag", "ProfilingVerbosity", "BuilderFlag", "MemoryPoolType", "HardwareCompatibilityLevel", "TensorIOMode")
    enumerations += ("TensorLocation", "LayerInformationFormat", "ComputeCapability")
    return SimpleNamespace(
        __version__="11.4.0",
        ILogger=type("ILogger", (), {"__init__": lambda _self: None}),
        Builder=Builder,
        OnnxParser=Parser,
        Runtime=LoadedRuntime,
        Refitter=Refitter,
        OnnxParserRefitter=OnnxParserRefitter,
        said=said,
        **{name: Names(name) for name in enumerations},
    )


def path_of(text):
    """The path in an engine's bytes."""
    from pathlib import Path

    return Path(text)
