"""The page: strict HTML, escaped, self-contained."""

import base64
import hashlib
import itertools
import json
import re
import warnings
from functools import cache

import html5lib

from quant.report.ladder import Ladder, Rung
from quant.report.page import html_page


@cache
def parsed(page):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)


PAGES = {}


def page_of(report):
    """The page of a report that lives as long as the tests do."""
    if id(report) not in PAGES:
        PAGES[id(report)] = html_page(report)
    return PAGES[id(report)]


def text_of(node):
    return " ".join("".join(node.itertext()).split())


def test_the_page_of_every_report_is_strictly_parsable(any_report):
    tree = parsed(page_of(any_report))
    assert text_of(tree.find(".//h1"))


def test_the_page_asks_for_nothing_from_anywhere(any_report):
    tree = parsed(page_of(any_report))
    assert not [node.tag for node in tree.iter() if node.tag in {"link", "img", "iframe", "object", "embed", "base", "form"}]
    assert {node.attrib["type"] for node in tree.iter("input")} <= {"radio", "search"}
    for node in tree.iter():
        for name, value in node.attrib.items():
            assert not str(name).startswith("on"), (node.tag, name)
            if str(name).rpartition("}")[2] in {"href", "src", "srcset", "action", "data", "poster"}:
                assert re.fullmatch(r"#[a-z0-9-]+", value)
    styles = "".join(node.text for node in tree.iter("style"))
    assert "url(" not in styles
    assert "@import" not in styles
    assert policy_of(tree).startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-")


def policy_of(tree):
    return next(n.attrib["content"] for n in tree.iter("meta") if "http-equiv" in n.attrib)


