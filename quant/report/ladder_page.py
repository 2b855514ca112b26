"""A ladder as one HTML page that needs nothing else."""

from __future__ import annotations

from quant.report.ladder import Ladder, ladder_verdict, rung_rows
from quant.report.lanes import ladder_steps, step_lanes
from quant.report.methods import LADDER
from quant.report.rendering import environment


def ladder_page(ladder: Ladder) -> str:
    """The page of `ladder`, whole."""
    named = {"ladder_steps": ladder_steps, "step_lanes": step_lanes, "ladder_verdict": ladder_verdict, "rung_rows": rung_rows}
    return environment().get_template("ladder.html").render(ladder=ladder, methods=(LADDER,), **named)
