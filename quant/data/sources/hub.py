"""`hf:ORG/NAME`: repositories of the Hugging Face hub, by way of its own library and its own cache."""

from __future__ import annotations

from pathlib import Path

from quant.data.sources import network
from quant.data.sources.contents import NotInsideError
from quant.data.sources.references import HubSource
from quant.errors import SourceError

_REACH = "check the network, QUANT_OFFLINE and HF_HUB_OFFLINE; what was fetched once needs no network"


def from_hub(ref: HubSource, file: str) -> Path:
    """The local path of a file or folder of a repository; of the whole of it when `file` is empty.

    Raises:
        NotInsideError: The repository has no such file or folder.
        SourceError: The hub cannot be reached and it is not in the cache, or there is no such repository or revision.
    """
    import httpx2  # noqa: PLC0415 - `import quant` stays light
    from huggingface_hub import constants, errors, snapshot_download  # noqa: PLC0415

    patterns = [file, f"{file}/*"] if file else None
    kind = "dataset" if ref.is_dataset else "model"
    try:
        folder = Path(snapshot_download(ref.repo, repo_type=kind, revision=ref.revision, allow_patterns=patterns, local_files_only=network.is_offline()))
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, httpx2.TransportError) as error:
        raise SourceError(f"cannot reach the hub for {ref}, and it is not in the cache", hint=_REACH) from error
    except (errors.HfHubHTTPError, errors.HFValidationError, errors.RevisionResolutionError) as error:
        said = next(iter(str(error).strip().splitlines()), type(error).__name__)
        hint = "check the name and revision; for a closed repository, sign in with the hub's own command"
        raise SourceError(f"cannot have {ref}: {said}", hint=hint) from error
    if not (folder / file).exists() and (network.is_offline() or constants.HF_HUB_OFFLINE):
        raise SourceError(f"{file!r} of {ref} is not in the cache, and the network is forbidden", hint=_REACH)
    if not (folder / file).exists():
        names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
        raise NotInsideError(f"no {file!r} in {ref}", names=names, wanted=file)
    return folder / file
