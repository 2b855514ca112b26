"""The explorer in JupyterLab, driven by a browser: a layer toggled, a plan measured and saved; nothing that a name or a text says is done."""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

pytestmark = pytest.mark.slow
for package in ("jupyterlab", "ipykernel", "ipywidgets", "anywidget", "playwright"):
    pytest.importorskip(package, reason=f"{package} is not installed")

TOP = Path(__file__).resolve().parents[3]
CHROMIUM = shutil.which("chromium")
MARKUP = "<img src=x onerror=alert(1)>"
SCRIPT = "<script>alert(1)</script>"
SHOTS = Path(os.environ.get("QUANT_SCREENSHOTS", TOP / "out" / "screenshots"))
FUNCTION = """import numpy as np


def letters(values):
    text = values["text"].lower()
    return {"x": np.asarray([text.count(chr(97 + n)) for n in range(26)], np.float32) / max(len(text), 1)}
"""
WORDS = ("good", "fine", "great", "bad", "awful", "poor", "film", "story", "plot", "actor", "scene", "music")


def _project(folder):
    """A network of three layers over counted letters of texts, one of which holds a script, and one layer of which is called like an attack."""
    random = np.random.default_rng(0)
    rows = [" ".join(random.choice(WORDS, 6)) for _ in range(400)]
    rows[0] = f"zzzzzzzzzzzz {SCRIPT} {MARKUP}"
    lines = ["text\tlabel", *(f"{row}\t{int('good' in row or 'great' in row)}" for row in rows)]
    (folder / "texts.tsv").write_text("\n".join(lines) + "\n")
    (folder / "mine.py").write_text(FUNCTION)
    shapes = {"w0": (26, 32), "w1": (32, 32), "w2": (32, 2)}
    weights = {name: random.normal(size=shape).astype(np.float32) / 4 for name, shape in shapes.items()}
    weights["w1"][:, 3] *= 40  # a channel that rounding of the others suffers from
    nodes = []
    for n, (name, after) in enumerate(((MARKUP, "h0"), ("encoder/layer.1/attention/output/dense", "h1"), ("classifier", "logits"))):
        read = "x" if n == 0 else f"r{n - 1}"
        nodes.append(helper.make_node("MatMul", [read, f"w{n}"], [after], name=name))
        if after != "logits":
            nodes.append(helper.make_node("Relu", [after], [f"r{n}"], name=f"relu{n}"))
    inputs, outputs = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", width])] for name, width in (("x", 26), ("logits", 2)))
    graph = helper.make_graph(nodes, "letters", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), folder / "letters.onnx")
    recipe = {
        "version": 1,
        "name": "letters",
        "model": {"source": "letters.onnx"},
        "data": {
            "source": "texts.tsv",
            "inputs": {"kind": "function", "function": "mine.py:letters"},
            "label": {"column": "label"},
            "overlap": "allow",
            "splits": {"calibration": 64, "search": 200, "evaluation": 100},
        },
        "schemes": ["int8"],
        "transforms": [],
        "evaluation": {"metrics": ["accuracy"]},
        "gate": {"max_drop": 0.2},
        "latency": {"requests": 2, "warmup": 0},
        "plan": {"minimize": "size"},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))


