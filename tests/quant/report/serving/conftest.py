"""A folder of many runs, made by hand, and the server over it."""

import json
import threading
from types import SimpleNamespace

import pytest

from quant.report.serving.index import Shelf
from quant.report.serving.server import RunServer
from quant.report.write import write_report


def at(report, started, **changes):
    """`report`, started at another time."""
    return report.model_copy(update={"timings": report.timings.model_copy(update={"started": started}), **changes})


@pytest.fixture
def many(make, tmp_path):
    """Runs of two recipes over four days, one of names that act, and four that cannot be read."""
    folder = tmp_path / "runs"
    for day, value in enumerate((0.798, 0.796, 0.79, 0.76), start=1):
        fits = day < 3
        gate = make.gate(value=value) if fits else make.gate("fail" if day == 4 else "inconclusive", **{**make.failing, "value": value})
        int8 = make.candidate("int8", gate, value=value, latency_ratio=0.5 + 0.01 * day)
        dynamic = make.candidate("int8-dynamic", target="openvino", latency_ratio=0.6)
        name = "sentiment" if day != 2 else "similarity"
        write_report(at(make.report(int8, dynamic), f"2026-03-0{day}T12:00:00Z", name=name), folder / f"day-{day}")
    write_report(make.reports["evil"](), folder / f"{make.evil_name.replace('/', '')}")
    write_report(make.reports["no candidates"](), folder / "deep" / "er" / "none")
    write_report(make.reports["pass"](), folder / "day-1" / "artifacts" / "inner")  # a run writes this folder: no other run lies in it
    for name, text in {"broken": "{", "newer": json.dumps({"version": 2}), "nan": '{"version": 1, "x": NaN}', "nested": "[" * 100_000}.items():
        (folder / name).mkdir()
        (folder / name / "report.json").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def serving():
    """Starts a server over a folder, in a thread; gives its address and the server."""
    started = []

    def serve(folder, **options):
        server = RunServer(Shelf(folder), **options)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        started.append((server, thread))
        return SimpleNamespace(url=server.url, server=server)

    yield serve
    for server, thread in started:
        server.shutdown()
        thread.join()
        server.server_close()
