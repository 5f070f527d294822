"""Plays a script to the engine and writes down what it wants done. What the detectors see is a line of the script, too.

    # the claim, a sentence or more
    0    nodes gpu-1 gpu-2          a batch of the job from each
    5    tells gpu-1                something of the job: the engine looks at it within a second
    12   symptom hang no_progress   the detector sees it from now on (again: it sees it no more)
    13   answers gpu-1              to what it was asked
    14   judged machine gpu-1 evict
    20   moves at step 41           the job does, from now on (again: no more)
    30   outage                     the loop over all jobs sees one that explains a job that stands still (again: it is over)
    40   killed                     a new engine has the store's incidents; the outage it has not seen yet
    50   sees                       now it has
    ----
    12   open hang …                what came out, with the instant

Between two lines time passes: the engine is given a Tick whenever one is due, and every ten seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from analyzers.incidents import rounds
from analyzers.incidents import step as engine
from analyzers.incidents.fleet import Fleet, FleetReport, SharedIncident
from analyzers.incidents.fleet.node_activity import NodeActivity
from analyzers.incidents.fleet.shared_incident import symptom_key
from analyzers.incidents.job_views import JobView
from analyzers.incidents.messages import (
    Ask,
    Close,
    EngineEvent,
    EngineInstruction,
    EngineTick,
    Judge,
    Judged,
    Merge,
    Open,
    Publish,
    Received,
    Withdrawn,
)
from analyzers.incidents.state import EngineState
from analyzers.knowledge import Knowledge
from analyzers.model.incident import Incident, IncidentKind, Symptom
from analyzers.model.verdict import Action, Culprit, Verdict
from collectors.records import CommandResult, Members, Placement, Record

JOB = "llama-8b"
START_AT = 1_000_000.0


class Script:
    """The engine with scripted detectors, and the transcript of what it said."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.state, self.now, self.said = EngineState(Knowledge()), 0.0, list[str]()
        self.seen: dict[tuple[str, str], Symptom] = {}
        self.over: str | None = None
        self.outage = Outage()
        self.state.fleet = self.outage
        self.nodes: tuple[str, ...] = ()
        self.cuts: list[Judge] = []
        patch.setattr(engine, "find_symptoms", lambda _view, _now: list(self.seen.values()))
        patch.setattr(engine, "ended_because", lambda _view, _incident, _now: self.over)

    def play(self, text: str) -> list[str]:
        """Perform every line; return the transcript."""
        for line in text.splitlines():
            if line.strip() and not line.startswith("#"):
                at, verb, *words = line.split()
                self._pass(float(at))
                getattr(self, f"do_{verb}")(*words)
                self._tick()
        return self.said

    def _pass(self, until: float) -> None:
        while (at := self._next()) <= until:
            self.now = max(at, self.now + 0.1)
            self._give(EngineTick())
        self.now = max(self.now, until)

    def _next(self) -> float:
        soon = engine.next_due_at(self.state)
        return min(self.state.ticked_at + engine.TICK_SECONDS, soon if soon is not None else 1e18) - START_AT

    def _tick(self) -> None:
        self._give(EngineTick())

    def _give(self, event: EngineEvent) -> None:
        _, instructions = engine.step(self.state, event, START_AT + self.now)
        for instruction in instructions:
            if isinstance(instruction, Judge):
                self.cuts.append(instruction)
            self.said.append(f"{self.now:<5g}{reported(instruction)}")

    def _batch(self, node: str, *records: Record) -> None:
        at = START_AT + self.now
        self._give(Received(sequence=self.state.sequence + 1, received_at=at, node=node, records=records, sent_at=at))

    def do_nodes(self, *nodes: str) -> None:
        """Let each node tell that it runs a rank of the job."""
        self.nodes = nodes
        for rank, node in enumerate(nodes):
            ranks = Members.of([rank])
            self._batch(node, Placement(job=JOB, attempt=1, ranks=ranks, nodes=(node,), world_size=len(nodes)))

    def do_symptom(self, kind: str, detector: str) -> None:
        """Let a detector see something from now on, or no more."""
        if self.seen.pop((kind, detector), None) is None:
            at = START_AT + self.now
            self.seen[kind, detector] = Symptom(
                kind=cast("IncidentKind", kind), detector=detector, at=at, text=f"{detector} since {self.now:g}"
            )
        self.do_tells(self.nodes[0])

    def do_tells(self, node: str) -> None:
        """Let a node tell of something that concerns the job."""
        self._batch(node, Placement(job=JOB, attempt=1, ranks=Members.of([self.nodes.index(node)]), nodes=(node,)))

    def do_answers(self, *nodes: str) -> None:
        """Let these nodes answer what they were asked."""
        for node in nodes:
            self._batch(node, *(CommandResult(command="c", verb=verb) for verb, _ in rounds.ASKED))

    def do_judged(self, cause: str, culprit: str, action: str) -> None:
        """Let the oldest judgement end."""
        asked = self.cuts.pop(0)
        named = (
            () if culprit == "nobody" else (Culprit(root="r1", kind="node", id=culprit, ranks=(0,), probability=0.9),)
        )
        act = Action(kind=action, nodes=tuple(one.id for one in named) if action == "evict" else ())
        verdict = Verdict(symptom="hang", cause=cause, abstained=not named, culprits=named, action=act)
        self._give(Judged(incident=asked.incident, cut=asked.cut, verdict=verdict))

    def do_moves(self, *words: str) -> None:
        """Let the job move again, or stand still."""
        self.over = " ".join(["the job moves", *words]) if self.over is None else None
        self.do_tells(self.nodes[0])

    def do_outage(self) -> None:
        """Let an outage begin, or end."""
        self.outage.turn(START_AT + self.now, self.nodes)

    def do_sees(self) -> None:
        """Let a new engine find the outage that was reported to it."""
        self.outage.seen = True

    def do_withdrawn(self) -> None:
        """Let somebody else close the incident."""
        (id,) = self.state.incidents
        self._give(Withdrawn(incident=id))

    def do_killed(self) -> None:
        """Kill the engine: a new one has the store's incidents, and observes the log again."""
        kept: list[tuple[Incident, tuple[Record, ...]]] = [
            (replace(one), self.state.contexts.get(one.id, ())) for one in self.state.incidents.values()
        ]
        jobs, sequence = self.state.jobs, self.state.sequence
        self.state = EngineState(
            Knowledge(), sequence=sequence, now=START_AT + self.now, jobs=jobs, evidence=self.state.evidence
        )
        self.cuts.clear()
        self.state.fleet = self.outage
        self.outage.seen = False
        engine.restore_incidents(self.state, kept)


