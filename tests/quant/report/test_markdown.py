"""The short report in Markdown."""

import re

from quant.report.markdown import escaped, markdown


def tables(text):
    found, rows = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append(line)
        elif rows:
            found.append(rows)
            rows = []
    return found


def cells(line):
    assert line.startswith("| ")
    assert line.endswith(" |")
    return re.split(r"(?<!\\)\|", line)[1:-1]


def test_tables_of_every_report_have_as_many_cells_in_every_row(any_report):
    found = tables(markdown(any_report))
    assert found
    for rows in found:
        assert set(cells(rows[1])) == {" --- "}
        assert {len(cells(row)) for row in rows} == {len(cells(rows[0]))}


def test_names_cannot_break_out_of_a_cell_or_become_markup(make):
    text = markdown(make.reports["evil"]())
    assert "<img" not in text
    assert "](" not in text
    assert "`" not in text
    assert "\x1b" not in text
    assert "https://" not in text
    for line in text.splitlines():
        assert not line.startswith(("<", "*d*"))


def test_escaping_leaves_nothing_that_markdown_acts_on():
    assert escaped("a|b`c`\n*d* _e_ <f> [g](h) \\| &amp; #1 @x") == (
        "a&#124;b&#96;c&#96; &#42;d&#42; \\_e\\_ &lt;f&gt; &#91;g&#93;(h) &#92;&#124; &amp;amp; &#35;1 &#64;x"
    )


def test_the_text_tells_the_story_in_the_order_of_the_page(make):
    text = markdown(make.reports["mixed"]())
    heads = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert heads == ["Baseline", "Candidates", "Calibration", "Latency", "Data", "Model", "Environment", "Provenance"]
    assert text.splitlines()[2].startswith("**✓ Pass: int8 on onnxruntime keeps accuracy within 1 point")
    row = next(line for line in text.splitlines() if line.startswith("| 2 |"))
    assert "? inconclusive" in row
    assert "about 1,200 more samples needed" in row
    assert "| emulated |" in next(line for line in text.splitlines() if line.startswith("| 4 |"))


def test_long_lists_are_cut_and_say_so(make):
    plan = tuple(make.plan[1].model_copy(update={"layer": f"layer{i}"}) for i in range(25))
    assert "… and 5 layers more." in markdown(make.report(make.candidate(plan=plan)))
    assert len(markdown(make.reports["large"]())) < 20_000


def test_an_emulated_candidate_has_no_times(make):
    timed = make.candidate("fp16", emulated="no FP16 arithmetic here", latency_ratio=0.5)
    text = markdown(make.report(timed))
    assert "| fp32 on onnxruntime |" in text
    assert "| fp16 on onnxruntime |" not in text[text.index("## Latency") :]
