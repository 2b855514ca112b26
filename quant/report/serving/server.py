"""The page over HTTP: it is read only, asks nothing of other machines, and knows no path that a request could name."""

from __future__ import annotations

import ipaddress
import re
import socket
import sys
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from importlib import resources
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

from quant.errors import RunError
from quant.report.serving.index import PAGES, Shelf

_OWN = {"/": ("runs.html", "text/html"), "/runs.css": ("runs.css", "text/css"), "/runs.js": ("runs.js", "text/javascript")}
_PAGE = re.compile(r"/runs/([0-9a-f]{20})/([a-z.]+)")
_STRICT = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_REPORT = (
    "sandbox allow-scripts allow-popups allow-downloads; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""A report brings its own style and script; its origin is its own, too, so that it can read neither the index nor other reports."""
_MOST = 50
_PATIENCE_S = 30
_LAST_PORT = 65535


def is_loopback(host: str) -> bool:
    """Whether `host` reaches no further than this machine.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("a.example")
        (True, True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class RunServer(ThreadingMixIn, TCPServer):
    """Serves the page over the runs of a shelf until it is shut down.

    Args:
        shelf: The runs.
        host: Address to listen at.
        port: Port to listen at; 0: one that is free.

    Raises:
        RunError: It cannot listen there.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, shelf: Shelf, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.shelf = shelf
        self.host = host
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        if not 0 <= port <= _LAST_PORT:
            raise RunError(f"no such port: {port}", where="--port", hint=f"give one from 1 to {_LAST_PORT}, or 0 for one that is free")
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            hint = "another program listens there; `--port 0` takes a port that is free" if port else "give an address of this machine"
            raise RunError(f"cannot listen at {host}, port {port}: {error.strerror or error}", where="--host, --port", hint=hint) from error

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pass over browsers that hang up; anything else is a bug of ours, and told."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD; everything else is refused."""

    server: RunServer
    server_version = "quant"
    sys_version = ""
    timeout = _PATIENCE_S

    def do_GET(self) -> None:
        self._answer(*self._found())

    do_HEAD = do_GET

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Say what went wrong in plain text; nothing of the request is repeated."""
        del message, explain
        status = HTTPStatus(code)
        self.close_connection = True
        refused = status is HTTPStatus.NOT_IMPLEMENTED  # what the standard library says of a method without a function here
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED if refused else status)

    def log_message(self, *_: Any) -> None:
        """Say nothing: a library does not print."""

    def _found(self) -> tuple[HTTPStatus, str, bytes, str]:
        """Status, content type, body and policy."""
        asked = _split(self.path)
        if asked is None or not self._asked_for_us():
            return _text(HTTPStatus.BAD_REQUEST if asked is None else HTTPStatus.MISDIRECTED_REQUEST)
        if asked.path in _OWN:
            name, kind = _OWN[asked.path]
            return HTTPStatus.OK, f"{kind}; charset=utf-8", _template(name), _STRICT
        if asked.path == "/index.json":
            return self._index(parse_qs(asked.query))
        named = _PAGE.fullmatch(asked.path)
        path = self.server.shelf.page(*named.groups()) if named else None
        if path is None:
            return _text(HTTPStatus.NOT_FOUND)
        try:
            return HTTPStatus.OK, PAGES[path.name], path.read_bytes(), _REPORT
        except OSError:  # removed, or forbidden, in the meantime
            return _text(HTTPStatus.NOT_FOUND)

    def _index(self, query: dict[str, list[str]]) -> tuple[HTTPStatus, str, bytes, str]:
        start, most = (query.get(name, [default])[0] for name, default in (("start", "0"), ("most", str(_MOST))))
        if not (re.fullmatch(r"[0-9]{1,9}", start) and re.fullmatch(r"[0-9]{1,9}", most)):
            return _text(HTTPStatus.BAD_REQUEST)
        found = self.server.shelf.index(start=int(start), most=min(int(most), _MOST))
        return HTTPStatus.OK, "application/json; charset=utf-8", found.to_json().encode(), _STRICT

    def _asked_for_us(self) -> bool:
        """Whether the request names this machine: a page elsewhere whose name was made to point here does not."""
        if not is_loopback(self.server.host):
            return True
        named = _split(f"//{self.headers.get('Host', '')}")
        return named is not None and named.hostname is not None and is_loopback(named.hostname)

    def _refuse(self, status: HTTPStatus) -> None:
        self._answer(*_text(status))

    def _answer(self, status: HTTPStatus, kind: str, body: bytes, policy: str) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Content-Security-Policy", policy),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _split(url: str) -> SplitResult | None:
    """Its parts; None where it is no address, such as with a bracket that nothing closes."""
    try:
        return urlsplit(url)
    except ValueError:
        return None


def _text(status: HTTPStatus) -> tuple[HTTPStatus, str, bytes, str]:
    return status, "text/plain; charset=utf-8", f"{status.value} {status.phrase}\n".encode(), _STRICT


@cache
def _template(name: str) -> bytes:
    return resources.files("quant.report").joinpath("templates", name).read_bytes()
