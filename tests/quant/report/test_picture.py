"""The picture of accuracy against latency."""

from itertools import combinations

import pytest

from quant.report.picture import Box, draw


def test_marks_lie_where_their_numbers_say(make):
    picture = draw(make.reports["pass"]())
    (mark,) = picture.marks
    across = {tick.text: tick.at for tick in picture.x_ticks}
    upright = {tick.text: tick.at for tick in picture.y_ticks}
    assert mark.x == pytest.approx(across["0"] + 0.53 * (across["1"] - across["0"]))
    per_point = upright["1"] - upright["0"]
    assert mark.y == pytest.approx(upright["0"] + 0.2 * per_point)
    assert mark.top == pytest.approx(upright["0"] + 0.6 * per_point)
    assert mark.bottom == pytest.approx(upright["0"] - 0.2 * per_point)
    assert picture.limit_y == pytest.approx(upright["1"])
    assert (picture.baseline_x, picture.baseline_y) == pytest.approx((across["1"], upright["0"]))
    assert not picture.compressed


@pytest.mark.parametrize("kind", ["mixed", "crowded", "large", "several gates", "evil"])
@pytest.mark.parametrize("width", [400, 760])
def test_labels_lie_on_no_other_label_and_no_mark_and_inside_the_frame(make, kind, width):
    picture = draw(make.reports[kind](), width=width, names=width > 400)
    boxes = [mark.label_box for mark in picture.marks]
    assert all(boxes), "every label found a place"
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
    for box in boxes:
        assert picture.frame.left <= box.left < box.right <= picture.frame.right
        assert picture.frame.top <= box.top < box.bottom <= picture.frame.bottom
        assert not any(box.overlaps(Box(m.x - 5, m.y - 5, m.x + 5, m.y + 5)) for m in picture.marks)


def test_marks_and_intervals_stay_inside_the_frame(any_report):
    picture = draw(any_report)
    for mark in picture.marks if picture else ():
        assert picture.frame.left <= mark.left <= mark.x <= mark.right <= picture.frame.right
        assert picture.frame.top <= mark.top <= mark.y <= mark.bottom <= picture.frame.bottom


def test_a_far_candidate_compresses_the_scale_and_keeps_its_order(make):
    picture = draw(make.reports["crowded"]())
    assert picture.compressed
    ticks = [float(t.text.replace("\N{MINUS SIGN}", "-")) for t in picture.y_ticks]
    assert ticks == sorted(ticks, reverse=True)
    assert "1" in {t.text for t in picture.y_ticks}, "the limit keeps its tick"


def test_ticks_do_not_touch(any_report):
    picture = draw(any_report)
    for first, second in combinations(picture.y_ticks if picture else (), 2):
        assert abs(first.at - second.at) >= 15


def test_candidates_without_a_time_are_named_beside_the_picture(make):
    picture = draw(make.reports["mixed"]())
    assert [mark.number for mark in picture.marks] == [1, 2, 3]
    assert picture.missing == ("fp16 on onnxruntime (emulated)", "int8 on tensorrt (not available)", "int4 on onnxruntime (not applicable)")


@pytest.mark.parametrize("kind", ["no metrics", "no candidates", "not available", "emulated"])
def test_there_is_no_picture_without_a_time_and_a_verdict(make, kind):
    assert draw(make.reports[kind]()) is None


def test_a_limit_of_zero_can_be_drawn(make):
    picture = draw(make.report(make.candidate("int8", make.gate("inconclusive", limit=0.0))))
    assert picture.limit_y == pytest.approx(picture.baseline_y)
