"""A rollout that an autoscaler ends, without a word to the directory: what shows that it was given up, and what does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from analyzers.incidents.messages import Open, Publish, Received
from analyzers.incidents.replay import rerun_engine
from collectors.records import LogEvent, ProcessState, Record, directory_sender
from service.packaged_knowledge import load
from tests.analyzers.incidents.test_role_stalls import TRAINED_SECONDS, batch, dead_engine, said
from tests.support.watched_jobs import START

UNTIL = TRAINED_SECONDS + 80.0


def says(role: str, rank: int, at: float) -> dict[str, Any] | None:
    """All go on, and rollout 3 is not heard any more."""
    gone = (role, rank) == ("rollout", 3) and at > TRAINED_SECONDS
    return None if gone else dead_engine(role, 0 if role == "rollout" else rank, at)


def log(how: dict[str, int], line: str, node: str) -> Iterator[Received]:
    """Yield the log of a job whose rollout 3 ends on n1; ``line``: what a log that is read on ``node`` says of an end then."""
    for tick in range(1, int(UNTIL // 10.0) + 1):
        at = 10.0 * tick
        for number, name in enumerate(("n0", "n1")):
            one = batch(name, at, 1e9, {("rollout", 3): 0} if at > TRAINED_SECONDS else {})
            records: list[Record] = [
                replace(each, exit_code=how.get("code"), signal=how.get("signal"))
                if isinstance(each, ProcessState) and each.state == "X"
                else each
                for each in one.records
            ]
            if line and name == node and TRAINED_SECONDS < at <= TRAINED_SECONDS + 10.0:
                told = START + TRAINED_SECONDS + 2.0
                records.append(
                    LogEvent(job="rl", attempt=0, event=line, at=told, node=name, source="slurmd.log:1", text="it")
                )
            yield replace(one, sequence=3 * tick + number, records=tuple(records))
        readings = tuple(said(says, at))
        yield Received(sequence=3 * tick + 2, received_at=START + at, node=directory_sender("rl"), records=readings)


def watched(how: dict[str, int], line: str = "", node: str = "n1") -> tuple[int, list[Any]]:
    """Return how many incidents opened, and the verdicts."""
    decided = [one for _, one in rerun_engine(log(how, line, node), load())]
    return sum(isinstance(one, Open) for one in decided), [one.verdict for one in decided if isinstance(one, Publish)]


@pytest.mark.parametrize("how", [{"signal": 15}, {"code": 143}], ids=str)
@pytest.mark.parametrize("line", ["preempted", "terminated", "cancelled"])
def test_an_end_by_sigterm_that_its_platform_states_is_no_fault(how: dict[str, int], line: str) -> None:
    """The others of its role go on."""
    assert watched(how, line) == (0, [])


@pytest.mark.parametrize("how", [{"signal": 15}, {"code": 143}], ids=str)
@pytest.mark.parametrize(("line", "node"), [("", "n1"), ("preempted", "n0")])
def test_an_end_by_sigterm_alone_opens_an_incident_that_names_none(how: dict[str, int], line: str, node: str) -> None:
    """Who sent it is not known; a line about another node says nothing of it."""
    opened, verdicts = watched(how, line, node)
    assert opened == 1
    assert all(one.action.kind == "none" and not any(entry.ranks for entry in one.culprits) for one in verdicts)


@pytest.mark.parametrize("how", [{"signal": 9}, {"code": 137}], ids=str)
def test_a_kill_without_any_word_is_a_loss(how: dict[str, int]) -> None:
    """Nothing tells it from one by the kernel or a person: the rollout is started again."""
    opened, verdicts = watched(how)
    assert opened == 1
    assert [(one.action.kind, one.action.role, one.action.instance) for one in verdicts][-1] == (
        "restart_role",
        "rollout",
        "3",
    )


def test_an_end_with_code_0_is_none() -> None:
    """It had no more to do."""
    assert watched({"code": 0}) == (0, [])
