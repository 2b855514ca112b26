"""`quant verify` and `quant sign`: any byte that changes is found and named, and who signed is known."""

import json
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quant.validation.verify import verify

cryptography = pytest.importorskip("cryptography", reason="signatures need quant-toolkit[sign]")


@pytest.fixture
def keys(tmp_path):
    """PEM files of two Ed25519 key pairs and of a key of another kind."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    made = {"own": ed25519.Ed25519PrivateKey.generate(), "other": ed25519.Ed25519PrivateKey.generate(), "curve": ec.generate_private_key(ec.SECP256R1())}
    pem, pkcs8, none = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    for name, key in made.items():
        (tmp_path / f"{name}.pem").write_bytes(key.private_bytes(pem, pkcs8, none))
        (tmp_path / f"{name}.pub").write_bytes(key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    return tmp_path


def test_a_run_as_it_was_written_is_sound(cli, delivered):
    outcome = cli("verify", delivered.folder)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.endswith(" files as written\n")


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(which=st.integers(0, 10**6), where=st.integers(0, 10**9), bit=st.integers(0, 7))
def test_any_byte_that_changes_is_found_and_its_file_named(which, where, bit, delivered, tmp_path):
    files = [path for path in sorted(delivered.folder.rglob("*")) if path.is_file() and path.name != "manifest.json" and path.stat().st_size]
    chosen = files[which % len(files)]
    copy = tmp_path / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(delivered.folder, copy)
    name = chosen.relative_to(delivered.folder)
    data = bytearray(chosen.read_bytes())
    data[where % len(data)] ^= 1 << bit
    (copy / name).write_bytes(data)
    assert [finding.where for finding in verify(copy).findings] == [name.as_posix()]


def test_a_file_more_and_a_file_less_are_named(cli, delivered, tmp_path):
    copy = delivered.copy(tmp_path / "copy")
    (copy / "plans/onnxruntime/int8.json").unlink()
    (copy / "artifacts/more.bin").write_bytes(b"")
    outcome = cli("verify", copy, "--json")
    assert outcome.code == 1
    found = {finding["where"]: finding["what"] for finding in json.loads(outcome.out)["findings"]}
    assert found == {"plans/onnxruntime/int8.json": "is missing", "artifacts/more.bin": "is not in the manifest"}


def test_a_signed_run_is_known_by_its_key_and_a_rehashed_change_is_found(cli, delivered, keys):
    copy = delivered.copy(keys / "copy")
    assert cli("sign", copy, "--key", keys / "own.pem").out.strip() == f"signed: {copy / 'manifest.sig'}"
    assert "the signature is right" in cli("verify", copy, "--key", keys / "own.pub").out
    other = cli("verify", copy, "--key", keys / "other.pub")
    assert (other.code, "the signature is not that of other.pub over manifest.json" in other.out) == (1, True)
    manifest = copy / "manifest.json"
    (copy / "recipe.yaml").write_text("version: 1\n", encoding="utf-8")
    import hashlib

    told = json.loads(manifest.read_text(encoding="utf-8"))
    told["files"]["recipe.yaml"] = hashlib.sha256(b"version: 1\n").hexdigest()
    manifest.write_text(json.dumps(told), encoding="utf-8")
    assert cli("verify", copy).code == 0, "the manifest was made to match"
    found = cli("verify", copy, "--key", keys / "own.pub", "--json")
    assert found.code == 1
    assert [finding["where"] for finding in json.loads(found.out)["findings"]] == ["manifest.sig"]


def test_a_changed_run_is_not_signed_and_another_run_removes_the_signature(cli, delivered, keys):
    copy = delivered.copy(keys / "copy")
    (copy / "report.md").write_text("", encoding="utf-8")
    outcome = cli("sign", copy, "--key", keys / "own.pem")
    assert (outcome.code, "cannot be signed: file report.md: is no longer what was written" in outcome.err) == (2, True)
    from quant.engine.folder import SIGNATURE

    (copy / SIGNATURE).write_text("AAAA", encoding="utf-8")
    assert cli("run", delivered.recipe, "--output", copy).code == 0
    assert not (copy / SIGNATURE).exists()


@pytest.mark.parametrize(
    ("command", "key", "message"),
    [
        ("sign", "curve.pem", "not an Ed25519 private key"),
        ("sign", "own.pub", "no private key in PEM form without a password"),
        ("sign", "missing.pem", "cannot read this key: No such file or directory"),
        ("verify", "curve.pub", "not an Ed25519 public key"),
        ("verify", "own.pem", "no public key in PEM form"),
    ],
)
def test_a_key_that_is_none_is_refused(command, key, message, *, cli, delivered, keys):
    outcome = cli(command, delivered.folder, "--key", keys / key)
    assert (outcome.code, message in outcome.err, "openssl genpkey -algorithm ed25519" in outcome.err) == (2, True, True), outcome.err


def test_what_is_no_signature_is_told(cli, delivered, keys):
    copy = delivered.copy(keys / "copy")
    assert "manifest.sig: the run is not signed" in cli("verify", copy, "--key", keys / "own.pub").out
    (copy / "manifest.sig").write_text("no base64!", encoding="utf-8")
    assert "the file holds no signature" in cli("verify", copy, "--key", keys / "own.pub").out


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_the_keys_that_the_hint_tells_to_make_do(cli, delivered, tmp_path):
    copy = delivered.copy(tmp_path / "copy")
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", tmp_path / "key.pem"], check=True, capture_output=True)
    subprocess.run(["openssl", "pkey", "-in", tmp_path / "key.pem", "-pubout", "-out", tmp_path / "key.pub"], check=True, capture_output=True)
    assert cli("sign", copy, "--key", tmp_path / "key.pem").code == 0
    assert cli("verify", copy, "--key", tmp_path / "key.pub").code == 0
