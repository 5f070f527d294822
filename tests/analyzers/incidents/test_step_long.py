"""Incidents that last, nodes that come late or are gone for good, jobs of which nobody tells any more; hostile names."""

from __future__ import annotations

import pytest

from analyzers.incidents import step as engine
from analyzers.incidents.evidence import Evidence, select_records
from analyzers.incidents.job_views.processes import LARGEST_RANK
from analyzers.incidents.messages import Close, EngineInstruction, EngineTick, Judge, Judged, Open, Received, attributed
from analyzers.incidents.state import FORGOTTEN_SECONDS, EngineState
from analyzers.knowledge import Knowledge
from analyzers.model.incident import Symptom
from analyzers.model.verdict import Verdict
from collectors.records import KernelEvent, Members, Placement, ProcessState, Record, Ring, Steps

START = 1_000_000.0
SOON = 20.0  # when the symptom shows


class Fleet:
    """Nodes that tell of one job every ten seconds, and of themselves; a symptom from the twentieth second on."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.state, self.log, self.said = EngineState(Knowledge()), list[Received](), list[EngineInstruction]()
        self.placed: dict[str, int] = {"gpu-0": 0, "gpu-1": 1}
        self.idle = {"gpu-2"}  # which tells of itself only
        self.ahead: dict[str, float] = {}  # node → seconds of its clock
        self.seconds = 0
        symptom = Symptom(kind="hang", detector="no_progress", at=START + SOON, text="no step")
        patch.setattr(engine, "find_symptoms", lambda _view, now: [symptom] if now > START + SOON else [])
        patch.setattr(engine, "ended_because", lambda *_: None)

    def run(self, until: int) -> None:
        """Let time pass."""
        while self.seconds < until:
            self.seconds += 1
            at = START + self.seconds
            if self.seconds % 10 == 0:
                for node in [*self.placed, *self.idle]:
                    self._take(node, at)
            if at >= min(self.state.ticked_at + 10.0, engine.next_due_at(self.state) or 1e18):
                self._step(engine.step(self.state, EngineTick(), at)[1], at)

    def _take(self, node: str, at: float) -> None:
        reported = KernelEvent(node=node, at=at, event="link_up", text=f"at {at}", source="kmsg")
        records: list[Record] = [reported]
        if node in self.placed:
            ranks = Members.of([self.placed[node]])
            records.append(Placement(node=node, at=at, job="llama", attempt=1, ranks=ranks, nodes=(node,)))
        batch = Received(
            sequence=len(self.log) + 1,
            received_at=at,
            node=node,
            records=tuple(records),
            sent_at=at + self.ahead.get(node, 0.0),
        )
        self.log.append(batch)
        self._step(engine.step(self.state, batch, at)[1], at)

    def _step(self, said: list[EngineInstruction], at: float) -> None:
        self.said += said
        for one in said:
            if isinstance(one, Judge):
                verdict = Verdict(symptom="hang", cause="unknown", abstained=True)
                self._step(
                    engine.step(self.state, Judged(incident=one.incident, cut=one.cut, verdict=verdict), at)[1], at
                )

    def judged_as_replayed(self) -> list[bool]:
        """Of each judgement, whether the log alone gives the same records."""
        (opened,) = (one for one in self.said if isinstance(one, Open))
        asked = [one for one in self.said if isinstance(one, Judge)]
        nodes = next(iter(self.state.incidents.values())).nodes
        return [self._again(one, nodes, opened) == tuple(one.records) for one in asked]

    def _again(self, judge: Judge, nodes: tuple[str, ...], opened: Open) -> tuple[Record, ...]:
        kept: dict[str, Evidence] = {}
        for batch in self.log:
            if opened.incident.after < batch.sequence <= judge.cut.through:
                kept.setdefault(batch.node, Evidence()).add(batch.sequence, attributed(batch).records)
        return tuple(select_records(kept, nodes[: judge.cut.nodes], opened.context, judge.cut, "llama", 1))


def test_a_node_that_joins_late_is_replayed_as_it_was_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it reported before it joined was forgotten, and a replay, which has it, leaves it out; its clock is corrected."""
    fleet = Fleet(monkeypatch)
    fleet.ahead["gpu-2"] = 30.0
    fleet.run(700)
    fleet.placed["gpu-2"] = 2
    fleet.idle.clear()
    fleet.run(1_500)

    same = fleet.judged_as_replayed()
    assert len(same) > 5
    assert all(same)
    incident = next(iter(fleet.state.incidents.values()))
    assert ("gpu-2" in incident.nodes, incident.offsets) == (True, {"gpu-2": 30.0})


def test_a_node_that_is_gone_for_an_hour_is_replayed_as_it_was_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a node reported of an open incident is kept, though nobody has heard of it for an hour."""
    fleet = Fleet(monkeypatch)
    fleet.run(100)
    del fleet.placed["gpu-1"]
    fleet.run(int(FORGOTTEN_SECONDS) + 700)

    assert "gpu-1" not in fleet.state.nodes
    assert all(fleet.judged_as_replayed())


def test_a_job_that_nobody_tells_of_has_no_incident_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """All its nodes are gone: an hour later its incident is closed, and nothing of it is left in the memory."""
    fleet = Fleet(monkeypatch)
    fleet.run(100)
    fleet.placed.clear()
    fleet.run(int(FORGOTTEN_SECONDS) + 150)

    assert sum(isinstance(one, Close) and "llama" in one.because for one in fleet.said) == 1
    fleet.run(2 * int(FORGOTTEN_SECONDS) + 300)
    state = fleet.state
    assert not any((state.incidents, state.jobs, state.reported_at, state.settled, state.contexts))
    assert set(state.evidence) == set(state.nodes) == {"gpu-2"}


@pytest.mark.system
def test_names_without_end_are_held_in_bounded_memory() -> None:
    """One agent that tells of ever new jobs, senders and ranks: of none of them is more kept than a bound."""
    state = EngineState(Knowledge())
    for number in range(120):  # 6,000 names
        at = START + number
        steps = [
            Steps(job="llama", attempt=1, rank=0, told_by=f"{number}.{other}", source="log") for other in range(50)
        ]
        states = [ProcessState(job=f"{number}.{other}", source="p", pid=1, state="S", rank=0) for other in range(50)]
        rings = [Ring(job="llama", attempt=1, rank=LARGEST_RANK + other, source="r", pid=1) for other in range(50)]
        batch = Received(
            sequence=number + 1, received_at=at, node="gpu-0", records=(*steps, *states, *rings), sent_at=at
        )
        engine.step(state, batch, at)
        engine.step(state, EngineTick(), at)

    view = state.jobs["llama", 1]
    assert max(len(state.jobs), len(state.reported_at), len(view.progress.reporter_kinds)) <= 2 * 64
    assert not view.waits.rings


def test_a_job_that_is_started_again_and_again_stays_in_sight() -> None:
    """A crash loop of a hundred attempts within the hour: the newest is watched, and their number is bounded."""
    state = EngineState(Knowledge())
    for attempt in range(100):
        at = START + 30.0 * attempt
        record = ProcessState(job="llama", attempt=attempt, rank=0, source="p", pid=100 + attempt, state="R", at=at)
        batch = Received(sequence=attempt + 1, received_at=at, node="gpu-0", records=(record,), sent_at=at)
        engine.step(state, batch, at)
        engine.step(state, EngineTick(), at)

    assert ("llama", 99) in state.jobs
    assert len(state.jobs) <= 65
