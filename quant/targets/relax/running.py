"""Running a compiled library: a virtual machine for each thread that runs it."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from quant.core.parallel import worker_count
from quant.errors import TargetError

_SHARE_ALL_CORES = -3


class RelaxSession:
    """A loaded library.

    TVM has a pool of threads for each thread that runs it. Here they sleep between runs and are bound to no core: sessions that are timed in
    turns would take each other's.

    Args:
        path: The library.
        inputs: Names of the inputs, in order.
        outputs: Names of the outputs, in order.
        threads: Threads of one run.

    Raises:
        TargetError: The library cannot be loaded.
    """

    def __init__(self, path: Path, *, inputs: Sequence[str], outputs: Sequence[str], threads: int) -> None:
        os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "0")
        os.environ.setdefault("TVM_BIND_THREADS", "0")
        import tvm  # noqa: PLC0415 - optional, heavy
        from tvm import relax  # noqa: PLC0415

        try:
            self._module = tvm.runtime.load_module(str(path))
            self._machine = relax.VirtualMachine(self._module, tvm.cpu())
        except (RuntimeError, ValueError, AttributeError, OSError) as error:
            raise TargetError(f"TVM cannot load the library: {str(error).splitlines()[0]}", where=str(path)) from error
        self._inputs, self.outputs, self._threads = tuple(inputs), tuple(outputs), threads
        self._own = threading.local()

    def run(self, feed: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """The outputs for one batch.

        Raises:
            TargetError: TVM cannot run the model on this input.
        """
        import tvm  # noqa: PLC0415 - optional, heavy
        from tvm import relax  # noqa: PLC0415

        machine = getattr(self._own, "machine", None)
        if machine is None:
            machine = self._own.machine = relax.VirtualMachine(self._module, tvm.cpu())
        _use_threads(self._threads)
        try:
            given = [tvm.runtime.tensor(np.asarray(feed[name], order="C")) for name in self._inputs]
            found = machine["main"](*given)
        except (RuntimeError, ValueError, TypeError, AssertionError) as error:
            shapes = ", ".join(f"{k} {v.dtype}{list(v.shape)}" for k, v in feed.items())
            raise TargetError(f"TVM cannot run the model on {shapes}: {_said(error)}") from error
        arrays = [found] if isinstance(found, tvm.runtime.Tensor) else list(found)
        return {name: array.numpy() for name, array in zip(self.outputs, arrays, strict=True)}


_pool = threading.local()


def _use_threads(count: int) -> None:
    """Let TVM use `count` threads for what the calling thread runs next."""
    from tvm_ffi import get_global_func  # noqa: PLC0415 - optional

    if getattr(_pool, "count", None) == count:
        return
    configure = get_global_func("runtime.config_threadpool")
    if not hasattr(_pool, "count") and threading.current_thread() is threading.main_thread():
        # A pool never grows: the thread that sessions are timed on has room from the beginning for the most that one may use.
        most = max(count, worker_count())
        configure(_SHARE_ALL_CORES, most, [str(n) for n in range(most)])
    configure(_SHARE_ALL_CORES, count, [str(n) for n in range(count)])
    _pool.count = count


def _said(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
