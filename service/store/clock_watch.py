"""Which time the service holds: decided at its start by stored evidence, and watched while it runs.

At a start the held time goes on with the machine's boot time, where a service ran since the same boot. After a boot it is the
wall clock where the time since the newest evidence is a plausible downtime; otherwise the time is *in doubt*, and never before
the evidence, so that nothing is dated older than it is. Later a difference between the wall clock and the held time ends when

    the clocks of the reporting nodes agree with the wall clock   for 10 s backwards, for 10 min forwards (2 min after a start)
    in doubt: the wall clock becomes plausible, or the nodes' clocks agree with the held time
    no node reports, and the difference has stayed the same for a day

Until then nothing is deleted for its age. In doubt nothing expires either, no policy approves and nothing can be claimed; an
alarm is raised, and /readyz has the reason.
"""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from statistics import median

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from service.clock import LEASH_SECONDS, PROCESS, ProcessClock
from service.store import timeline
from service.store.database import Database
from service.store.future_dates import shift_back_future
from service.store.models import Alarm, Batch, Node, ServiceClock
from service.store.upserts import upsert

LOOK_SECONDS = 5.0
DOWNTIME_SECONDS = 3_600.0  # a longer one is confirmed by other clocks before anything is deleted
BACK_SECONDS, START_SECONDS, FORWARD_SECONDS, STEADY_SECONDS = 10.0, 120.0, 600.0, 86_400.0
VOTE_SECONDS = 90.0  # a node's row is written every 30 s
MOST_VOTES = 20_000
CLOSE_SECONDS = 30.0  # other clocks that are so close confirm the held time
WRITTEN_SECONDS = 30.0
KIND = "service_clock"  # of the alarm
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_log = logging.getLogger(__name__)


