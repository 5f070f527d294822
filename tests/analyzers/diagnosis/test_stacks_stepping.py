"""Stacks of a job whose logs go on reporting steps: it does not hang, wherever its ranks are found."""

from __future__ import annotations

import pytest

from analyzers.diagnosis.stacks.stacks import analyze
from analyzers.model.finding import Finding
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import Record, Steps
from tests.support.stack_claims import KNOWLEDGE, live

ROUND = (400.0, 403.0)
ALIKE = ("compute", "compute", "compute")
APART = ("gradient", "compute", "gradient")


def steps(at: float, step: int, **more: object) -> Steps:
    """Step lines that an agent has read from a log, the newest written at ``at``."""
    return Steps(**{"at": at, "step": step, "received_at": at + 1.0, "node": "n", "source": "train.log", **more})  # type: ignore[arg-type]


def found(ranks: tuple[str, ...], *read: Steps) -> list[Finding]:
    """Analyze one round of stacks, the rank i twice in the i-th, with what was read of logs."""
    looks: list[Record] = [live(rank, stack, at + rank / 10) for rank, stack in enumerate(ranks) for at in ROUND]
    topology = Topology(tuple(range(len(ranks))))
    return list(analyze(Window(records=(*looks, *read)), topology, KNOWLEDGE))


@pytest.mark.parametrize("ranks", [ALIKE, APART])
def test_a_job_that_goes_on_stepping_stands_nowhere(ranks: tuple[str, ...]) -> None:
    """Found twice in the line that takes the longest, with steps after the first look: no hang, no rank, no code."""
    assert found(ranks)
    assert found(ranks, steps(395.0, 10))
    assert found(ranks, steps(395.0, 10), steps(402.0, 14)) == []


@pytest.mark.parametrize("ranks", [ALIKE, APART])
def test_one_log_that_went_quiet_keeps_the_claim(ranks: tuple[str, ...]) -> None:
    """Ranks that step by themselves say nothing for the one whose log has stopped."""
    assert found(ranks, steps(395.0, 10, rank=0), steps(395.0, 10, rank=1), steps(405.0, 20, rank=0))


def test_a_file_of_unknown_instant_says_nothing() -> None:
    """Steps of files may have the time of a copy: only an agent's count."""
    assert found(ALIKE, steps(402.0, 14, received_at=None))
