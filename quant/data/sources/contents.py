"""What a source holds, taken out of a folder or an archive into an empty folder, by name."""

from __future__ import annotations

import difflib
import fnmatch
import tempfile
from collections.abc import Iterable
from pathlib import Path

from quant.data.sources.archives import copy_member, is_archive, open_archive
from quant.data.sources.references import Inside
from quant.errors import SourceError

_SHOWN = 4
_COMPARED = 20_000  # comparing names is slow


class NotInsideError(SourceError):
    """The place that is asked for is not in this archive or folder; `names` are the files that are, `wanted` is what was looked for."""

    def __init__(self, what: str, *, names: Iterable[str], wanted: str) -> None:
        self.names = tuple(names)
        self.wanted = wanted
        near = nearest(wanted, self.names)
        super().__init__(what, hint=f"nearest: {', '.join(near)}" if near else "")


def nearest(wanted: str, names: Iterable[str]) -> list[str]:
    """The few of `names` that are most like `wanted`: those of the same file name first, those of the same ending last.

    Example:
        >>> nearest("data/a.csv", ["old/a.csv", "data/b.csv", "setup.py"])
        ['old/a.csv', 'data/b.csv']
    """
    pool = sorted(set(names))
    base = wanted.rpartition("/")[2]
    ending = base.rpartition(".")[1] + base.rpartition(".")[2] if "." in base else ""
    same = [name for name in pool if base and name.rpartition("/")[2] == base]
    alike = difflib.get_close_matches(wanted, pool[:_COMPARED], n=_SHOWN, cutoff=0.5)
    kin = [name for name in pool if ending and name.endswith(ending)]
    return list(dict.fromkeys(same + alike + kin or pool))[:_SHOWN]


def take_out(archive: Path, inside: Inside, folder: Path, *, name: str, strip: bool = False) -> Path:
    """Unpack the file or folder `inside` of `archive` into `folder`, and give its path there.

    Args:
        archive: A zip, wheel or tar file.
        inside: The place; steps through nested archives are unpacked on the way. A `*` in the last name takes the files of
            one folder that match.
        folder: An empty folder.
        name: Name of the result when everything is taken.
        strip: Whether the one top folder of the archive is left out of the names.

    Raises:
        NotInsideError: There is no such file or folder.
        SourceError: The archive is unsafe, damaged, or none.
    """
    step, rest = inside.steps[0], inside.steps[1:]
    if not rest:
        return _unpack(archive, step, folder / (step.rsplit("/", 1)[-1] or name), strip=strip)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".nested.", suffix=".part") as scratch:
        nested = _unpack(archive, step, Path(scratch) / step.rsplit("/", 1)[-1], strip=strip)
        if not nested.is_file() or not is_archive(nested):
            raise SourceError(f"{step!r} in {archive.name!r} is no archive, so nothing can be inside it", hint="write `!/` only after an archive")
        return take_out(nested, Inside(rest), folder, name=nested.name.split(".")[0])


def _unpack(archive_path: Path, step: str, to: Path, *, strip: bool) -> Path:
    with open_archive(archive_path) as (archive, members):
        shown = {(name.partition("/")[2] or name) if strip else name: name for name in members}
        if step in shown:
            copy_member(archive, members, shown[step], to)
            return to
        if "*" in step:
            prefix, to = f"{step.rpartition('/')[0]}/".lstrip("/"), to.with_name(step.split("/")[-2] if "/" in step else "matches")
            wanted = {name: stored for name, stored in shown.items() if name.count("/") == step.count("/") and fnmatch.fnmatchcase(name, step)}
        else:
            prefix = f"{step}/" if step else ""
            wanted = {name: stored for name, stored in shown.items() if name.startswith(prefix)}
        if not wanted:
            raise NotInsideError(f"no {step!r} in {archive_path.name!r}" if step else f"{archive_path.name!r} is empty", names=shown, wanted=step)
        for name, stored in wanted.items():
            copy_member(archive, members, stored, to / name.removeprefix(prefix))
    return to
