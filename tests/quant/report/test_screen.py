"""The page in a browser: wide and on a phone, light and dark."""

import pytest

from quant.report.write import write_report

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_no_report_is_wider_than_the_window(any_report, tmp_path, browser, width, scheme):
    write_report(any_report, tmp_path)
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
    asked, said = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.goto((tmp_path / "report.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.screenshot(path=tmp_path / "screen.png")
    assert asked == [(tmp_path / "report.html").as_uri()]
    assert said == []
    page.close()


@pytest.mark.parametrize(("width", "seen"), [(390, "narrow"), (1280, "wide")])
def test_letters_of_the_picture_overlap_nothing_and_can_be_read(make, tmp_path, browser, width, seen):
    write_report(make.reports["mixed"](), tmp_path)
    page = browser.new_page(viewport={"width": width, "height": 844})
    page.goto((tmp_path / "report.html").as_uri())
    boxes = page.evaluate(
        f"[...document.querySelectorAll('svg.{seen} text')].map(t => {{const b = t.getBoundingClientRect(); return [b.x, b.y, b.right, b.bottom]}})"
    )
    assert len(boxes) > 8
    for i, a in enumerate(boxes):
        assert a[3] - a[1] > 8 or a[2] - a[0] > 8
        for b in boxes[i + 1 :]:
            assert not (a[0] < b[2] - 1 and b[0] < a[2] - 1 and a[1] < b[3] - 3 and b[1] < a[3] - 3), (a, b)
    assert page.evaluate("getComputedStyle(document.querySelector('svg.wide')).display") == ("block" if seen == "wide" else "none")
    page.close()


def test_a_candidate_opens_with_the_keyboard(make, tmp_path, browser):
    write_report(make.reports["mixed"](), tmp_path)
    page = browser.new_page(viewport={"width": 1280, "height": 844})
    page.goto((tmp_path / "report.html").as_uri())
    assert page.evaluate("document.querySelector('#candidate-2').open") is False
    page.focus("#candidate-2 summary")
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelector('#candidate-2').open") is True
    page.close()
