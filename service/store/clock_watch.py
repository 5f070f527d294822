"""Which time the service holds: decided at its start by stored evidence, and watched while it runs.

At a start the held time goes on with the machine's boot time, where a service ran since the same boot. After a boot it is the
wall clock where the time since the newest evidence is a plausible downtime; otherwise the time is *in doubt*, and never before
the evidence, so that nothing is dated older than it is. Later a difference between the wall clock and the held time ends when

    the clocks of the nodes agree with the wall clock   for 10 s backwards, for 10 min forwards (2 min after a start or in doubt)
    in doubt: the wall clock becomes plausible, or the clocks of the nodes agree with the held time for 2 min

"The nodes" are half of those that were reporting before (``node_clocks``), and most of those that report now. Where fewer
report, or none, what those agree with that do report, or else the wall clock, is believed after a day without a change.

Until then nothing is deleted for its age. In doubt nothing expires either, no policy approves and nothing can be claimed; an
alarm is raised, and /readyz has the reason.
"""

from __future__ import annotations

import logging
import socket
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.clock import LEASH_SECONDS, PROCESS, ProcessClock
from service.store import timeline
from service.store.database import Database
from service.store.future_dates import shift_back_future
from service.store.models import Alarm, Batch, ServiceClock
from service.store.node_clocks import VOTE_SECONDS, find_voters, read_votes
from service.store.upserts import upsert

