"""The service's engine over a simulated fault, killed again and again: one incident, the same answer, and a replay's bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import select

from analyzers.incidents.judgement import judge_cut
from analyzers.incidents.messages import Judge, Judged, Received
from analyzers.incidents.replay import ReplayCase, rejudge_cuts
from analyzers.model.incident import Cut
from analyzers.model.verdict import to_json
from collectors.records import block
from service.engine.driver import Driver
from service.engine.numbers import Numbers
from service.engine.resume import received_event
from service.store.database import Database
from service.store.leases import Lease
from service.store.log import Incoming, Log
from service.store.models import Command, Incident, Verdict
from simulation.live.fleet import Fleet
from simulation.live.scene_list import BEGAN_AT, Scene, play
from tests.support.simulated_fleet import knowledge

pytestmark = pytest.mark.system


SEED = 1
LIVES_SECONDS = 7.0  # of an engine, until it is killed
BEFORE_SECONDS, AFTER_SECONDS = 30.0, 150.0  # of the fault: when engines begin to be killed, and when the story ends


class Inline:
    """Judges that judge in this process, at the next turn."""

    def __init__(self) -> None:
        self.count, self.seconds_total, self.pipes = 0, 0.0, list[int]()
        self._waiting: dict[str, Judge] = {}

    def ask(self, judge: Judge) -> None:
        """Take it."""
        self._waiting[judge.incident] = judge

    def forget(self, incident: str) -> None:
        """Judge it no more."""
        self._waiting.pop(incident, None)

    def turn(self) -> Iterator[Judged]:
        """Judge all."""
        waiting, self._waiting = list(self._waiting.values()), {}
        for judge in waiting:
            yield judge_cut(judge, knowledge())


class Story:
    """A scene's batches in a store, and an engine: a turn a second, and around the fault killed every ``lives_seconds``."""

    def __init__(self, folder: Path, scene: Scene, lives_seconds: float) -> None:
        self.database = Database(f"sqlite:///{folder / 'store.db'}")
        self.database.migrate()
        self.now, self._lives_seconds, self._asked = BEGAN_AT, lives_seconds, set[str]()
        self.log, self._scene = Log(self.database), scene
        self._fleet = Fleet([scene.job], SEED, BEGAN_AT)

    def run(self) -> None:
        """Play the scene, to a while after its fault."""
        driver, begun_at = self._engine(), self.now
        broke_at = self._scene.truth.at
        while self.now < min(self._scene.until, broke_at + AFTER_SECONDS):
            self.now += 1.0
            self._receive()
            driver.turn()
            self._answer()
            if self.now - begun_at >= self._lives_seconds and self.now >= broke_at - BEFORE_SECONDS:
                driver, begun_at = self._engine(), self.now

    def rows(self, model: Any) -> list[Any]:
        """Return a table."""
        with self.database.session() as session:
            return list(session.scalars(select(model).order_by(*model.__table__.primary_key.columns)))

    def answers(self) -> list[tuple[Any, ...]]:
        """Return what was said in the end of each incident."""
        return sorted((one.job, one.attempt, one.cause, one.action, str(one.culprits)) for one in self.rows(Incident))

    def batches(self) -> Iterator[Received]:
        """Yield the whole log."""
        after = 0
        while page := self.log.read_from(after, 256):
            after = page[-1].sequence
            yield from (received_event(one) for one in page)

    def _engine(self) -> Driver:
        lease = Lease(self.database, "engine", "a", lambda: self.now)
        assert lease.take()
        judges: Any = Inline()
        return Driver(self.database, lease, knowledge(), judges, Numbers(), lambda: self.now)

    def _receive(self) -> None:
        new: list[Incoming] = []
        while self._fleet.next_at <= self.now:
            if (one := self._fleet.receive()) is not None:
                data = block.encode(one.records)
                id = f"{one.sequence}"
                new.append(Incoming(one.node, id, one.sent_at, one.received_at, len(one.records), data))
        if new:
            self.log.append(new)

    def _answer(self) -> None:
        for command in self.rows(Command):
            if command.id not in self._asked:
                self._asked.add(command.id)
                self._fleet.ask(self.now, [command.node], command.verb, command.id)


@pytest.mark.parametrize("kind", ["spin", "exception"])
def test_kills_change_no_answer_and_no_byte(tmp_path: Path, kind: str) -> None:
    """What an engine says that is killed all the time is what one says that lives, and each version is judged again alike."""
    scene = play(kind, SEED)
    (tmp_path / "lived").mkdir()
    lived = Story(tmp_path / "lived", scene, float("inf"))
    lived.run()
    killed = Story(tmp_path, play(kind, SEED), LIVES_SECONDS)
    killed.run()

    assert lived.answers()
    assert killed.answers() == lived.answers()
    for story in (lived, killed):
        for incident in story.rows(Incident):
            check_replayed(story, incident)


def check_replayed(story: Story, incident: Incident) -> None:
    """Each version of an incident's verdict comes out of the log again, byte for byte."""
    versions = [one for one in story.rows(Verdict) if one.incident == incident.id]
    context = tuple(block.decode(incident.context)) if incident.context else ()
    case = ReplayCase(incident.id, incident.job, incident.attempt, tuple(incident.state["nodes"]), context)
    cuts = [msgspec.convert(one.cut, Cut) for one in versions]
    again = {(one.cut.through, one.cut.at): to_json(one.verdict) for one in
             rejudge_cuts(case, cuts, story.batches(), knowledge())}  # fmt: skip
    for one, cut in zip(versions, cuts, strict=True):
        assert again[cut.through, cut.at] == one.document, f"version {one.version}"
