"""Files that an engine writes otherwise each time: judged by what they do where the engine runs here, else by what they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from quant.engine.candidates import Built
from quant.errors import QuantError
from quant.stages.running import Array, Outputs
from quant.validation.findings import Finding
from quant.validation.subject import Subject
from quant.validation.tolerance import ROUNDING

_NOT_OPENED = frozenset({".log"})
"""What an engine writes to be read by people, with times in it."""


def own_files(subject: Subject) -> list[Finding]:
    """What is wrong with the files that the engine has written and of which no digest is known.

    Where the engine runs here, its answers in a fresh process are held to those of what is made anew. Where it does not, the file must hold
    the very bytes that are made anew, in whatever order; with other libraries than the run's it may hold others, and is not judged.
    """
    made = subject.expected
    assert made is not None
    names = sorted(name for name in subject.unrepeatable & set(subject.files) if Path(name).suffix not in _NOT_OPENED)
    changed = [name for name in names if (made.folder / name).read_bytes() != (subject.folder / name).read_bytes()]
    if not changed:
        return []
    if not subject.workshop.bound.targets[subject.target].ahead_of_time:
        return list(_by_answers(subject, made, changed[0]))
    if subject.delivery.elsewhere:
        return []
    return [_finding(subject, name, what) for name in changed if (what := other_bytes(made.folder / name, subject.folder / name))]


def other_bytes(made: Path, found: Path) -> str:
    """What `found` holds that `made` does not; empty where both hold the same bytes in some order.

    An engine that is built twice holds the same parts, of which some may have changed places.
    """
    counts = [np.bincount(np.frombuffer(path.read_bytes(), np.uint8), minlength=256) for path in (made, found)]
    was, now = (int(count.sum()) for count in counts)
    if was != now:
        return f"is not what is made anew ({now} bytes, {was} were expected)"
    others = int(np.abs(counts[0] - counts[1]).sum()) // 2
    return f"is not what is made anew, in whatever order its parts are: at least {others} of {was} bytes are others" if others else ""


def _by_answers(subject: Subject, made: Built, name: str) -> Iterator[Finding]:
    if subject.fault:
        return  # told by the check that a fresh process loads it
    fresh = subject.fresh
    session = subject.workshop.bound.targets[subject.target].session(made.artifact, made.folder, threads=1)
    found, right, fp32 = {}, {}, {}
    feeds = {request.name: request.feed for request in fresh.odd}
    for answer in fresh.served.answers:
        if answer.error or answer.request not in fresh.fp32:
            continue
        try:
            right[answer.request] = session.run(feeds[answer.request])
        except QuantError:  # refused by what is made anew, too
            continue
        found[answer.request], fp32[answer.request] = fresh.outputs(answer), fresh.fp32[answer.request]
    for output in fresh.served.outputs:
        if what := other_noise(_together(found, output), _together(right, output), _together(fp32, output)):
            yield _finding(subject, name, f"output {output!r} {what}")


def other_noise(found: npt.NDArray[np.float64], right: npt.NDArray[np.float64], fp32: npt.NDArray[np.float64]) -> str:
    """What says that `found` was not computed in the format that `right` was; empty where nothing does.

    Two artifacts that are as far from FP32 as each other are at most twice as far apart, by the triangle inequality: one that is further from
    what is made anew than twice its own distance to FP32 is more exact than the format lets it be, and is another.

    Args:
        found: An output of what lies there, over all requests.
        right: The same of what is made anew.
        fp32: The same of the FP32 model.

    Example:
        >>> fp32 = np.array([1.0, 2.0, 3.0])
        >>> other_noise(fp32 + [0.01, 0, -0.01], fp32 + [-0.01, 0, 0.01], fp32)
        ''
        >>> other_noise(fp32, fp32 + [-0.01, 0, 0.01], fp32)
        'is 0.0141 from what one made anew gives, and 0 from FP32: it is not computed in the planned formats'
    """
    whole = np.isfinite(found) & np.isfinite(right) & np.isfinite(fp32)
    apart, exact = (float(np.linalg.norm((found - other)[whole])) for other in (right, fp32))
    if apart <= max(2 * exact, ROUNDING * float(np.linalg.norm(right[whole]))):
        return ""
    return f"is {apart:.3g} from what one made anew gives, and {exact:.3g} from FP32: it is not computed in the planned formats"


def _together(outputs: Mapping[str, Outputs], name: str) -> npt.NDArray[np.float64]:
    """One output over all requests, one after the other."""
    arrays: list[Array] = [given[name].astype(np.float64).reshape(-1) for given in outputs.values() if name in given]
    return np.concatenate(arrays) if arrays else np.zeros(0)


def _finding(subject: Subject, name: str, what: str) -> Finding:
    shown = subject.path_of(name)
    return Finding(kind="file", where=shown, file=shown, what=what)
