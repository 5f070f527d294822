"""Stacks that agents took unasked before what is judged: they are of processes that have ended since."""

from __future__ import annotations

import pytest

from analyzers.diagnosis.stacks.stacks import analyze
from analyzers.model.finding import Finding
from analyzers.model.topology import infer
from analyzers.model.window import Window
from collectors.records import ProcessState, Record
from tests.support.stack_claims import KNOWLEDGE, dump

OPENED = 1_000.0


def judged(taken_at: float, *more: Record) -> list[Finding]:
    """Analyze four ranks that all stood in their data loader at an instant, for an incident that opened later."""
    known = {"at": taken_at, "boot_id": "b", "node": "n", "job": "run", "attempt": 0}
    stacks = [dump(rank, "loader", **known) for rank in range(4)]
    window = Window.build([*stacks, *more], live=True, since=OPENED, round_at=OPENED)
    return list(analyze(window, infer(window), KNOWLEDGE))


@pytest.mark.parametrize(("ended", "claims"), [(4, False), (3, True), (0, True)])
def test_what_ranks_did_alike_before_they_all_ended_is_no_hang(ended: int, claims: bool) -> None:
    """Twenty seconds before Ctrl-C all of them fetched a batch."""
    ends = [
        ProcessState(job="run", attempt=0, node="n", rank=rank, pid=100 + rank, state="X", exit_code=1, at=995.0)
        for rank in range(ended)
    ]
    assert bool(judged(975.0, *ends)) is claims