def boot_id() -> str:
    """Return the id of the machine's boot; empty where the system has none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()[:64]
    except OSError:
        return ""


def follow(database: Database, clock: ProcessClock = PROCESS) -> None:
    """Hold the time that the service of this machine holds: called by its engine, which is a process of its own."""
    with database.session() as session:
        row = session.get(ServiceClock, boot_id())
    if row is not None and clock.held_as != (row.offset_seconds, row.doubt):
        clock.hold(row.offset_seconds, row.doubt)


def oldest_kept_at(session: Session, at: float, seconds: float) -> float:
    """Return the instant before which what is dated is older than ``seconds``.

    After a clock was set forward, what came before is dated too early by the step.
    """
    newest = select(ServiceClock).where(ServiceClock.set_at.is_not(None)).order_by(ServiceClock.set_at.desc()).limit(1)
    step, before = session.scalars(newest).first(), at - seconds
    if step is None or step.set_at is None or before >= step.set_at:
        return before
    return before - step.step_seconds


class ClockWatch:
    """The clock of one service. ``open`` comes before anything is dated, ``look`` every five seconds."""

    def __init__(self, database: Database, clock: ProcessClock = PROCESS) -> None:
        self._database, self._clock, self._boot_id = database, clock, boot_id()
        self._evidence: float | None = None  # the newest stored instant at the start, less boot time
        self._set_at: float | None = None
        self._step_seconds = 0.0
        self._fresh = False  # the clocks have been apart since the start: a downtime, or a clock that was set meanwhile
        self._agrees_since = self._apart_since = clock.boot()  # of boot time
        self._apart_seconds = 0.0
        self._written_at = self._confirmed_at = float("-inf")
        self._says: tuple[tuple[float, str], bool] | None = None  # as it was written last

    @property
    def state(self) -> str:
        """Say what is wrong, in one sentence; empty: nothing is."""
        if self._clock.doubt:
            return self._clock.doubt
        if not self._clock.strayed:
            return ""
        return (
            f"the wall clock of {socket.gethostname()} is {self._clock.ahead_seconds:+,.0f} s from the service's time, which goes"
            " on with the machine's uptime: nothing is deleted for its age until both agree; check the machine's time service"
        )

    def open(self) -> None:
        """Decide which time to hold."""
        wall, boot = self._clock.wall(), self._clock.boot()
        with self._database.session() as session:
            rows = session.scalars(select(ServiceClock)).all()
            newest = select(Batch.received_at).order_by(Batch.sequence.desc()).limit(1)
            known = max((row.at for row in rows), default=None) or session.scalar(newest)
        own = next((row for row in rows if row.boot_id == self._boot_id and not row.doubt), None)
        self._evidence = None if known is None else known - boot
        if own is not None:
            self._set_at, self._step_seconds = own.set_at, own.step_seconds
        if own is not None and self._goes_on(own.offset_seconds, wall, boot):
            self._clock.hold(own.offset_seconds)
        elif known is None or self._is_plausible(wall, boot):
            self._clock.hold(wall - boot)
        else:
            doubt = (
                f"the wall clock of {socket.gethostname()} is {wall - known:+,.0f} s from the newest stored instant: nothing"
                " is deleted for its age, approved or claimed until the nodes' clocks confirm the time"
            )
            self._clock.hold(max(wall, known) - boot, doubt)
        self._fresh = self._clock.strayed
        self.look()

    def look(self) -> None:
        """Compare the clocks, adopt what is confirmed, and write and report the result."""
        boot, ahead = self._clock.boot(), self._clock.ahead_seconds
        if self._clock.doubt and self._is_plausible(self._clock.wall(), boot):
            self._adopt(ahead)
        elif self._clock.doubt or self._clock.strayed:
            self._settle(boot, ahead)
        else:
            self._fresh, self._apart_since, self._agrees_since = False, boot, boot
            if boot - self._confirmed_at >= VOTE_SECONDS:
                self._confirmed_at = boot
                votes = self._votes()
                if votes and abs(median(votes)) <= CLOSE_SECONDS:
                    self._clock.confirm()
        self._report(boot)

    def _goes_on(self, offset: float, wall: float, boot: float) -> bool:
        """Whether a time that was held since the same boot goes on: it is not before the evidence, and nothing is likelier."""
        assert self._evidence is not None
        if offset - self._evidence < -LEASH_SECONDS:
            return False
        agrees = abs(wall - boot - offset) <= LEASH_SECONDS
        return agrees or offset - self._evidence <= DOWNTIME_SECONDS or not self._is_plausible(wall, boot)

    def _is_plausible(self, wall: float, boot: float) -> bool:
        """Whether the wall clock is later than the evidence by no more than an ordinary downtime."""
        return self._evidence is None or -LEASH_SECONDS <= wall - boot - self._evidence <= DOWNTIME_SECONDS

    def _settle(self, boot: float, ahead: float) -> None:
        if abs(ahead - self._apart_seconds) > LEASH_SECONDS:
            self._apart_seconds, self._apart_since, self._agrees_since = ahead, boot, boot
        votes = self._votes()
        if not votes:
            self._agrees_since = boot
            if boot - self._apart_since >= STEADY_SECONDS:
                self._adopt(ahead)
        elif abs(median(votes) - ahead) <= LEASH_SECONDS:
            forward = START_SECONDS if self._fresh else FORWARD_SECONDS
            waits = forward if ahead > LEASH_SECONDS else BACK_SECONDS
            if boot - self._agrees_since >= waits:
                self._adopt(ahead)
        else:
            self._agrees_since = boot
            if abs(median(votes)) <= LEASH_SECONDS:
                self._clock.doubt = ""

    def _adopt(self, ahead: float) -> None:
        """Hold the wall clock from now on. A step forward while the service ran makes older dates too early."""
        if ahead < 0 or not self._fresh:
            self._step_seconds = max(0.0, self._step_seconds + ahead)
        if ahead > LEASH_SECONDS and not self._fresh:
            self._set_at = self._clock.wall()
        _log.warning("clock_adopted by_seconds=%.1f doubt=%r", ahead, self._clock.doubt)
        self._clock.hold(self._clock.wall() - self._clock.boot())
        self._fresh, self._written_at = False, float("-inf")
        if ahead < -LEASH_SECONDS:
            shift_back_future(self._database)

    def _votes(self) -> list[float]:
        """Return how far the clocks of the reporting nodes are ahead of the held time; this machine's own have no say."""
        at = self._clock.now()
        recent = (Node.last_seen_at >= at - VOTE_SECONDS, Node.last_seen_at <= at + LOOK_SECONDS)
        other = or_(Node.boot_id.is_(None), Node.boot_id != self._boot_id)
        with self._database.session() as session:
            found = select(Node.clock_offset_seconds).where(*recent, other, Node.clock_offset_seconds.is_not(None))
            return [vote for vote in session.scalars(found.limit(MOST_VOTES)) if vote is not None]

    def _report(self, boot: float) -> None:
        """Write the row that the engine follows and a later start goes on from, and the alarm; log a change."""
        held = self._clock.held_as or (0.0, "")
        says = (held, self._clock.strayed)
        if says == self._says and boot - self._written_at < WRITTEN_SECONDS:
            return
        at, state = self._clock.now(), self.state
        known_at = at if not held[1] or self._evidence is None else self._evidence + boot
        row = {
            "boot_id": self._boot_id, "offset_seconds": held[0], "at": known_at, "doubt": held[1][:1_000],
            "set_at": self._set_at, "step_seconds": self._step_seconds,
        }  # fmt: skip
        with self._database.transaction() as session:
            upsert(session, ServiceClock, [row])
            _write_alarm(session, state, at)
        if self._says is None or (held[1], says[1]) != (self._says[0][1], self._says[1]):
            _log.warning("clock state=%r", state or "sure")
        self._written_at, self._says = boot, says


def _write_alarm(session: Session, state: str, at: float) -> None:
    """Raise or end the alarm of this machine's clock; another service on the same database has its own."""
    host = [socket.gethostname()]
    raised = session.scalars(select(Alarm).where(Alarm.kind == KIND, Alarm.over_at.is_(None)))
    own = next((alarm for alarm in raised if alarm.nodes == host), None)
    if own is not None:
        own.text, own.over_at = state[:1_000] or own.text, None if state else at
    elif state:
        session.add(Alarm(kind=KIND, job=None, text=state[:1_000], nodes=host, raised_at=at, over_at=None))
    session.flush()
    if bool(state) != (own is not None):
        details = {"alarm": KIND, "text": state or "the clocks agree again", "nodes": 1}
        timeline.add(session, at, "alarm" if state else "alarm_over", None, None, details)
