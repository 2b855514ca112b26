"""CUDA's runtime library, as little of it as running an engine takes; errors carry CUDA's own words."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_NAMES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so", "cudart64_13.dll", "cudart64_12.dll")
_TO_DEVICE, _TO_HOST = 1, 2
_MAJOR, _MINOR = 75, 76
_RELAXED = 2
"""Capturing may go on while others call CUDA: TensorRT does so itself."""


class CudaError(Exception):
    """A call to CUDA failed, or there is no CUDA here."""


def find_library() -> Any:
    """CUDA's runtime library, from where the system looks or from the wheels that TensorRT brings.

    Raises:
        CudaError: There is none.
    """
    for name in (*_NAMES, *_in_wheels()):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise CudaError("CUDA's runtime library is not installed (libcudart; TensorRT's wheel brings it as nvidia-cuda-runtime)")


def _in_wheels() -> Iterator[str]:
    found = importlib.util.find_spec("nvidia")
    for folder in (found.submodule_search_locations if found is not None else None) or ():
        for pattern in ("*/lib/libcudart.so.*", "*/bin/**/cudart64_*.dll"):
            yield from (str(path) for path in sorted(Path(folder).glob(pattern), reverse=True))


class Cuda:
    """CUDA on the current device.

    Args:
        library: The runtime library; looked for when not given.

    Raises:
        CudaError: There is no library.
    """

    def __init__(self, library: Any = None) -> None:
        self._library = library if library is not None else find_library()

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            text = self._library.cudaGetErrorString
            text.restype = ctypes.c_char_p
            said = text(code)
            raise CudaError(f"{name}: {said.decode() if said else 'no reason was given'} (error {code})")

    def devices(self) -> int:
        """Number of GPUs.

        Raises:
            CudaError: There is no driver, or no GPU.
        """
        count = ctypes.c_int()
        self._call("cudaGetDeviceCount", ctypes.byref(count))
        return count.value

    def capability(self) -> str:
        """Compute capability of the current GPU: `sm89`."""
        device, found = ctypes.c_int(), []
        self._call("cudaGetDevice", ctypes.byref(device))
        for which in (_MAJOR, _MINOR):
            value = ctypes.c_int()
            self._call("cudaDeviceGetAttribute", ctypes.byref(value), which, device)
            found.append(value.value)
        return f"sm{found[0]}{found[1]}"

    def allocate(self, size: int) -> int:
        """Address of `size` bytes on the GPU."""
        address = ctypes.c_void_p()
        self._call("cudaMalloc", ctypes.byref(address), ctypes.c_size_t(size))
        return int(address.value or 0)

    def free(self, address: int) -> None:
        """Give back what `allocate` gave."""
        self._call("cudaFree", ctypes.c_void_p(address))

    def to_device(self, address: int, host: int, size: int) -> None:
        """Copy `size` bytes from `host` to the GPU."""
        self._call("cudaMemcpy", ctypes.c_void_p(address), ctypes.c_void_p(host), ctypes.c_size_t(size), _TO_DEVICE)

    def to_host(self, host: int, address: int, size: int) -> None:
        """Copy `size` bytes from the GPU to `host`."""
        self._call("cudaMemcpy", ctypes.c_void_p(host), ctypes.c_void_p(address), ctypes.c_size_t(size), _TO_HOST)

    def stream(self) -> int:
        """A new stream."""
        made = ctypes.c_void_p()
        self._call("cudaStreamCreate", ctypes.byref(made))
        return int(made.value or 0)

    def wait(self, stream: int) -> None:
        """Wait until everything in `stream` is done."""
        self._call("cudaStreamSynchronize", ctypes.c_void_p(stream))

    def event(self) -> int:
        """A new event."""
        made = ctypes.c_void_p()
        self._call("cudaEventCreate", ctypes.byref(made))
        return int(made.value or 0)

    def record(self, event: int, stream: int) -> None:
        """Let `event` happen when `stream` comes to it."""
        self._call("cudaEventRecord", ctypes.c_void_p(event), ctypes.c_void_p(stream))

    def milliseconds(self, start: int, end: int) -> float:
        """Time between two events, both past."""
        found = ctypes.c_float()
        self._call("cudaEventElapsedTime", ctypes.byref(found), ctypes.c_void_p(start), ctypes.c_void_p(end))
        return found.value

    @contextmanager
    def capture(self, stream: int) -> Iterator[list[int]]:
        """What is put into `stream` within becomes a CUDA graph, which is in the list afterwards; nothing is run."""
        made: list[int] = []
        self._call("cudaStreamBeginCapture", ctypes.c_void_p(stream), _RELAXED)
        graph, runnable = ctypes.c_void_p(), ctypes.c_void_p()
        try:
            yield made
        finally:
            self._call("cudaStreamEndCapture", ctypes.c_void_p(stream), ctypes.byref(graph))
        self._call("cudaGraphInstantiateWithFlags", ctypes.byref(runnable), graph, ctypes.c_ulonglong(0))
        self._call("cudaGraphDestroy", graph)
        made.append(int(runnable.value or 0))

    def launch(self, graph: int, stream: int) -> None:
        """Put a captured graph into `stream`."""
        self._call("cudaGraphLaunch", ctypes.c_void_p(graph), ctypes.c_void_p(stream))
