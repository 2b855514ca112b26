"""The server, asked over HTTP: what it gives, and all that it refuses."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.parse

import pytest

from quant.errors import RunError
from quant.report.serving.index import Shelf
from quant.report.serving.server import RunServer


def ask(url, path, method="GET", **headers):
    """Status, headers and body; `path` is sent as it is."""
    place = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=10)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, answer.headers, body


def test_the_page_its_style_and_its_script_need_nothing_from_elsewhere(many, serving):
    url = serving(many).url
    for path, kind in (("/", "text/html"), ("/runs.css", "text/css"), ("/runs.js", "text/javascript")):
        status, headers, body = ask(url, path)
        assert (status, headers["Content-Type"]) == (200, f"{kind}; charset=utf-8")
        assert headers["X-Content-Type-Options"] == "nosniff"
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert "http" not in policy
        assert b"http://" not in body.replace(b"http://www.w3.org/2000/svg", b"")
        assert b"https://" not in body
        assert b"innerHTML" not in body


def test_the_index_comes_in_spans(many, serving):
    url = serving(many).url
    whole = json.loads(ask(url, "/index.json")[2])
    assert whole["total"] == len(whole["runs"]) == 10
    part = json.loads(ask(url, "/index.json?start=3&most=2")[2])
    assert part["runs"] == whole["runs"][3:5]
    assert ask(url, "/index.json?start=-1")[0] == 400
    assert ask(url, "/index.json?most=x")[0] == 400


def test_a_report_is_served_as_it_is_in_a_sandbox(many, serving):
    url = serving(many).url
    key = next(run["key"] for run in json.loads(ask(url, "/index.json")[2])["runs"] if run["run"] == "day-1")
    status, headers, body = ask(url, f"/runs/{key}/report.html")
    assert (status, headers["Content-Type"], body) == (200, "text/html; charset=utf-8", (many / "day-1" / "report.html").read_bytes())
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("sandbox ")
    assert "allow-same-origin" not in policy
    assert "default-src 'none'" in policy
    status, headers, body = ask(url, f"/runs/{key}/report.html", "HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) == (many / "day-1" / "report.html").stat().st_size


@pytest.mark.parametrize(
    "path",
    [
        "/../secret",
        "/..%2fsecret",
        "/runs/../../secret",
        "/runs/%2e%2e/report.html",
        "/runs/day-1/report.html",
        "/runs/{key}/../../secret",
        "/runs/{key}/..%2freport.json",
        "/runs/{key}/junit.xml",
        "/runs/{key}/report.html%00",
        "/runs/{key}//etc/passwd",
        "//etc/passwd",
        "/etc/passwd",
        "file:///etc/passwd",
        "/index.json/..",
        "/runs.js/",
        "*",
    ],
)
def test_no_path_leads_out_of_the_runs(many, serving, path):
    (many.parent / "secret").write_text("secret", encoding="utf-8")
    url = serving(many).url
    key = next(run["key"] for run in json.loads(ask(url, "/index.json")[2])["runs"] if run["run"] == "day-1")
    status, headers, body = ask(url, path.replace("{key}", key))
    assert (status, body) == (404, b"404 Not Found\n")
    assert headers["Content-Type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "BREW"])
def test_nothing_but_reading_is_possible(many, serving, method):
    status, headers, body = ask(serving(many).url, "/", method)
    assert (status, headers["Allow"], body) == (405, "GET, HEAD", b"405 Method Not Allowed\n")


def test_a_page_elsewhere_whose_name_points_here_gets_nothing(many, serving):
    served = serving(many)
    for name in ("evil.example", "evil.example:80", "", "127.0.0.1.evil.example", "[::1", "[evil.example]"):
        assert ask(served.url, "/index.json", Host=name)[0] == 421
    for name in ("localhost", f"127.0.0.1:{served.server.server_address[1]}", "[::1]:80"):
        assert ask(served.url, "/index.json", Host=name)[0] == 200


def test_an_address_that_is_none_is_a_bad_request(many, serving):
    place = urllib.parse.urlsplit(serving(many).url)
    with socket.create_connection((place.hostname, place.port), timeout=10) as raw:
        raw.sendall(b"GET http://[::1/index.json HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert raw.recv(1 << 16).startswith(b"HTTP/1.0 400 ")


def test_what_is_no_request_is_refused_without_repeating_it(many, serving):
    place = urllib.parse.urlsplit(serving(many).url)
    with socket.create_connection((place.hostname, place.port), timeout=10) as raw:
        raw.sendall(b"GET <script>alert(1)</script> x HTTP/1.0\r\n\r\n")
        answer = raw.recv(4096)
    assert b"400" in answer.splitlines()[0]
    assert b"alert" not in answer


def test_by_default_it_listens_on_this_machine_alone(many):
    with RunServer(Shelf(many)) as server:
        assert server.server_address[0] == "127.0.0.1"
        assert server.url == f"http://127.0.0.1:{server.server_address[1]}/"
        with pytest.raises(RunError, match=r"cannot listen at 127\.0\.0\.1, port \d+") as error:
            _listen_twice(many, server.server_address[1])
    assert "--port 0" in error.value.hint
    with pytest.raises(RunError, match="no such port: 70000"):
        RunServer(Shelf(many), port=70000)
    with pytest.raises(RunError, match=r"cannot listen at 203\.0\.113\.1"):
        RunServer(Shelf(many), host="203.0.113.1")  # an address kept for documents: no machine's own


def _listen_twice(many, port):
    RunServer(Shelf(many), port=port)


def test_the_command_prints_the_index_and_ends(cli, many, tmp_path):
    outcome = cli("serve", many, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads(outcome.out)["total"] == 10
    (tmp_path / "empty").mkdir()
    assert json.loads(cli("serve", tmp_path / "empty", "--json").out)["runs"] == []
    outcome = cli("serve", tmp_path / "nowhere")
    assert outcome.code == 2
    assert "no such folder" in outcome.err


@pytest.mark.slow
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_command_serves_until_it_is_interrupted(many, host):
    command = [sys.executable, "-m", "quant.cli", "serve", str(many), "--host", host]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}, start_new_session=True
    ) as running:
        line = running.stdout.readline()
        url = line.split()[0]
        assert ask(url.replace("0.0.0.0", "127.0.0.1"), "/")[0] == 200
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=20)
    assert running.returncode == 0
    assert (said == "") is (host == "127.0.0.1")
    assert host == "127.0.0.1" or said.startswith("warning: everyone who reaches this machine can read these reports")