def _notebook(path, *cells):
    made = [{"cell_type": "code", "id": f"c{n}", "metadata": {}, "outputs": [], "execution_count": None, "source": cell} for n, cell in enumerate(cells)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path.write_text(json.dumps({"cells": made, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """JupyterLab over a folder of its own, on a port of its own, behind a token; gives the folder and the address of a file in it."""
    folder = tmp_path_factory.mktemp("lab")
    work = folder / "work"
    work.mkdir()
    _project(work)
    _notebook(work / "explore.ipynb", "from quant.notebook import Explorer\nexplorer = Explorer('recipe.yaml', trust_code=True)\nexplorer", "explorer.plan")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    settings = folder / "config" / "labconfig"
    settings.mkdir(parents=True)
    (settings / "page_config.json").write_text(json.dumps({"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}))
    own = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    environment = {
        **os.environ,
        **own,
        "IPYTHONDIR": str(folder / "ipython"),
        "PYTHONPATH": str(TOP),
        "QUANT_CACHE": str(folder / "cache"),
        "HOME": str(folder),
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", f"--port={port}", "--ip=127.0.0.1", "--allow-root", f"--ServerApp.root_dir={work}"]
    command += [
        f"--IdentityProvider.token={token}",
        "--ServerApp.port_retries=0",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=work)
        try:
            _wait(f"http://127.0.0.1:{port}/api?token={token}", server, folder / "log")
            yield work, lambda name: f"http://127.0.0.1:{port}/doc/tree/{name}?token={token}"
        finally:
            server.terminate()
            server.wait(30)


def _wait(url, server, log):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert server.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(log.read_text())


@pytest.fixture(scope="module")
def page(lab):
    """The notebook in a browser, its explorer shown; whatever pops up is remembered."""
    if CHROMIUM is None:
        assert not os.environ.get("CI"), "CI must have a browser: install chromium"
        pytest.skip("no chromium on this machine")
    from playwright.sync_api import sync_playwright

    _, address = lab
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        opened = browser.new_page(viewport={"width": 1280, "height": 2600})
        opened.popped = []
        opened.on("dialog", lambda dialog: (opened.popped.append(dialog.message), dialog.dismiss()))
        opened.goto(address("explore.ipynb"))
        try:
            opened.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]').wait_for(timeout=60_000)  # the kernel is there
            _execute(opened)
            opened.locator(".quant-explorer").wait_for(timeout=60_000)
            opened.locator(".quant-explorer .js-plotly-plot .main-svg").nth(3).wait_for(timeout=60_000)
        except Exception:
            _shot(opened, "explorer-missing", 1280)
            raise
        yield opened
        browser.close()


def _execute(page):
    """Run the first cell: a kernel that is idle may not be connected yet, and what is asked of it then is lost."""
    prompt = page.locator(".jp-Notebook .jp-CodeCell .jp-InputPrompt").first
    for _ in range(10):
        page.locator(".jp-Notebook .jp-CodeCell .cm-content").first.click()
        page.keyboard.press("Shift+Enter")
        page.wait_for_timeout(1500)
        if prompt.inner_text().strip() not in {"[ ]:", ""}:
            return
    raise AssertionError("the kernel took nothing")


def _shot(page, name, width):
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.set_viewport_size({"width": width, "height": 2600 if width > 600 else 5200})
    page.wait_for_timeout(1500)
    page.screenshot(path=SHOTS / f"{name}-{width}.png")


def _card(page, title):
    """What a card of the prediction says."""
    return page.locator(".quant-explorer [aria-label=prediction] > div").filter(has_text=title).inner_text()


def test_a_layer_is_toggled_a_plan_measured_and_saved(page, lab):
    work, _ = lab
    explorer = page.locator(".quant-explorer")
    layer = explorer.locator(".widget-dropdown", has_text="classifier").locator("select")
    assert MARKUP in layer.inner_text().replace("\N{NO-BREAK SPACE}", " ")
    layer.select_option(index=2)
    explorer.get_by_role("button", name="all fp32").click()
    page.wait_for_function("() => document.querySelector('.quant-explorer [aria-label=prediction]').innerText.includes('0 of 3')")
    before = _card(page, "size"), _card(page, "error of the outputs")
    explorer.locator(".widget-toggle-buttons").get_by_role("button", name="int8", exact=True).click()
    page.wait_for_function("() => document.querySelector('.quant-explorer [aria-label=prediction]').innerText.includes('1 of 3')")
    assert _card(page, "size") != before[0]
    assert _card(page, "error of the outputs") != before[1]

    explorer.get_by_role("button", name="Measure this plan").click()
    explorer.get_by_text(re.compile("accuracy drops by")).first.wait_for(timeout=60_000)
    assert explorer.locator("progress").count() == 0

    explorer.get_by_role("button", name="Save plan").click()
    explorer.get_by_text("saved plan.yaml").wait_for(timeout=30_000)
    assert yaml.safe_load((work / "plan.yaml").read_text())["layers"] == {
        MARKUP: "fp32",
        "encoder/layer.1/attention/output/dense": "fp32",
        "classifier": "int8",
    }
    _shot(page, "explorer", 1280)


def test_a_budget_that_is_dragged_changes_the_plan(page):
    explorer = page.locator(".quant-explorer")
    handle = explorer.locator(".widget-hslider .noUi-handle, .widget-slider [role=slider]").first
    handle.focus()
    for key, told in (("ArrowLeft", "0 of 3"), ("ArrowRight", "3 of 3")):
        for _ in range(26):  # a front has at most 25 plans
            page.keyboard.press(key)
        page.wait_for_function(f"() => document.querySelector('.quant-explorer [aria-label=prediction]').innerText.includes('{told}')")
        assert told in _card(page, "quantized")


def test_what_names_and_texts_say_is_shown_and_not_done(page):
    explorer = page.locator(".quant-explorer")
    explorer.locator(".widget-dropdown", has_text="classifier").locator("select").select_option(index=0)
    explorer.get_by_text(SCRIPT).first.wait_for(timeout=60_000)
    page.wait_for_timeout(500)
    assert page.popped == []
    assert page.locator("img[src=x]").count() == 0
    assert explorer.locator("script").count() == 0
    _shot(page, "explorer-named", 1280)


def test_a_phone_has_nothing_beside_the_page(page):
    _shot(page, "explorer", 390)
    wide = page.evaluate(
        "() => [...document.querySelectorAll('.quant-explorer, .quant-explorer > *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1).length"
    )
    assert wide == 0
    assert page.popped == []
