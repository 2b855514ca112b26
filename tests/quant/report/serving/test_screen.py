"""The page over many runs in a browser: sort, filter, follow a link; names that act do nothing; nothing is wider than a phone."""

import os
import re
import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-sandbox"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        assert not os.environ.get("CI"), "CI must have a browser: install chromium"
        pytest.skip("no chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield started
        started.close()


@pytest.fixture
def opened(browser, serving):
    """Opens the page over a folder; at the end nothing may have been asked of another machine, said on the console, or popped up."""
    pages, said = [], []

    def open_page(folder, *, width=1280, scheme="light", rows=True):
        url = serving(folder).url
        page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
        page.on("request", lambda request: None if request.url.startswith(url) else said.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        page.goto(url)
        page.wait_for_selector("#rows tr" if rows else "text=No runs here yet")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert said == []


def shows(locator):
    """What `locator` comes to show; the page's policy lets no test evaluate in a loop."""
    from playwright.sync_api import expect

    return expect(locator)


def column(page, number):
    """Texts of a column as shown, without what is said beside them."""
    script = "(rows, n) => rows.map(r => r.children[n].childNodes[0]?.textContent ?? '')"
    return page.eval_on_selector_all("#rows tr", script, number)


def test_the_newest_run_comes_first_and_a_click_on_a_head_sorts(opened, many):
    page = opened(many)
    days = [run for run in column(page, 0) if run.startswith("day-")]
    assert days == ["day-4", "day-4", "day-3", "day-3", "day-2", "day-2", "day-1", "day-1"]
    page.click("#head button[data-key=time]")
    times = [float(text) for text in column(page, 9) if re.fullmatch(r"[0-9.]+", text)]
    assert times == sorted(times)
    assert times[0] == 0.51
    assert page.get_attribute("#head th:nth-child(10)", "aria-sort") == "ascending"
    page.keyboard.press("Enter")  # the head keeps the focus
    times = [text for text in column(page, 9) if re.fullmatch(r"[0-9.]+", text)]
    assert times == sorted(times, reverse=True)
    assert column(page, 9)[-1] == "", "what is missing comes last either way"
    assert page.get_attribute("#head th:nth-child(10)", "aria-sort") == "descending"


def test_filters_and_words_narrow_the_table_and_can_be_cleared(opened, many):
    page = opened(many)
    whole = len(column(page, 0))
    page.select_option("#recipe", "sentiment")
    assert set(column(page, 2)) == {"sentiment"}
    page.select_option("#target", "openvino")
    assert {*column(page, 3)} == {"int8-dynamic"}
    page.select_option("#target", "")
    page.select_option("#verdict", "fail")
    assert column(page, 0) == ["day-4"]
    assert page.inner_text("#state").startswith(f"10 runs, 1 of {whole} rows shown")
    page.click("button[type=reset]")
    shows(page.locator("#rows tr")).to_have_count(whole)
    page.fill("#search", "reads VERSION 1")
    assert column(page, 0) == ["newer"]
    page.fill("#search", "no such word")
    assert column(page, 0) == []
    assert page.is_hidden("#trends")


def test_what_cannot_be_read_says_why(opened, many):
    page = opened(many)
    page.select_option("#verdict", "unreadable")
    assert sorted(column(page, 0)) == ["broken", "nan", "nested", "newer"]
    assert "a report of version 2; this toolkit reads version 1" in page.inner_text("#rows")
    assert "4 cannot be read" in page.inner_text("#state")


def test_a_recipe_that_ran_more_than_once_is_drawn_over_time(opened, many):
    page = opened(many)
    assert page.locator("#plots figure").count() == 1, "one run of a recipe is no trend"
    figure = page.locator("#plots figure")
    assert figure.locator("h3").inner_text() == "sentiment"
    accuracy = figure.locator("svg.plot").first
    heights = [accuracy.locator(f"a:has(.s0):nth-of-type({n})").bounding_box()["y"] for n in (1, 2, 3)]
    assert heights == sorted(heights), "79.8, 79 and 76 %: lower each time"
    assert accuracy.locator("a").first.get_attribute("aria-label") == "day-1: int8 on onnxruntime, 79.80 %, pass"
    page.select_option("#scheme", "int8")
    assert page.locator("#plots .keys li").all_inner_texts() == [" int8 on onnxruntime", "- - FP32"]


def test_a_row_leads_to_its_report(opened, many):
    page = opened(many)
    page.click("#rows a:text-is('day-3')")
    page.wait_for_selector("h1")
    assert page.inner_text("h1") == "sentiment"
    assert page.evaluate("window.origin") == "null", "a report is alone in its origin"
    page.go_back()
    page.wait_for_selector("#rows tr")


def test_names_that_act_are_shown_and_do_nothing(opened, many, make):
    page = opened(many)
    assert page.locator("#rows img, #rows script, #plots img").count() == 0
    assert make.evil_name in column(page, 2)
    assert make.evil_name in page.locator("#recipe option").all_inner_texts()
    page.select_option("#recipe", make.evil_name)
    assert set(column(page, 2)) == {make.evil_name}
    assert "\\u202e" in page.inner_text("#rows"), "what turns text around is spelled"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_the_page_is_no_wider_than_the_window(opened, many, tmp_path, width, scheme):
    page = opened(many, width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.screenshot(path=tmp_path / "screen.png", full_page=True)
    if width < 760:
        page.select_option("#order", "time up")
        assert column(page, 9)[0] == "0.51"


def test_an_empty_folder_says_what_writes_a_run(opened, tmp_path):
    page = opened(tmp_path, rows=False)
    assert page.is_hidden("#table")
    assert page.is_hidden("#filters")


def test_rows_beyond_the_first_wait_until_they_are_asked_for(opened, make, tmp_path):
    from quant.report.write import write_text

    text = make.reports["mixed"]().to_json()
    for n in range(60):
        write_text(tmp_path / f"run-{n:02}" / "report.json", text)
    page = opened(tmp_path)
    shows(page.locator("#state")).to_have_text("60 runs, 360 rows.")
    assert len(column(page, 0)) == 200
    page.click("text=Show 160 more of 160")
    assert len(column(page, 0)) == 360
    assert page.is_hidden("#more")