def test_a_browser_is_told_to_run_the_one_script_that_is_ours_and_it_is_the_same_on_every_page(any_report, make):
    tree = parsed(page_of(any_report))
    ours = [node.text for node in tree.iter("script") if "type" not in node.attrib]
    assert ours == [node.text for node in parsed(html_page(make.reports["pass"]())).iter("script") if "type" not in node.attrib]
    assert len(ours) == 1
    digest = base64.b64encode(hashlib.sha256(ours[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy_of(tree)
    for node in tree.iter("script"):
        assert node.attrib.get("type") in {None, "application/json"}


def test_the_content_of_the_picture_is_json_that_nothing_can_end(make):
    report = make.reports["evil"]()
    tree = parsed(html_page(report))
    text = next(node.text for node in tree.iter("script") if node.attrib.get("type") == "application/json")
    assert not set(text) & set("<>&\u2028\u2029")
    told = json.loads(text)
    assert told["names"][1] == make.evil_name
    assert told["names"][2] == "a|b`c` *d* \\x00\\x1b[31m\\u202e</script>]]>&amp;\\ufffe"


def test_names_from_outside_stay_text(make):
    page = html_page(make.reports["evil"]())
    assert "<img" not in page
    tree = parsed(page)
    assert page.count("</script>") == len(list(tree.iter("script")))
    assert text_of(tree.find(".//h1")) == make.evil_name
    layers = [text_of(node) for node in tree.iter("th") if node.attrib.get("class") == "name"]
    assert make.evil_name in layers
    assert "a|b`c` *d* \\x00\\x1b[31m\\u202e</script>]]>&amp;\\ufffe" in layers


def test_ids_are_unique_and_links_lead_somewhere(any_report):
    tree = parsed(page_of(any_report))
    ids = [node.attrib["id"] for node in tree.iter() if "id" in node.attrib]
    known = set(ids)
    assert len(ids) == len(known)
    for node in tree.iter():
        for name in ("aria-labelledby",):
            assert set(node.attrib.get(name, "").split()) <= known
        if node.tag == "a":
            assert node.attrib["href"][1:] in known


def test_every_table_has_a_caption_and_scoped_heads_and_full_rows(any_report):
    for table in parsed(page_of(any_report)).iter("table"):
        assert text_of(table.find("caption"))
        width = len(table.findall("./thead/tr/th"))
        assert all(th.attrib.get("scope") in {"col", "row"} for th in table.iter("th"))
        for row in table.findall("./tbody/tr"):
            assert sum(int(cell.attrib.get("colspan", "1")) for cell in row) == width


def test_headings_step_down_one_level_at_a_time(any_report):
    levels = [int(node.tag[1]) for node in parsed(page_of(any_report)).iter() if re.fullmatch("h[1-6]", str(node.tag))]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_sections_come_in_the_order_of_the_story(make):
    tree = parsed(html_page(make.reports["mixed"]()))
    assert [text_of(h) for h in tree.iter("h2")] == [
        *("Candidates", "Pareto", "Plan", "Sensitivity", "Calibration health", "Ladder", "Engine audit", "Latency", "Provenance"),
    ]
    verdict = next(node for node in tree.iter("p") if node.attrib.get("class") == "verdict pass")
    assert text_of(verdict).startswith("✓Pass: int8 on onnxruntime")


def rows_of(tree, caption):
    table = next(t for t in tree.iter("table") if text_of(t.find("caption")).startswith(caption))
    return [[text_of(cell) for cell in row] for row in table.findall("./tbody/tr")]


def test_the_candidates_table_shows_numbers_for_people(make):
    rows = rows_of(parsed(html_page(make.reports["mixed"]())), "Every scheme on every target")
    assert rows[0] == [
        "1",
        "int8on onnxruntime",
        "✓ pass",
        "79.80 %accuracy",
        "0.20 points",
        "0.60 pointsallowed 1 point",
        "0.530.51 to 0.55",
        "22.8 MiB0.26 of FP32",
        "0.999131.2 dB",
    ]
    assert rows[1][2] == "? inconclusiveaccuracy: about 1,200 more samples needed"
    assert rows[3][6] == "emulated"
    assert rows[4][2] == "\N{EN DASH} not availableno NVIDIA GPU on this machine"
    assert rows[5][2] == "\N{EN DASH} not applicableno layer has weights that it can pack"


def test_exclusions_disagreements_and_clipped_tensors_come_first(make):
    tree = parsed(html_page(make.report(make.candidate(audit=make.audit))))
    assert [row[0] for row in rows_of(tree, "Format of every layer")] == [
        "encoder.layer.0.output.dense",
        "encoder.layer.0.attention.query",
        "classifier",
    ]
    assert rows_of(tree, "Planned format")[0] == ["classifier", "int8", "fp32", "FusedGemm", "✗ no"]
    assert [row[:2] for row in rows_of(tree, "Calibrated tensors")] == [["dense/output", "0.012 %"], ["input", "0 %"]]


def test_an_emulated_candidate_makes_no_claim_about_latency_even_if_it_was_timed(make):
    timed = make.candidate("fp16", emulated="no FP16 arithmetic here", latency_ratio=0.5)
    made = make.report(timed)
    assert any(row.scheme == "fp16" for row in made.timings.latency)
    tree = parsed(html_page(made))
    assert rows_of(tree, "Times of one request")[1][1] == "emulated: no claim about its speed"
    assert rows_of(tree, "Every scheme")[0][6] == "emulated"
    assert "There is nothing to draw" in text_of(tree)


def test_a_page_of_six_candidates_with_500_layers_stays_below_6_mb(make):
    assert len(html_page(make.reports["large"]()).encode()) < 6_000_000


def test_the_same_report_gives_the_same_page(make):
    assert html_page(make.reports["mixed"]()) == html_page(make.reports["mixed"]())


def test_the_time_of_each_stage_is_a_row_of_its_own(make):
    tree = parsed(html_page(make.reports["pass"]()))
    assert rows_of(tree, "Time of each stage") == [["calibrate", "12.5 s"], ["evaluate", "1 min 1 s"], ["export", "from the cache"]]
    assert text_of(tree.find(".//footer")) == "Started 2026-03-01T12:00:00Z, took 1 min 23 s."


def test_a_size_above_fp32s_is_said_in_times(make):
    tree = parsed(html_page(make.report(make.candidate(size_ratio=1.98))))
    assert rows_of(tree, "Every scheme")[0][7] == "22.8 MiB1.98 times FP32"


def test_with_several_gates_the_picture_says_that_it_shows_the_first(make):
    note = "The bars show the first gate alone"
    assert note in html_page(make.reports["several gates"]())
    assert note not in html_page(make.reports["mixed"]())


def test_every_number_leads_to_how_it_was_got(any_report):
    """By the head of its column, or by itself."""
    tree = parsed(page_of(any_report))
    ids = {node.attrib["id"] for node in tree.iter("div") if node.attrib.get("id", "").startswith("how-")}

    def leads(node):
        return any(link.attrib["href"][1:] in ids for link in node.iter("a"))

    for table in tree.iter("table"):
        for row in table.findall("./tbody/tr"):
            at = 0
            for cell in row:
                if "n" in cell.attrib.get("class", "").split() and re.search(r"\d", text_of(cell)):
                    assert leads(cell) or leads(table.findall("./thead/tr/th")[at]), (text_of(table.find("caption")), text_of(cell))
                at += int(cell.attrib.get("colspan", "1"))
    assert all(leads(figure) for dl in tree.iter("dl") if dl.attrib.get("class") == "figures" for figure in dl.iter("dd"))
    assert leads(next(node for node in tree.iter("p") if node.attrib.get("class", "").startswith("verdict")))


def test_a_part_without_anything_to_show_says_why_or_is_not_there(make):
    tree = parsed(html_page(make.reports["no candidates"]().model_copy(update={"calibration": None, "graph": None})))
    assert [text_of(h) for h in tree.iter("h2")] == ["Candidates", "Pareto", "Sensitivity", "Calibration health", "Ladder", "Latency", "Provenance"]
    told = text_of(tree)
    for why in ("There was no candidate.", "No layer was profiled", "No scheme of this run needs calibrated ranges.", "No engine was held to"):
        assert why in told
    assert [text_of(a) for nav in tree.iter("nav") for a in nav.iter("a")] == [text_of(h) for h in tree.iter("h2")]


def test_layers_of_a_candidate_are_told_with_what_they_do_to_the_outputs(make):
    tree = parsed(html_page(make.reports["planned"]()))
    table = next(t for t in tree.iter("table") if text_of(t.find("caption")).startswith("What one layer alone"))
    assert [text_of(th) for th in table.iter("th")][:3] == ["Layer", "int8", "Cost, ms"]
    rows = rows_of(tree, "What one layer alone")
    assert rows[0] == ["encoder/MatMul29", "0.29 \N{PLUS-MINUS SIGN} 0.001", "0.5"]
    assert len(rows) == 30
    assert "9 layers of 30 make half of the error" in text_of(tree)  # 29 + 28 + ... + 22 = 204 and 21 more, of 435


def test_a_ladder_that_was_climbed_for_the_run_joins_the_page(make):
    rungs = (Rung(name="FP32 in plain ONNX"), Rung(name=make.evil_name, before="FP32 in plain ONNX", status="refused", reason=make.very_evil_name))
    ladder = Ladder(subject=make.evil_name, first="FP32", inputs=make.evil_name, output="y", rungs=rungs, agrees=True)
    page = html_page(make.reports["pass"](), ladder=ladder)
    assert "<img" not in page
    assert rows_of(parsed(page), "Every rung")[1][:2] == [make.evil_name, "refused"]
