"""A set of ranks that leads a verdict, by two operations of one group, beside a weaker lead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from service.cli import run


@pytest.mark.system
def test_the_leading_set_is_said_once_and_tested(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The simulated hang has two roots with one headline, of no certain cause, and a rank without a dump at a few per cent."""
    cases = tmp_path / "cases"
    assert run(["simulate", "--out", str(cases), "--family", "hang", "--cases", "1", "--seed", "1", "--quiet"]) == 0
    (case,) = (one for one in (cases / "hang").iterdir() if one.is_dir())
    capsys.readouterr()

    run(["diagnose", str(case), "--json"])
    verdict = json.loads(capsys.readouterr().out)
    leading = {rank for one in verdict["culprits"] if one["probability"] > 0.9 for rank in one["ranks"]}
    assert len({one["root"] for one in verdict["culprits"]}) == 3
    assert leading <= set(verdict["action"]["ranks"])

    run(["diagnose", str(case)])
    said = " ".join(capsys.readouterr().out.partition("Why")[0].split())
    assert said.count("One or more of ranks") == 1
