import hashlib
import shutil

import pytest

from quant.core.digest import digest_of_folder
from quant.data.sources import fetch
from quant.errors import SourceError
from quant.recipe.schema import Source


def take(source, file=None, sha256=None, base=None):
    return fetch(Source(source=source, file=file, sha256=sha256), base=base, where="r.yaml:3")


@pytest.fixture(autouse=True)
def nothing_was_run(tmp_path):
    yield
    assert not (tmp_path / "was-run").exists()


@pytest.mark.usefixtures("links")
def test_a_file_of_a_wheel_is_given_after_its_digest_was_checked(tmp_path):
    path = take("package:Toy==1.0", "toy/model/net.onnx", hashlib.sha256(b"net").hexdigest(), tmp_path)
    assert (path.name, path.read_bytes()) == ("net.onnx", b"net")


@pytest.mark.usefixtures("links")
def test_a_folder_is_given_whole_and_its_digest_is_that_of_its_files(tmp_path):
    path = take("package:toy==1.0", "toy/model/", base=tmp_path)
    assert sorted(file.name for file in path.iterdir()) == ["net.onnx", "vocab.txt"]
    assert take("package:toy==1.0", "toy/model", digest_of_folder(path), tmp_path) == path


@pytest.mark.usefixtures("links")
def test_the_sdist_is_taken_for_what_the_wheel_lacks_and_never_run(tmp_path):
    path = take("package:toy==1.0", "extra/ratings.tar.gz!/ratings/movies.txt", base=tmp_path)
    assert path.read_bytes() == b"1.5\tgood\n"
    assert take("package:toy==1.0", "extra/wrapped.zip!/deep/ratings.tar.gz!/ratings/tweets.txt", base=tmp_path).read_bytes() == b"0\tmeh\n"
    assert b"was-run" in take("package:toy==1.0", "setup.py", base=tmp_path).read_bytes()


@pytest.mark.usefixtures("links")
def test_without_a_file_the_whole_package_is_given(tmp_path):
    path = take("package:toy==1.0", base=tmp_path)
    assert path.name == "toy-1.0"
    assert (path / "toy/model/net.onnx").read_bytes() == b"net"


def test_the_second_use_needs_no_index(links, tmp_path, monkeypatch):
    files = ("toy/model/net.onnx", "extra/ratings.tar.gz!/ratings/movies.txt")
    first = [take("package:toy==1.0", file, base=tmp_path) for file in files]
    shutil.rmtree(links)
    monkeypatch.setenv("QUANT_OFFLINE", "1")
    assert [take("package:toy==1.0", file, base=tmp_path) for file in files] == first
    # another file of a distribution that was fetched is there, too
    assert take("package:toy==1.0", "toy/model/vocab.txt", base=tmp_path).read_bytes() == b"a\nb\n"


@pytest.mark.usefixtures("links")
def test_a_spoilt_cache_entry_is_fetched_again(tmp_path):
    path = take("package:toy==1.0", "toy/model/net.onnx", base=tmp_path)
    path.write_bytes(b"spoilt")
    wheel = next((tmp_path / "cache").rglob("*.whl"))
    wheel.write_bytes(b"spoilt")
    assert take("package:toy==1.0", "toy/model/net.onnx", base=tmp_path).read_bytes() == b"net"
    folder = take("package:toy==1.0", "toy/model", base=tmp_path)
    (folder / "net.onnx").unlink()
    assert (take("package:toy==1.0", "toy/model", base=tmp_path) / "net.onnx").read_bytes() == b"net"


@pytest.mark.usefixtures("links")
def test_another_digest_is_an_error_and_nothing_is_kept(tmp_path):
    wrong = "0" * 64
    for _ in range(2):
        with pytest.raises(SourceError, match=rf"r\.yaml:3: SHA-256 of .*{hashlib.sha256(b'net').hexdigest()}, but the recipe expects {wrong}"):
            take("package:toy==1.0", "toy/model/net.onnx", wrong, tmp_path)
    assert not list((tmp_path / "cache").rglob("net.onnx"))
    assert not list((tmp_path / "cache").rglob("*.part"))


@pytest.mark.usefixtures("links")
def test_a_digest_is_checked_on_what_is_cached(tmp_path):
    take("package:toy==1.0", "toy/model/net.onnx", base=tmp_path)
    with pytest.raises(SourceError, match=r"but the recipe expects"):
        take("package:toy==1.0", "toy/model/net.onnx", "0" * 64, tmp_path)