LOOK_SECONDS = 5.0
DOWNTIME_SECONDS = 3_600.0  # a longer one is confirmed by other clocks before anything is deleted
BACK_SECONDS, START_SECONDS, FORWARD_SECONDS, STEADY_SECONDS = 10.0, 120.0, 600.0, 86_400.0
CLOSE_SECONDS = 30.0  # other clocks that are so close confirm the held time
WRITTEN_SECONDS = 30.0
UNCONFIRMED_SECONDS = 2 * VOTE_SECONDS + WRITTEN_SECONDS  # before a boot: the time was behind then, or no node reported
MOST_STEPS = 256
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

    What came between the last instant that the nodes' clocks confirmed and a step forward is dated too early by the step.
    """
    before, rows = at - seconds, session.scalars(select(ServiceClock)).all()
    before -= sum(row.step_seconds for row in rows if row.set_at is not None and row.set_at > before)
    steps = [step for row in rows for step in row.steps if step[1] > before]
    return min([before, *(max(before - step, min(before, since)) for since, _, step in steps)])


class ClockWatch:
    """The clock of one service. ``open`` comes before anything is dated, ``look`` every five seconds."""

    def __init__(self, database: Database, clock: ProcessClock = PROCESS) -> None:
        self._database, self._clock, self._boot_id = database, clock, boot_id()
        self._evidence: float | None = None  # the newest stored instant at the start, less boot time
        self._set_at: float | None = None
        self._step_seconds = 0.0
        self._steps: list[tuple[float, float, float]] = []
        self._agreed_at: float | None = None  # of the held time
        self._voters: frozenset[str] | None = None  # None: not needed
        self._fresh = False  # the clocks have been apart since the start: a downtime, or a clock that was set meanwhile
        self._agrees_since = clock.boot()  # of boot time
        self._apart_seconds = 0.0
        self._agreed: tuple[float, bool] | None = (
            None  # how far the agreed time is ahead; whether by half of the voters
        )
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
            sure_at = max((row.at for row in rows if not row.doubt), default=known)
            self._voters = None if sure_at is None else find_voters(session, sure_at)
        self._agreed_at = max((row.agreed_at for row in rows if row.agreed_at is not None), default=None)
        own = next((row for row in rows if row.boot_id == self._boot_id and not row.doubt), None)
        self._evidence = None if known is None else known - boot
        if own is not None:
            self._set_at, self._step_seconds, self._steps = own.set_at, own.step_seconds, list(own.steps)
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
        confirmed_at = known if own is not None or self._agreed_at is None else self._agreed_at
        if known is not None and confirmed_at is not None and known - confirmed_at > UNCONFIRMED_SECONDS:
            self._count_step(
                self._clock.now() - known
            )  # includes the time that the machine was off, which is not known
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
            self._fresh, self._agreed, self._voters = False, None, None
            if boot - self._confirmed_at >= VOTE_SECONDS:
                self._confirmed_at = boot
                if self._ask((0.0,), CLOSE_SECONDS) == (0.0, True):
                    self._clock.confirm()
                    self._agreed_at = self._clock.now()
                self._voters = None
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
            self._apart_seconds, self._agreed = ahead, None
        before, self._agreed = self._agreed, self._ask((ahead, 0.0), LEASH_SECONDS)
        if self._agreed is None:
            return
        agreed, has_quorum = self._agreed
        if before is None or before[1] != has_quorum or abs(before[0] - agreed) > LEASH_SECONDS:
            self._agrees_since = boot
        if not has_quorum:
            waits = STEADY_SECONDS
        elif agreed < -LEASH_SECONDS:
            waits = BACK_SECONDS
        else:
            waits = START_SECONDS if self._fresh or self._clock.doubt else FORWARD_SECONDS
        if boot - self._agrees_since < waits:
            return
        if abs(agreed - ahead) <= LEASH_SECONDS:
            self._adopt(ahead)
        else:
            self._clock.doubt = ""

    def _adopt(self, ahead: float) -> None:
        """Hold the wall clock from now on. After a step forward what was dated since the last confirmation is too early."""
        _log.warning("clock_adopted by_seconds=%.1f doubt=%r", ahead, self._clock.doubt)
        self._clock.hold(self._clock.wall() - self._clock.boot())
        self._count_step(ahead)
        self._fresh, self._written_at = False, float("-inf")
        if ahead < -LEASH_SECONDS:
            shift_back_future(self._database)

    def _count_step(self, seconds: float) -> None:
        """Take what was dated since the last confirmation for as much later than its date."""
        if self._agreed_at is None or seconds <= LEASH_SECONDS:
            self._set_at = self._clock.now() if seconds > LEASH_SECONDS else self._set_at
            self._step_seconds = max(0.0, self._step_seconds + seconds)
            return
        since = self._agreed_at
        if self._steps and self._steps[-1][1] > since:  # nothing was confirmed in between
            earlier = self._steps.pop()
            since, seconds = min(since, earlier[0]), seconds + earlier[2]
        self._steps = [*self._steps[1 - MOST_STEPS :], (since, self._clock.now(), seconds)]

    def _ask(self, candidates: tuple[float, ...], within_seconds: float) -> tuple[float, bool] | None:
        """Return on which candidate, in seconds ahead of the held time, most clocks agree, and whether half of the voters do.

        None: they agree on none. Where no clock is known: on the first, without a quorum.
        """
        at = self._clock.now()
        with self._database.session() as session:
            if self._voters is None:
                self._voters = find_voters(session, at)
            all_votes = read_votes(session, at, self._boot_id)
        votes = [vote for node, vote in all_votes.items() if node in self._voters] or [*all_votes.values()]
        for one in candidates:
            agree = sum(abs(vote - one) <= within_seconds for vote in votes)
            if 2 * agree > len(votes) or not votes:
                known = not self._voters.isdisjoint(all_votes)
                return one, known and 2 * agree >= len(self._voters)
        return None

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
            "set_at": self._set_at, "step_seconds": self._step_seconds, "steps": self._steps,
            "agreed_at": self._agreed_at,
        }  # fmt: skip
        with self._database.transaction() as session:
            upsert(session, ServiceClock, [row])
            _write_alarm(session, state, at)
        if self._says is None or (held[1], says[1]) != (self._says[0][1], self._says[1]):
            level = logging.INFO if self._says is None and not state else logging.WARNING  # a start is no trouble
            _log.log(level, "clock state=%r", state or "sure")
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
