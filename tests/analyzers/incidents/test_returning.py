"""What agents kept while nothing reached the service: what still stands is reported when it is here, what is over is not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from analyzers.incidents.awaited import BACKLOG_SECONDS, GRACE_SECONDS, is_awaited
from analyzers.incidents.messages import EngineTick, Merge, Open, Received
from analyzers.incidents.state import EngineState
from analyzers.incidents.step import step
from collectors.records import Members, Placement, ProcessState, Record
from collectors.records.identity import placed_rank
from service.packaged_knowledge import load
from tests.support.watched_jobs import START, WatchedJob

AWAY, BACK = 130.0, 730.0  # the span in which nothing arrives
LAW_SECONDS = 1.0


@dataclass
class HeldJob(WatchedJob):
    """A job of which one rank is stopped for a span; no step ends in it."""

    rank: int = 1
    since: float = 120.0
    until: float = float("inf")

    def __post_init__(self) -> None:
        super().__post_init__()
        at = [0.0]

        def law(_step: int, _noise: object) -> float:
            begun, at[0] = at[0], at[0] + LAW_SECONDS
            if begun < self.since <= at[0]:
                at[0] = self.until + LAW_SECONDS
            return at[0] - begun

        self.law = law

    def _processes(self, number: int, at: float, ahead: float) -> Iterator[Record]:
        for record in super()._processes(number, at, ahead):
            held = isinstance(record, ProcessState) and record.rank == self.rank and self.since <= at < self.until
            yield replace(record, state="T") if held and isinstance(record, ProcessState) else record


def arriving(
    job: WatchedJob, until: float, seconds_a_batch: float, away: Sequence[str] = ("n0", "n1"), gone: Sequence[str] = ()
) -> list[Received]:
    """Return the batches as they come: those that were made meanwhile after ``BACK``, oldest first, one after the other.

    ``away``: the nodes that do not reach the service meanwhile. ``gone``: those that do not come back.
    """
    came: list[Received] = []
    free_at = dict.fromkeys(away, BACK)
    for batch in job.batches(0.0, until):
        made = batch.received_at - START
        if batch.node not in away or made < AWAY:
            came.append(batch)
        elif batch.node not in gone:
            at = free_at[batch.node] = max(made, free_at[batch.node] + seconds_a_batch)
            came.append(replace(batch, received_at=START + at, sent_at=START + at))
    came.sort(key=lambda batch: batch.received_at)
    return [replace(batch, sequence=number) for number, batch in enumerate(came, 1)]


def opened(batches: Sequence[Received], *, service_was_away: bool) -> tuple[list[float], set[int]]:
    """Return when incidents were opened, and the ranks that their symptoms name; a tick a second while the engine runs."""
    state, at_seconds, ranks = EngineState(load()), list[float](), set[int]()
    left, at = list(batches), 0.0
    while left:
        at += 1.0
        if service_was_away and AWAY < at < BACK:
            continue
        if service_was_away and at == BACK:
            state.back_at = START + at
        while left and left[0].received_at <= START + at:
            batch = left.pop(0)
            step(state, batch, batch.received_at)
        for one in step(state, EngineTick(), START + at)[1]:
            if isinstance(one, Open) and one.incident.job is not None:
                at_seconds.append(at)
                ranks.update(*(symptom.ranks for symptom in one.incident.symptoms))
            elif isinstance(one, Merge):
                ranks.update(one.symptom.ranks)
    return at_seconds, ranks


@pytest.mark.parametrize("service_was_away", [True, False])
@pytest.mark.parametrize("seconds_a_batch", [0.05, 0.3])
def test_a_stop_that_still_stands_is_told_when_the_backlog_is_here(
    seconds_a_batch: float, *, service_was_away: bool
) -> None:
    """A rank stopped before the outage, and still stopped: one incident, naming it, seconds after the backlog's end."""
    job = HeldJob()
    at_seconds, ranks = opened(arriving(job, BACK + 90.0, seconds_a_batch), service_was_away=service_was_away)
    backlog = seconds_a_batch * (BACK - AWAY) / 10.0

    assert (len(at_seconds), ranks) == (1, {1})
    assert BACK < at_seconds[0] <= BACK + 12.0 + 1.1 * backlog


