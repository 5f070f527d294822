"""Logs of steps alone: no fault is found, unless something is missing or the ranks stopped apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from service.cli import run


def write(folder: Path, counts: list[int], more: str = "training finished\n") -> str:
    """Write a log a rank, with so many steps each."""
    for rank, count in enumerate(counts):
        steps = "".join(f"step: {step} loss: 2.{step} time: 0.5s\n" for step in range(1, count + 1))
        (folder / f"rank{rank}.log").write_text(steps + more, encoding="utf-8")
    return str(folder)


def test_even_steps_without_a_fault_end_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The ranks and their steps are counted; no culprit is named; the document is on stdout."""
    folder = write(tmp_path, [80] * 4)

    assert run(["diagnose", folder, "--json", "--expect", "culprit=none", "--expect", "abstained=false"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["culprits"], verdict["action"]["kind"]) == ([], "none")
    assert run(["diagnose", folder]) == 0
    assert "4 ranks, 80 steps each" in capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize(
    ("counts", "more"), [([80, 80, 41, 80], ""), ([80] * 4, "the storage is unreachable\n")], ids=["apart", "word"]
)
def test_steps_that_leave_a_doubt_are_no_clean_bill(
    tmp_path: Path, counts: list[int], more: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rank that stopped before the others, or a line with words of a fault."""
    assert run(["diagnose", write(tmp_path, counts, more)]) == 2
    assert capsys.readouterr().out == ""


def test_ranks_are_counted_within_their_roles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two roles that count from 0 each, and an engine's metrics beside their logs."""
    steps = "".join(f"step: {step} loss: 2.{step} time: 0.5s\n" for step in range(1, 9))
    for name in ("trainer_0.log", "trainer_1.log", "rollout_0.log"):
        (tmp_path / name).write_text(steps, encoding="utf-8")
    (tmp_path / "rollout_1.prom").write_text('vllm:num_requests_running{engine="0"} 3.0\n', encoding="utf-8")

    assert run(["diagnose", str(tmp_path)]) == 0
    assert "3 ranks, 8 steps each" in capsys.readouterr().out.splitlines()[0]
