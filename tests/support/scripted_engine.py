"""The engine with scripted detectors and a scripted judgement, in this process or as one of its own.

A job whose name begins with "hung" shows a symptom as soon as anything is reported of it; one whose attempt 2 is reported moves
again. A judgement names the node of the first placement that it sees. ``python -m tests.support.scripted_engine OWNER`` is what
``python -m service.engine OWNER`` is, with all that, and with shorter waits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from analyzers.incidents import rounds
from analyzers.incidents import step as deciding
from analyzers.incidents.job_views import JobView
from analyzers.incidents.messages import Judge, Judged
from analyzers.knowledge import Knowledge
from analyzers.model.incident import Incident, Symptom
from analyzers.model.verdict import Action, Culprit, Verdict
from collectors.records import CommandResult, Members, Placement, Record, block
from service.engine import driver, judge_child
from service.store import leases
from service.store.database import Database
from service.store.log import Incoming, Log

REPOSITORY = Path(__file__).resolve().parents[2]


def symptoms(view: JobView, now: float) -> Iterator[Symptom]:
    """Yield a hang of each job whose name says so."""
    if view.job.startswith("hung"):
        at = min(view.first_at, now)
        yield Symptom(kind="hang", detector="no_progress", at=at, text="no step since 12 s", ranks=(0,))


def conclude(asked: Judge, knowledge: Knowledge, running: Callable[[str], None] = lambda _name: None) -> Judged:
    """Name the node of the first placement."""
    running("scripted")
    placed = next(record for record in asked.records if isinstance(record, Placement))
    culprit = Culprit(root="r1", kind="node", id=placed.nodes[0], ranks=(0,), probability=0.97, why="it stands still")
    action = Action(kind="evict", nodes=(placed.nodes[0],), why="its process is stopped")
    verdict = Verdict(
        symptom="hang", cause="machine", abstained=False, version="0", knowledge=knowledge.hash, job=placed.job,
        attempt=asked.attempt, culprits=(culprit,), action=action,
    )  # fmt: skip
    return Judged(incident=asked.incident, cut=asked.cut, verdict=verdict, claims=({"analyzer": "scripted"},))


class Over:
    """Whether jobs move again; a test sets the sentence."""

    def __init__(self) -> None:
        self.because: str | None = None

    def __call__(self, _view: JobView, _incident: Incident, _now: float) -> str | None:
        """Return the sentence."""
        return self.because

    def recovered(self, view: JobView, incident: Incident, now: float) -> str | None:
        """Return the same sentence where it says that the very attempt goes on."""
        because = self(view, incident, now)
        return because if because is not None and "moves again" in because else None


def script(patch: pytest.MonkeyPatch) -> Over:
    """Put the scripted parts in the places of the real ones; return what says that jobs move again."""
    over = Over()
    patch.setattr(deciding, "find_symptoms", symptoms)
    patch.setattr(deciding, "ended_because", over)
    patch.setattr(deciding, "recovered_because", over.recovered)
    patch.setattr(judge_child, "judge_cut", conclude)
    return over


class Fleet:
    """Nodes that tell the log of jobs, each node a rank."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._log, self._clock, self._sent = Log(database), clock, 0

    def tell(self, node: str, *records: Record) -> int:
        """Append a batch; return its number."""
        return self.tell_bytes(node, block.encode(records, pack=True), len(records))

    def tell_bytes(self, node: str, data: bytes, records: int = 1) -> int:
        """Append what should be a block."""
        self._sent += 1
        at = self._clock()
        (appended,) = self._log.append([Incoming(node, f"{node}-{self._sent}", at, at, records, data)])
        return appended.sequence

    def run(self, job: str, nodes: Sequence[str], attempt: int = 1) -> None:
        """Let each node tell that it runs a rank of the job."""
        for rank, node in enumerate(nodes):
            self.tell(node, placed(job, rank, node, len(nodes), attempt))

    def answer(self, nodes: Sequence[str]) -> None:
        """Let each node answer what it was asked."""
        for node in nodes:
            self.tell(node, *(CommandResult(command="c", verb=verb) for verb, _ in rounds.ASKED))


def placed(job: str, rank: int, node: str, size: int, attempt: int = 1) -> Placement:
    """Return the placement of one rank."""
    return Placement(job=job, attempt=attempt, ranks=Members.of([rank]), nodes=(node,), world_size=size)


def main(owner: str, held_seconds: float) -> None:
    """Be an engine process, scripted and in a hurry."""
    from service.engine.process import run
    from service.logs import write_logs
    from service.settings import load

    patch: Any = pytest.MonkeyPatch()
    script(patch)
    patch.setattr(rounds, "ANSWER_SECONDS", 0.5)
    patch.setattr(rounds, "LATE_ANSWER_SECONDS", 0.5)
    patch.setattr(leases, "HELD_SECONDS", held_seconds)
    patch.setattr(driver, "RENEW_SECONDS", held_seconds / 3)
    settings = load()
    write_logs(settings)
    run(settings, owner)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
