"""Counted cases are the cases: what is calibrated by them is the same, and a further run goes on after them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.acceptance import calibration
from tests.support.scoreboard.forecasts import HELD_OUT


def test_counts_say_what_the_cases_said(tmp_path: Path) -> None:
    """Each claim's kind, strength and truth is kept; cases without a claim count as cases."""
    claims = [
        {"case": f"c{number}", "origin": "simulator", "key": ["waits", "init", "one"], "strength": 0.9, "stated": 0.5,
         "guilty": number % 3 > 0, "first": number % 2 == 0}
        for number in range(10)
    ]  # fmt: skip
    path = calibration.rows_of(HELD_OUT, tmp_path)
    path.write_text("".join(json.dumps([one]) + "\n" for one in claims) + "[]\n[]\n")
    before = calibration.report(tmp_path)["populations"][HELD_OUT]

    calibration.fold([HELD_OUT], tmp_path)

    after = calibration.report(tmp_path)["populations"][HELD_OUT]
    assert not path.exists()
    assert calibration.counted(HELD_OUT, tmp_path) == 12 == before["cases"] == after["cases"]
    assert {which: after[which]["after"]["right"] for which in ("first", "all")} == {
        which: before[which]["after"]["right"] for which in ("first", "all")
    }
    assert after["all"]["after"]["brier"] == before["all"]["after"]["brier"]