@pytest.mark.usefixtures("links")
def test_a_missing_file_names_the_nearest_in_all_distributions(tmp_path):
    with pytest.raises(SourceError, match=r"no 'model/net.onnx' in package:toy==1.0 \(looked in toy-1.0-py3-none-any.whl and toy-1.0.tar.gz\)") as caught:
        take("package:toy==1.0", "model/net.onnx", base=tmp_path)
    assert "toy/model/net.onnx" in caught.value.hint


@pytest.mark.usefixtures("links")
def test_a_missing_version_names_those_that_are_there(tmp_path):
    with pytest.raises(SourceError, match=r"no version 2.0 of package 'toy'") as caught:
        take("package:toy==2.0", base=tmp_path)
    assert caught.value.hint == "near versions: 1.0, 1.1"


@pytest.mark.usefixtures("links")
def test_a_missing_package_says_where_was_looked(tmp_path):
    with pytest.raises(SourceError, match=r"r\.yaml:3: no package 'toyy' at file:///"):
        take("package:toyy==1.0", base=tmp_path)


def test_a_wheel_for_all_platforms_is_preferred_whatever_is_listed_first(links, tmp_path, make_zip):
    for tag in ("aaa-none-win32", "cp39-cp39-manylinux2014_x86_64", "zzz-none-any"):
        (links / f"many-1.0-{tag}.whl").write_bytes(make_zip({"which.txt": tag.encode()}))
    assert take("package:many==1.0", "which.txt", base=tmp_path).read_bytes() == b"zzz-none-any"
    (links / "one-1.0-cp27-cp27m-win32.whl").write_bytes(make_zip({"which.txt": b"old"}))
    assert take("package:one==1.0", "which.txt", base=tmp_path).read_bytes() == b"old"


def test_offline_and_not_cached_says_so_without_touching_the_network(tmp_path, monkeypatch):
    monkeypatch.setenv("QUANT_OFFLINE", "1")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(SourceError, match=r"cannot reach the package index for package:toy==1.0: QUANT_OFFLINE is set"):
        take("package:toy==1.0", base=tmp_path)


def test_an_index_that_does_not_answer_is_named_without_its_password(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://me:secret@127.0.0.1:9/simple")
    with pytest.raises(SourceError, match=r"cannot reach the package index http://127.0.0.1:9/simple") as caught:
        take("package:toy==1.0", base=tmp_path)
    assert "secret" not in str(caught.value)


def test_an_index_in_trouble_does_not_hide_the_others(links, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    assert take("package:toy==1.0", "toy/model/net.onnx", base=tmp_path).read_bytes() == b"net"
    with pytest.raises(SourceError, match=r"cannot reach the package index"):
        take("package:toy==3.0", base=tmp_path)
    assert links.is_dir()


def test_an_index_that_is_neither_https_nor_trusted_is_not_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://index.invalid/simple")
    with pytest.raises(SourceError, match=r"http://index.invalid/simple is neither https nor trusted"):
        take("package:toy==1.0", base=tmp_path)


def index_page(links, folder, digest):
    page = folder / "simple" / "toy"
    page.mkdir(parents=True)
    page.joinpath("index.html").write_text(f'<a href="{(links / "toy-1.0-py3-none-any.whl").as_uri()}#sha256={digest}">toy</a>', encoding="utf-8")
    return (folder / "simple").as_uri()


@pytest.mark.parametrize("right", [True, False])
def test_the_hash_that_the_index_gives_is_checked(links, tmp_path, monkeypatch, right):
    digest = hashlib.sha256((links / "toy-1.0-py3-none-any.whl").read_bytes()).hexdigest() if right else "1" * 64
    monkeypatch.setenv("PIP_INDEX_URL", index_page(links, tmp_path, digest))
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.delenv("PIP_NO_INDEX")
    if right:
        assert take("package:toy==1.0", "toy/model/net.onnx", base=tmp_path).read_bytes() == b"net"
    else:
        with pytest.raises(SourceError, match=r"but its index says 1111"):
            take("package:toy==1.0", "toy/model/net.onnx", base=tmp_path)
        assert not list((tmp_path / "cache").rglob("*.whl"))


@pytest.mark.slow
@pytest.mark.network
def test_a_nested_file_of_a_real_sdist_is_what_it_was(tmp_path, monkeypatch):
    monkeypatch.undo()  # this machine's own settings
    monkeypatch.setenv("QUANT_CACHE", str(tmp_path / "cache"))
    file = "additional_resources/hutto_ICWSM_2014.tar.gz!/hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt"
    path = take("package:vaderSentiment==3.3.2", file, "c8293b0d942e90e223ea2c0955d969040d1a1be514a978b9af0698940bd13350", tmp_path)
    assert len(path.read_text(encoding="utf-8").splitlines()) == 10_605
