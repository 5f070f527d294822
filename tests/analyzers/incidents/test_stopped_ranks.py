"""Ranks in state T beside agents that are late: one that is stopped is found, and no one of a job that is stopped as a whole."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from analyzers.diagnosis.process import process
from analyzers.incidents.detectors import find_symptoms
from analyzers.incidents.evidence import Evidence
from analyzers.incidents.job_views import JobView
from analyzers.incidents.messages import Received
from analyzers.model.topology import infer
from analyzers.model.window import Window
from collectors.records import Members, Placement, ProcessState, Record
from service.packaged_knowledge import load
from tests.support.watched_jobs import START

Span = tuple[float, float]
NODES, RANKS = 2, 4
UNTIL = 260.0


def said(spans: Sequence[Sequence[Span]], late: Sequence[float], phases: Sequence[float]) -> tuple[set[int], set[int]]:
    """Return which ranks are named at any moment, by the detector, and by verdicts on the newest records.

    ``spans``: of each rank, when it is stopped; ``late``: of each node, how long after a reading it is received.
    """
    view, shown, named = JobView("run", 0, load()), set[int](), set[int]()
    kept = [Evidence() for _ in range(NODES)]
    readings = sorted(
        (10.0 * turn + phases[node] + late[node], 10.0 * turn + phases[node], node)
        for node in range(NODES)
        for turn in range(int(UNTIL / 10.0))
    )
    for number, (received, at, node) in enumerate(readings, 1):
        ranks = range(node * RANKS, (node + 1) * RANKS)
        placement = Placement(
            node=f"n{node}", job="run", attempt=0, at=START + at, ranks=Members.of(ranks), nodes=(f"n{node}",) * RANKS,
            pids=tuple(100 + rank for rank in ranks), world_size=NODES * RANKS,
        )  # fmt: skip
        rows: list[Record] = [
            ProcessState(
                source="process", node=f"n{node}", boot_id="b", job="run", attempt=0, rank=rank, pid=100 + rank,
                state="T" if any(begin <= at < end for begin, end in spans[rank]) else "S", at=START + at,
                started_at=START - 60.0,
            )
            for rank in ranks
        ]  # fmt: skip
        records = (placement, *rows)
        batch = Received(
            sequence=number, received_at=START + received, sent_at=START + received, node=f"n{node}", records=records
        )
        view.take(batch, records)
        kept[node].add(number, records)
        for one in find_symptoms(view, START + received):
            shown.update(one.ranks if one.detector == "rank_stopped" else ())
        if received > 60.0 and number % 2:
            window = Window.build([one for each in kept for _, _, one in each.since(0)], 0, live=True)
            for finding in process.analyze(window, infer(window), load()):
                if finding.fault_class == "stopped":
                    named.update(rank for one in finding.suspects for rank in one.ranks)
    return shown, named


def reported(spans: Sequence[Sequence[Span]], phase: float) -> list[tuple[float, tuple[int, ...]]]:
    """Return when which ranks of one node are named, where its agent reads as it does: states each ten seconds, stops sooner."""
    view, found = JobView("run", 0, load()), list[tuple[float, tuple[int, ...]]]()
    stopped, told_at = dict.fromkeys(range(len(spans)), False), dict.fromkeys(range(len(spans)), 0.0)
    for turn in range(int(UNTIL)):
        at, rows = turn + phase, list[Record]()
        for rank, own in enumerate(spans):
            held = any(begin <= at < end for begin, end in own)
            if turn % 10 == 0 or held != stopped[rank] or (held and at - told_at[rank] >= 5.0):
                stopped[rank], told_at[rank] = held, at
                rows.append(
                    ProcessState(
                        source="process", node="n0", boot_id="b", job="run", attempt=0, rank=rank, pid=100 + rank,
                        state="T" if held else "S", at=START + at, started_at=START - 60.0,
                    )
                )  # fmt: skip
        if rows:
            received = START + at + 0.5
            batch = Received(sequence=turn + 1, received_at=received, sent_at=received, node="n0", records=tuple(rows))
            view.take(batch, batch.records)
            symptoms = find_symptoms(view, received)
            found += [(at + 0.5, one.ranks) for one in symptoms if one.detector == "rank_stopped"]
    return found


@pytest.mark.parametrize("phase", [0.1, 0.9])
@pytest.mark.parametrize("begins", range(100, 110))
def test_a_stop_of_half_a_minute_is_told_while_there_is_time_to_look(begins: int, phase: float) -> None:
    """Of one rank beside others of its node; a look at the stacks and a verdict take seven seconds more."""
    spans: list[list[Span]] = [[], [(float(begins), begins + 30.0)], []]

    found = reported(spans, phase)

    assert {ranks for _, ranks in found} == {(1,)}
    assert found[0][0] <= begins + 25.0


@pytest.mark.parametrize("seed", range(12))
def test_a_job_of_one_node_that_its_owner_stops_and_continues_names_nobody(seed: int) -> None:
    """One process after the other, several times, with runs in between that are shorter than the time between two readings."""
    noise = random.Random(seed)
    spans: list[list[Span]] = [[] for _ in range(RANKS)]
    at = noise.uniform(60.0, 90.0)
    while at < UNTIL - 30.0:
        end = at + noise.uniform(3.0, 40.0)
        for rank in range(RANKS):
            spans[rank].append((at + noise.uniform(0.0, 0.9), end + noise.uniform(0.0, 0.9)))
        at = end + noise.uniform(1.0, 9.0)

    assert reported(spans, noise.uniform(0.0, 0.9)) == []


@pytest.mark.parametrize(("late", "phase"), [(0.0, 0.0), (14.0, 4.0), (22.0, 9.0), (45.0, 4.0)])
def test_a_stopped_rank_is_found_however_late_its_agent_is(late: float, phase: float) -> None:
    """Its agent reads every ten seconds, and what it read always comes so much later."""
    stopped: list[list[Span]] = [[] for _ in range(NODES * RANKS)]
    stopped[5] = [(100.0, 999.0)]

    assert said(stopped, (0.0, late), (0.0, phase))[0] == {5}


@pytest.mark.parametrize("seed", [1, 5, 24, 27, 38, 50, 60, 95])
def test_a_job_that_its_owner_stops_and_continues_names_nobody(seed: int) -> None:
    """Once or several times, with short runs in between, while one agent is late."""
    noise = random.Random(seed)
    spans: list[list[Span]] = [[] for _ in range(NODES * RANKS)]
    at = noise.uniform(60.0, 90.0)
    for _ in range(noise.randint(1, 3)):
        end = at + noise.uniform(12.0, 70.0)
        for rank in range(NODES * RANKS):  # one after the other
            spans[rank].append((at + noise.uniform(0.0, 0.3), end + noise.uniform(0.0, 0.3)))
        at = end + noise.uniform(1.0, 9.0)
    late = [0.5, noise.choice([3.0, noise.uniform(10.0, 60.0)])]
    noise.shuffle(late)

    assert said(spans, late, (noise.uniform(0.0, 9.9), noise.uniform(0.0, 9.9))) == (set(), set())
