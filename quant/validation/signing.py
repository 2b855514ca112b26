"""An Ed25519 signature over a run's manifest, which names every other file: whoever holds the public key can tell who delivered it, unchanged."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import TYPE_CHECKING

from quant.core.arguments import with_checked_arguments
from quant.core.files import write_text
from quant.engine.folder import MANIFEST, SIGNATURE
from quant.errors import QuantError, RunError
from quant.validation.manifest import changed_files

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_PURPOSE = b"quant-toolkit manifest v1\n"
"""Signed in front of the manifest, so that a signature made for something else is none here."""
_MAKE_KEYS = "make a pair with `openssl genpkey -algorithm ed25519 -out key.pem` and `openssl pkey -in key.pem -pubout -out key.pub`"


@with_checked_arguments
def sign(folder: Path | str, *, key: Path | str) -> Path:
    """Sign the manifest of the run in `folder`; gives the file with the signature.

    Args:
        folder: The run's folder; every file must be as its manifest says.
        key: PEM file of an Ed25519 private key that no password protects.

    Raises:
        RunError: There is no manifest, or a file is not what it says.
        QuantError: The key is none, or `cryptography` is not installed.
    """
    folder = Path(folder)
    private = _private(Path(key))
    changed, _ = changed_files(folder)
    if changed:
        raise RunError(f"cannot be signed: {changed[0]}", where=str(folder), hint="run the recipe again, and sign what it writes")
    signature = private.sign(_PURPOSE + (folder / MANIFEST).read_bytes())
    write_text(folder / SIGNATURE, base64.b64encode(signature).decode("ascii") + "\n")
    return folder / SIGNATURE


def signature_fault(folder: Path, key: Path) -> str:
    """What is wrong with the signature of a run; empty when it is that of `key` over the manifest as it is.

    Args:
        folder: The run's folder.
        key: PEM file of the Ed25519 public key.

    Raises:
        QuantError: The key is none, or `cryptography` is not installed.
    """
    public = _public(key)
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - optional

    if not (folder / SIGNATURE).is_file():
        return "the run is not signed"
    try:
        signature = base64.b64decode((folder / SIGNATURE).read_bytes().strip(), validate=True)
    except binascii.Error:
        return "the file holds no signature"
    try:
        public.verify(signature, _PURPOSE + (folder / MANIFEST).read_bytes())
    except InvalidSignature:
        return f"the signature is not that of {key.name} over {MANIFEST} as it is: one of the two was changed, or another key has signed"
    return ""


def _check_installed() -> None:
    try:
        import cryptography  # noqa: F401, PLC0415 - optional
    except ImportError as error:
        raise QuantError("signatures need the package `cryptography`, which is not installed", hint="pip install 'quant-toolkit[sign]'") from error


def _private(key: Path) -> Ed25519PrivateKey:
    _check_installed()
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - optional
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415

    try:
        found = serialization.load_pem_private_key(_read(key), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise QuantError(f"no private key in PEM form without a password: {str(error).splitlines()[0]}", where=str(key), hint=_MAKE_KEYS) from error
    if not isinstance(found, ed25519.Ed25519PrivateKey):
        raise QuantError(f"a {type(found).__name__.lstrip('_')}, not an Ed25519 private key", where=str(key), hint=_MAKE_KEYS)
    return found


def _public(key: Path) -> Ed25519PublicKey:
    _check_installed()
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - optional
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415

    try:
        found = serialization.load_pem_public_key(_read(key))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise QuantError(f"no public key in PEM form: {str(error).splitlines()[0]}", where=str(key), hint=_MAKE_KEYS) from error
    if not isinstance(found, ed25519.Ed25519PublicKey):
        raise QuantError(f"a {type(found).__name__.lstrip('_')}, not an Ed25519 public key", where=str(key), hint=_MAKE_KEYS)
    return found


def _read(key: Path) -> bytes:
    try:
        return key.read_bytes()
    except OSError as error:
        raise QuantError(f"cannot read this key: {error.strerror}", where=str(key), hint=_MAKE_KEYS) from error
