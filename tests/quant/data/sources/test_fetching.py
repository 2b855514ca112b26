import hashlib
import multiprocessing

import pytest

from quant.core.digest import digest_of_folder
from quant.data.sources import fetch
from quant.errors import RecipeError, SourceError
from quant.recipe.schema import Source


def take(source, base, file=None, sha256=None):
    return fetch(Source(source=source, file=file, sha256=sha256), base=base, where="r.yaml:3")


def test_a_path_is_relative_to_the_recipe_and_checked(tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"net")
    assert take("net.onnx", tmp_path) == tmp_path / "net.onnx"
    assert take("./net.onnx", tmp_path, sha256=hashlib.sha256(b"net").hexdigest()).read_bytes() == b"net"
    assert take(str(tmp_path / "net.onnx"), tmp_path / "elsewhere") == tmp_path / "net.onnx"
    with pytest.raises(SourceError, match=r"r\.yaml:3: SHA-256 of 'net\.onnx' is .*, but the recipe expects 000"):
        take("net.onnx", tmp_path, sha256="0" * 64)


def test_a_tilde_is_the_home_folder(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home/net.onnx").write_bytes(b"net")
    assert take("~/net.onnx", tmp_path / "elsewhere").read_bytes() == b"net"


def test_a_missing_path_names_its_neighbours(tmp_path):
    (tmp_path / "resnet50.onnx").write_bytes(b"")
    with pytest.raises(SourceError, match=r"r\.yaml:3: no file or folder .*resnet5\.onnx") as caught:
        take("resnet5.onnx", tmp_path)
    assert "resnet50.onnx" in caught.value.hint
    with pytest.raises(SourceError, match=r"no file or folder"):
        take("not/there/at/all.onnx", tmp_path)


def test_a_file_or_folder_inside_a_local_folder_is_given(tmp_path):
    (tmp_path / "data/sub").mkdir(parents=True)
    (tmp_path / "data/sub/a.csv").write_bytes(b"1\n")
    assert take("data", tmp_path, "sub/a.csv") == tmp_path / "data/sub/a.csv"
    assert take("data", tmp_path, "sub/", digest_of_folder(tmp_path / "data/sub")) == tmp_path / "data/sub"
    with pytest.raises(SourceError, match=r"no 'sub/b\.csv'") as caught:
        take("data", tmp_path, "sub/b.csv")
    assert "sub/a.csv" in caught.value.hint


def test_a_file_inside_a_local_archive_is_given_and_kept(tmp_path, make_zip, make_tar):
    (tmp_path / "data.zip").write_bytes(make_zip({"in/inner.tar.gz": make_tar({"a.csv": b"1\n"}), "in/b.csv": b"2\n"}))
    assert take("data.zip", tmp_path, "in/b.csv").read_bytes() == b"2\n"
    path = take("data.zip", tmp_path, "in/inner.tar.gz!/a.csv", hashlib.sha256(b"1\n").hexdigest())
    assert path == take(".", tmp_path, "data.zip!/in/inner.tar.gz!/a.csv")
    assert take("data.zip", tmp_path) == tmp_path / "data.zip"
    (tmp_path / "data.zip").write_bytes(make_zip({"in/b.csv": b"3\n"}))
    assert take("data.zip", tmp_path, "in/b.csv").read_bytes() == b"3\n", "the cache goes by the archive's content"


def test_a_file_inside_what_is_no_archive_is_an_error(tmp_path):
    (tmp_path / "plain.txt").write_text("text")
    with pytest.raises(SourceError, match=r"'plain\.txt' is no archive"):
        take("plain.txt", tmp_path, "a.csv")


def test_a_function_is_no_file(tmp_path):
    with pytest.raises(RecipeError, match=r"r\.yaml:3: a function is no file: 'mine:build'"):
        take("mine:build", tmp_path)


def test_a_hub_repository_that_is_not_cached_is_an_error_when_offline(tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("QUANT_OFFLINE", "1")
    with pytest.raises(SourceError, match=r"r\.yaml:3: cannot reach the hub for hf:org/name, and it is not in the cache"):
        take("hf:org/name", tmp_path, "model.onnx")


def hub_cache(folder, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    commit = "0" * 40
    snapshot = folder / "models--org--name/snapshots" / commit
    (snapshot / "onnx").mkdir(parents=True)
    (snapshot / "onnx/model.onnx").write_bytes(b"net")
    (folder / "models--org--name/refs").mkdir()
    (folder / "models--org--name/refs/main").write_text(commit)
    return snapshot


def test_a_hub_repository_that_is_cached_needs_no_network(tmp_path, monkeypatch):
    snapshot = hub_cache(tmp_path / "hub", monkeypatch)
    monkeypatch.setenv("QUANT_OFFLINE", "1")
    assert take("hf:org/name", tmp_path, "onnx/model.onnx", hashlib.sha256(b"net").hexdigest()) == snapshot / "onnx/model.onnx"
    assert take("hf:org/name", tmp_path, "onnx/") == snapshot / "onnx"
    assert take("hf:org/name", tmp_path) == snapshot
    with pytest.raises(SourceError, match=r"'config\.json' of hf:org/name is not in the cache"):
        take("hf:org/name", tmp_path, "config.json")
    with pytest.raises(SourceError, match=r"SHA-256 of 'onnx/model\.onnx of hf:org/name'"):
        take("hf:org/name", tmp_path, "onnx/model.onnx", "0" * 64)


def test_a_repository_that_the_hub_does_not_have_is_an_error_in_words(tmp_path, monkeypatch):
    import huggingface_hub

    def refuse(*_args, **_options):
        raise huggingface_hub.errors.HFValidationError("Repo id must be in the form 'namespace/repo_name'\nmore")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(SourceError, match=r"r\.yaml:3: cannot have hf:org/name: Repo id must be in the form 'namespace/repo_name'") as caught:
        take("hf:org/name", tmp_path)
    assert "revision" in caught.value.hint


def test_a_user_without_a_home_folder_is_named(tmp_path):
    with pytest.raises(SourceError, match=r"no home folder is known for '~nobody-of-this-name/net\.onnx'"):
        take("~nobody-of-this-name/net.onnx", tmp_path)


def take_many(base):
    return [take("data.zip", base, file).name for file in ("d", "d/0", None) for _ in range(3)]


def test_processes_that_take_the_same_thing_at_once_do_not_disturb_each_other(tmp_path, make_zip):
    (tmp_path / "data.zip").write_bytes(make_zip({f"d/{number}": bytes([number]) * 1000 for number in range(50)}))
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        names = pool.map(take_many, [tmp_path] * 6, chunksize=1)
    assert names == [["d"] * 3 + ["0"] * 3 + ["data.zip"] * 3] * 6
    folder = take("data.zip", tmp_path, "d")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {str(number): bytes([number]) * 1000 for number in range(50)}
    assert not list((tmp_path / "cache").rglob("*.part"))