class Outage(Fleet):
    """The loop over all jobs, with a scripted outage that explains any job that stands still."""

    def __init__(self) -> None:
        super().__init__(Knowledge())
        self.now: SharedIncident | None = None
        self.ended: dict[str, str] = {}
        self.seen = True

    def turn(self, at: float, nodes: tuple[str, ...]) -> None:
        """Begin at an instant, or end."""
        if self.now is not None:
            self.ended, self.now = {self.now.key: "all agents report again"}, None
            return
        symptom = Symptom(kind="infrastructure", detector="silent_together", at=at, text="silent", nodes=nodes)
        jobs = frozenset({JOB})
        verdict = Verdict(symptom="unknown", cause="network", abstained=False)
        self.now = SharedIncident(
            key=symptom_key(symptom), symptom=symptom, verdict=verdict, nodes=frozenset(nodes), jobs=jobs, held=jobs,
            explained=frozenset({"no_progress"}), explained_jobs=jobs,
        )  # fmt: skip

    def look(self, views: Mapping[Any, JobView], nodes: Mapping[str, NodeActivity], now: float) -> FleetReport:
        """Report it, where it is seen."""
        del views, nodes, now
        ended, self.ended = self.ended, {}
        return FleetReport(shared=(self.now,) if self.now is not None and self.seen else (), over=ended)


def reported(instruction: EngineInstruction) -> str:
    """Return an instruction as a line."""
    match instruction:
        case Open(incident=one):
            return f"open {one.kind} on {' '.join(one.nodes)}: {one.symptoms[0].text}"
        case Merge(symptom=symptom):
            return f"merge {symptom.kind}: {symptom.text}"
        case Ask(nodes=nodes, verb=verb, arguments=arguments):
            return f"ask {verb} {arguments.get('collector', '')} of {' '.join(nodes)}".replace("  ", " ")
        case Judge(cut=cut, records=records):
            return f"judge {len(records)} records, looks {cut.looks}"
        case Publish(version=version, verdict=verdict):
            named = " ".join(one.id for one in verdict.culprits) or "nobody"
            return f"publish {version}: {verdict.cause} {named} {verdict.action.kind}"
        case Close(because=because):
            return f"close: {because}"
    return str(instruction)


def split(text: str) -> tuple[str, list[str]]:
    """Return the script and the transcript that is expected."""
    script, _, expected = text.partition("----\n")
    return script, expected.splitlines()


def play(path: Path, patch: pytest.MonkeyPatch, *, rewrite: bool) -> Iterator[tuple[list[str], list[str]]]:
    """Yield what is said and what is expected, where they differ; ``rewrite`` writes down what is said."""
    script, expected = split(path.read_text(encoding="utf-8"))
    said = Script(patch).play(script)
    if rewrite:
        path.write_text(f"{script}----\n" + "".join(f"{line}\n" for line in said), encoding="utf-8")
    else:
        yield said, expected
