"""The machine and the libraries that results depend on."""

from __future__ import annotations

import platform
from pathlib import Path

from quant.engine.cache import code_digest, library_versions

_FLAGS = frozenset({"avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "avx512_fp16"})
TOOLKIT = "quant-toolkit"
"""What tells one state of the toolkit's own code from another: the start of its SHA-256."""

_CPU_INFO = Path("/proc/cpuinfo")


def environment() -> dict[str, str]:
    """Name -> version or property of what a run is computed with."""
    return {
        TOOLKIT: code_digest()[:12],
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu(),
        **library_versions(),
    }


def cpu() -> str:
    """The processor's name and those of its instruction sets that integer kernels go by: without VNNI, some round otherwise."""
    try:
        text = _CPU_INFO.read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or "unknown"
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    fields = {key.strip(): value.strip() for key, value in pairs}
    flags = sorted(set(fields.get("flags", "").split()) & _FLAGS)
    return f"{fields.get('model name', 'unknown')} ({' '.join(flags)})"
