"""Processes of a role without numbers of their own: the document names them, and no sentence shows such a number."""

from __future__ import annotations

import re

import pytest

from analyzers.model import topology
from analyzers.model.verdict import Culprit, Verdict
from analyzers.model.window import Window
from analyzers.verdict import judge
from collectors.records import LogEvent, Members, Placement, ProcessState, Record
from collectors.records.identity import placed_rank
from service import packaged_knowledge
from service.reports import text

START, HERE = 1_700_000_000.0, ("n0", "n1")
NUMBERS = {node: [placed_rank(node, index) for index in range(3)] for node in HERE}
LOST = "Connection closed by peer [10.4.0.7]:4123"


def state(role: str, rank: int, node: str, pid: int, at: float, letter: str = "S", signal: int | None = None) -> Record:
    """A row of a process table."""
    return ProcessState(
        job="rl",
        attempt=0,
        role=role,
        rank=rank,
        node=node,
        pid=pid,
        at=START + at,
        started_at=START,
        state=letter,
        signal=signal,
    )


def judged(*more: Record) -> Verdict:
    """Judge a job of two trainers and six environments that ran for a minute, and what came then."""
    records: list[Record] = []
    for base, node in enumerate(HERE):
        records.append(
            Placement(
                job="rl", attempt=0, node=node, at=START, ranks=Members.of([base, *NUMBERS[node]]), nodes=(node,) * 4,
                roles=("trainer", *["environment"] * 3), pids=(10, 11, 12, 13),
            )
        )  # fmt: skip
        records += [state("trainer", base, node, 10, at) for at in (5, 60, 120)]
        records += [state("environment", rank, node, 11 + at, 60) for at, rank in enumerate(NUMBERS[node])]
    window = Window.build([*records, *more], None)
    return judge.judge(window, topology.infer(window), packaged_knowledge.load(None))


def test_a_culprit_has_a_name() -> None:
    """The number stays the key by which agents are asked; people and schedulers get a name beside it."""
    verdict = judged(state("environment", NUMBERS["n0"][1], "n0", 12, 70, "X", 9))

    assert [one.names for one in verdict.culprits] == [("environment rank #1",)]
    assert not re.search(r"\d{8}", text.render(verdict))


def test_victims_are_named_in_words() -> None:
    """Ranks that only lost a peer are listed without the numbers from their places."""
    lost = (
        LogEvent(
            job="rl", attempt=0, role="environment", rank=rank, node=node, event="traceback", exception="RuntimeError",
            message=LOST, text=f"RuntimeError: {LOST}", at=START + 70, source=f"{node}-{place}.log:3",
        )
        for node in HERE
        for place, rank in enumerate(NUMBERS[node][:2])
    )  # fmt: skip
    verdict = judged(*lost)

    assert verdict.victims.count == 4
    assert not re.search(r"\d{8}", text.render(verdict))


@pytest.mark.parametrize(("rank", "instance"), [(3, "3"), (placed_rank("n0", 1), "#1")])
def test_an_instance_is_no_number_from_a_place(rank: int, instance: str) -> None:
    """What an action restarts is shown as its rank is."""
    assert Culprit(root="r1", kind="rank", id="x", ranks=(rank,), role="rollout").seat == ("rollout", instance)


def test_a_rank_with_a_number_of_its_own_needs_no_name() -> None:
    """The control: a trainer's rank is its number."""
    verdict = judged(state("trainer", 1, "n1", 10, 130, "X", 9))

    assert [(one.ranks, one.names) for one in verdict.culprits] == [((1,), ())]