@pytest.mark.parametrize("service_was_away", [True, False])
@pytest.mark.parametrize("seconds_a_batch", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("until", [200.0, 480.0, 700.0])
def test_a_stop_that_is_over_by_the_return_is_not_told(
    until: float, seconds_a_batch: float, *, service_was_away: bool
) -> None:
    """The rank was continued meanwhile: while the backlog arrives, however slowly, its old readings open nothing."""
    job = HeldJob(nodes=1, until=until)
    batches = arriving(job, BACK + 200.0, seconds_a_batch, away=("n0",))
    if not service_was_away:  # another node's agent goes on, so the log has no gap
        others = WatchedJob(nodes=1)
        batches += [replace(one, node="other", records=()) for one in others.batches(0.0, BACK + 200.0)]
        batches = [
            replace(one, sequence=number) for number, one in enumerate(sorted(batches, key=lambda b: b.received_at), 1)
        ]

    assert opened(batches, service_was_away=service_was_away) == ([], set())


def test_a_node_that_does_not_return_delays_the_others_for_a_minute() -> None:
    """One node's agent died meanwhile: what the other shows is reported once it could have returned."""
    at_seconds, ranks = opened(arriving(HeldJob(), BACK + 120.0, 0.05, gone=("n1",)), service_was_away=True)

    assert (len(at_seconds), ranks) == (1, {1})
    assert BACK + GRACE_SECONDS <= at_seconds[0] <= BACK + GRACE_SECONDS + 12.0


def test_an_agent_that_stays_behind_is_judged_after_all() -> None:
    """Its batches come as slowly as they are made, and never catch up: after five minutes what is there counts."""
    at_seconds, _ = opened(arriving(HeldJob(nodes=1), BACK + 900.0, 10.0, away=("n0",)), service_was_away=False)

    assert len(at_seconds) == 1
    assert BACK + BACKLOG_SECONDS <= at_seconds[0] <= BACK + BACKLOG_SECONDS + 30.0


def test_a_healthy_job_is_not_told_while_its_backlog_arrives() -> None:
    """Batches of logs alone, which name no reading, do not make the outage a silence."""
    job = WatchedJob(nodes=1)
    batches = arriving(job, BACK + 120.0, 0.5, away=("n0",))
    logs_only = [
        replace(one, records=tuple(record for record in one.records if not isinstance(record, ProcessState)))
        if number % 3 == 2 and one.received_at > START + BACK
        else one
        for number, one in enumerate(batches)
    ]

    assert opened(logs_only, service_was_away=True) == ([], set())


def old_and_new_by_turns(since: float, until: float) -> Iterator[Received]:
    """A stranger's process without a number is in the job; its node sends a new reading of it, and at once an old one."""
    number = placed_rank("stranger", 0)
    for at in range(round(since), round(until), 7):
        now = START + at
        new = ProcessState(job="run", attempt=0, rank=number, pid=9, state="R", at=now - 1.0)
        placed = Placement(job="run", attempt=0, at=now - 1.0, ranks=Members.of([number]), nodes=("stranger",))
        for records in ((placed, new), (replace(new, at=now - 100.0),)):
            yield Received(sequence=0, received_at=now, node="stranger", records=records, sent_at=now)


def test_a_node_that_is_behind_again_and_again_delays_a_job_once() -> None:
    """A fault is reported at the latest when one that stays behind would no longer be waited for."""
    batches = [*HeldJob(since=600.0).batches(0.0, 1_000.0), *old_and_new_by_turns(590.0, 1_000.0)]
    batches.sort(key=lambda batch: batch.received_at)
    at_seconds, ranks = opened([replace(one, sequence=n) for n, one in enumerate(batches, 1)], service_was_away=False)

    assert (len(at_seconds), ranks) == (1, {1})
    assert at_seconds[0] <= 590.0 + BACKLOG_SECONDS + 30.0


def test_a_service_that_goes_away_again_waits_anew_for_what_is_kept() -> None:
    """It was back for seconds, in which a node began to send what it had kept, and away for ten more minutes."""
    state, came = EngineState(load()), (0.0, 10.0, 20.0, 630.0, 1_240.0)
    for number, (batch, at) in enumerate(zip(WatchedJob(nodes=1).batches(0.0, 50.0), came, strict=True), 1):
        if at > 20.0:
            state.back_at = START + at - 1.0
        step(state, replace(batch, sequence=number, received_at=START + at, sent_at=START + at), START + at)

    assert is_awaited(state, ("run", 0))
