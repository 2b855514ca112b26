"""What every test is given: a cache of its own, no network unless it is marked so, and examples that do not depend on the machine's speed."""

import ipaddress
import os
import socket

import pytest
from hypothesis import settings

settings.register_profile("quant", settings.get_profile("ci") if os.environ.get("CI") else None, deadline=None)
settings.load_profile("quant")


@pytest.fixture(autouse=True)
def _own_cache(request, tmp_path, monkeypatch):
    """Tests that fetch real packages share the user's cache, so that each is fetched once; all others start from an empty one."""
    if "network" not in request.keywords:
        monkeypatch.setenv("QUANT_CACHE", str(tmp_path / "quant-cache"))


@pytest.fixture(autouse=True)
def _no_network(request, monkeypatch):
    """Only tests that are marked `network` may reach beyond this machine."""
    if "network" in request.keywords:
        return
    connect = socket.socket.connect

    def connect_here(self, address):
        assert _is_here(self, address), f"{request.node.nodeid} reaches for {address}, but is not marked `network`"
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect_here)


def _is_here(connecting, address):
    if connecting.family not in {socket.AF_INET, socket.AF_INET6}:
        return True
    host = address[0]
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def pytest_terminal_summary(terminalreporter):
    """Counts that a test has to tell are told, whether it passes or not (and though it ran in another process)."""
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        for name, figure in report.user_properties:
            if name == "figure" and report.when == "call":
                terminalreporter.write_line(figure)
