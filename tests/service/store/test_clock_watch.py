"""Which time the service holds: at a start by stored evidence, later by other clocks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import select

from service.clock import ProcessClock
from service.store import clock_watch
from service.store.clock_watch import (
    BACK_SECONDS,
    FORWARD_SECONDS,
    START_SECONDS,
    STEADY_SECONDS,
    ClockWatch,
    follow,
    oldest_kept_at,
)
from service.store.database import Database
from service.store.models import Alarm, Node, Token
from service.store.upserts import upsert
from tests.support.postgres import SQLITE_FIRST

pytestmark = pytest.mark.parametrize("url", SQLITE_FIRST, indirect=True)

TRUTH, DAY = 1_800_000_000.0, 86_400.0


class Machine:
    """A machine whose clocks the test sets, and the nodes that report to it."""

    def __init__(self, database: Database) -> None:
        self.database, self.truth, self.error, self.boots, self.nodes = database, TRUTH, 0.0, 1, dict[str, float]()
        self.booted, self.first_seen = TRUTH - 1_000.0, dict[str, float]()
        self.start()

    def start(self) -> None:
        """Start a service that remembers nothing."""
        self.clock = ProcessClock(lambda: self.truth + self.error, lambda: self.truth - self.booted)
        self.watch = ClockWatch(self.database, self.clock)
        self.watch.open()

    def boot(self, off_seconds: float) -> None:
        """Cut the power; start the machine and the service some time later."""
        self.truth += off_seconds
        self.booted, self.boots = self.truth - 20.0, self.boots + 1
        self.start()

    def run(self, seconds: float, step: float = 5.0) -> None:
        """Let time pass while the nodes report and the watch looks."""
        for _ in range(round(seconds / step)):
            self.truth += step
            at = self.clock.now()
            rows = [
                {
                    "name": name, "first_seen_at": self.first_seen.setdefault(name, at), "last_seen_at": at,
                    "clock_offset_seconds": self.truth + error - at, "boot_id": f"boot-{name}",
                }
                for name, error in self.nodes.items()
            ]  # fmt: skip
            with self.database.transaction() as session:
                upsert(session, Node, rows)
            self.watch.look()

    @property
    def off(self) -> float:
        """Return by how much the held time is ahead of the true one."""
        return round(self.clock.now() - self.truth)


def bind(machine: Machine, nodes: list[str]) -> None:
    """Give nodes tokens of their own."""
    with machine.database.transaction() as session:
        for node in nodes:
            made_at = machine.clock.now()
            session.add(Token(id=node, hash=node, name=node, scopes=["ingest"], node=node, made_at=made_at))


@pytest.fixture
def machine(database: Database, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a machine with a boot id of its own each boot."""
    boots: Callable[[], str] = lambda: f"boot-of-service-{made.boots if made else 1}"  # noqa: E731
    made: Machine | None = None
    monkeypatch.setattr(clock_watch, "boot_id", boots)
    made = Machine(database)
    return made


@pytest.mark.parametrize("error", [7_200.0, -7_200.0, DAY, 20 * DAY, -20 * DAY])
def test_a_set_wall_clock_is_not_followed(machine: Machine, error: float) -> None:
    """The held time goes on, is not sure while the wall clock is wrong, and sure at once when it is right; an alarm says so."""
    machine.nodes = {"gpu-1": 0.0, "gpu-2": 0.3}
    machine.run(60.0)
    machine.error = error
    machine.run(900.0)

    assert (machine.off, machine.clock.is_sure, machine.clock.doubt) == (0, False, "")
    with machine.database.session() as session:
        assert [(one.kind, one.over_at) for one in session.scalars(select(Alarm))] == [("service_clock", None)]
    machine.error = 0.0
    machine.run(5.0)
    assert (machine.off, machine.clock.is_sure, machine.watch.state) == (0, True, "")
    with machine.database.session() as session:
        assert [one.over_at is None for one in session.scalars(select(Alarm))] == [False]


def test_a_small_step_is_followed_slowly(machine: Machine) -> None:
    """A step of 100 s becomes no leap: time passes at most 2 % faster, until the wall clock is reached."""
    machine.error = 100.0
    before = machine.clock.now()
    machine.run(100.0)

    assert machine.clock.now() - before <= 102.1
    machine.run(6_000.0, step=50.0)
    assert (machine.off, machine.clock.is_sure) == (100, True)


def test_the_nodes_confirm_a_correction(machine: Machine) -> None:
    """A clock that was ahead goes back within seconds, one that was behind goes on after minutes: most nodes agree with it."""
    machine.nodes = {"gpu-1": DAY, "gpu-2": DAY, "gpu-3": -40.0 * DAY}
    machine.run(60.0)
    machine.error = DAY
    machine.run(FORWARD_SECONDS - 60.0)
    assert (machine.off, machine.clock.is_sure) == (0, False)
    machine.run(120.0)
    assert (machine.off, machine.clock.is_sure) == (DAY, True)

    machine.nodes, machine.error = {"gpu-1": 0.0, "gpu-2": 0.0, "gpu-3": -40.0 * DAY}, 0.0
    machine.run(100.0 + BACK_SECONDS)
    assert (machine.off, machine.clock.is_sure) == (0, True)


def test_what_came_before_a_correction_forwards_is_not_older_for_it(machine: Machine) -> None:
    """After a step of a day what is dated before it is counted a day younger, until it is old by the time since."""
    machine.nodes = {"gpu-1": DAY}
    machine.run(60.0)
    machine.error = DAY
    machine.run(FORWARD_SECONDS + 60.0)
    set_at = machine.clock.now()

    with machine.database.session() as session:
        assert oldest_kept_at(session, set_at + 60.0, 7_200.0) == pytest.approx(set_at + 60.0 - 7_200.0 - DAY, abs=1.0)
        assert oldest_kept_at(session, set_at + 7_300.0, 7_200.0) == pytest.approx(set_at + 100.0, abs=1.0)


def test_what_came_in_doubt_is_not_older_for_its_correction(machine: Machine) -> None:
    """A boot into the past: what comes until the nodes correct it counts as old as it is, and what came before does too."""
    machine.nodes = {"gpu-1": 0.0, "gpu-2": 0.0}
    machine.run(120.0)
    cut_at = machine.truth
    machine.error = -DAY
    machine.boot(DAY / 2)
    began_at, doubted_at = machine.truth, machine.clock.now()
    machine.error = 0.0
    machine.run(START_SECONDS + 10.0)
    assert machine.clock.is_sure

    with machine.database.session() as session:
        for age in (600.0, DAY / 4, DAY / 2):
            kept_at = oldest_kept_at(session, began_at + age + 60.0, age)
            assert kept_at <= doubted_at + 61.0  # received a minute after the boot, or later: younger than age
        assert oldest_kept_at(session, began_at + DAY, DAY / 2) > cut_at - 100.0  # before the cut: older than DAY / 2


def test_what_was_received_in_a_pause_outlives_a_restart(machine: Machine) -> None:
    """A virtual machine paused for three hours, and its service killed before the nodes corrected it."""
    machine.nodes = {"gpu-1": 0.0, "gpu-2": 0.0}
    machine.run(120.0)
    machine.truth, machine.booted = machine.truth + 10_800.0, machine.booted + 10_800.0
    paused_at = machine.truth
    machine.run(60.0)
    received_as = machine.clock.now()
    machine.start()
    machine.run(START_SECONDS + 120.0)
    assert machine.clock.is_sure

    with machine.database.session() as session:
        assert oldest_kept_at(session, machine.truth, machine.truth - paused_at - 30.0) < received_as


def test_what_was_received_in_a_pause_outlives_a_boot(machine: Machine) -> None:
    """A virtual machine paused for three hours, and booted before the nodes corrected it; the wall clock is right then."""
    machine.nodes = {"gpu-1": 0.0, "gpu-2": 0.0}
    machine.run(120.0)
    machine.truth, machine.booted = machine.truth + 10_800.0, machine.booted + 10_800.0
    machine.run(240.0)
    received_at, received_as = machine.truth, machine.clock.now()
    machine.boot(60.0)
    machine.run(START_SECONDS + 120.0)
    assert (machine.off, machine.clock.is_sure) == (0, True)
    machine.boot(60.0)
    machine.run(START_SECONDS + 120.0)

    with machine.database.session() as session:
        assert oldest_kept_at(session, machine.truth, machine.truth - received_at + 60.0) < received_as


def test_pauses_of_many_nights_do_not_add_up(machine: Machine) -> None:
    """A virtual machine that is paused each night keeps what is younger than a pause more than asked for, and no more."""
    machine.nodes = {"gpu-1": 0.0, "gpu-2": 0.0}
    for _ in range(6):
        machine.run(240.0, step=10.0)
        machine.truth, machine.booted = machine.truth + DAY / 3, machine.booted + DAY / 3
        machine.run(FORWARD_SECONDS + 120.0, step=10.0)
        assert machine.clock.is_sure
    with machine.database.session() as session:
        kept_at = oldest_kept_at(session, machine.truth, DAY)

    assert machine.truth - DAY - DAY / 3 - 1_200.0 <= kept_at <= machine.truth - DAY


def test_this_machines_own_agent_has_no_say(machine: Machine) -> None:
    """An agent of the same boot has the same wall clock: what it confirms is nothing; after a day alone it is adopted."""
    machine.run(60.0)
    machine.error = 20 * DAY
    at = machine.clock.now()
    with machine.database.transaction() as session:
        own = Node(
            name="gpu-1", first_seen_at=at, last_seen_at=at, clock_offset_seconds=20 * DAY, boot_id="boot-of-service-1"
        )
        session.add(own)
    machine.run(2 * FORWARD_SECONDS, step=60.0)
    assert machine.off == 0
    machine.run(STEADY_SECONDS, step=3_600.0)
    assert machine.off == 20 * DAY


@pytest.mark.parametrize("error", [7_200.0, -7_200.0, 20 * DAY])
def test_a_restart_since_the_same_boot_goes_on(machine: Machine, error: float) -> None:
    """A service that was killed in a jump, and starts in it, holds the time that it held."""
    machine.run(60.0)
    machine.error = error
    machine.run(60.0)
    machine.start()

    assert (machine.off, machine.clock.is_sure, machine.clock.doubt) == (0, False, "")


def test_a_machine_that_was_off_for_weeks_sweeps(machine: Machine) -> None:
    """After 20 days without power the time is in doubt until the nodes agree, and then nothing is counted younger."""
    machine.nodes = {"gpu-1": 0.0, "gpu-2": 0.0, "gpu-3": 0.0}
    machine.run(60.0)
    machine.boot(20 * DAY)
    assert (machine.off, bool(machine.clock.doubt)) == (0, True)
    machine.nodes = {"gpu-1": 0.0, "gpu-2": 0.0}
    machine.run(START_SECONDS + 10.0)

    assert (machine.clock.is_sure, machine.clock.doubt) == (True, "")
    with machine.database.session() as session:
        assert oldest_kept_at(session, machine.truth, DAY) == machine.truth - DAY


def test_a_boot_into_the_future_is_in_doubt(machine: Machine) -> None:
    """After a power cut the wall clock is 20 days ahead: in doubt, also where nodes contradict; right as soon as it is."""
    machine.run(60.0)
    machine.error = 20 * DAY
    machine.boot(60.0)
    machine.nodes = {"gpu-1": 0.0}
    machine.run(START_SECONDS + 60.0)
    assert (machine.clock.is_sure, bool(machine.clock.doubt)) == (False, True)
    machine.error = 0.0
    machine.run(5.0)

    assert (machine.off, machine.clock.is_sure) == (0, True)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("bound", [0, 1, 4])
def test_one_sender_does_not_confirm_a_wrong_time(machine: Machine, bound: int, *, restarted: bool) -> None:
    """After a boot into the future one known node of four, or any number of new names, end no doubt within hours."""
    machine.nodes = {f"gpu-{number}": 0.0 for number in range(4)}
    bind(machine, [f"gpu-{number}" for number in range(bound)])
    machine.run(60.0)
    machine.error = 20 * DAY
    machine.boot(60.0)
    liar = "gpu-3" if bound != 1 else "gpu-2"  # where nodes have tokens of their own, others are no voters
    machine.nodes = {liar: 20 * DAY} | {f"new-{number}": 20 * DAY for number in range(8)}
    machine.run(600.0, step=60.0)
    if restarted:
        machine.start()
    bind(machine, ["new-1"])
    machine.run(3 * 3_600.0, step=1_200.0)
    assert machine.clock.doubt
    machine.nodes |= {f"gpu-{number}": 0.0 for number in range(2)}
    machine.error = 0.0
    machine.run(10.0)

    assert (machine.off, machine.clock.is_sure) == (0, True)


def test_known_nodes_confirm_the_held_time(machine: Machine) -> None:
    """In doubt and with a wall clock that is wrong again, half of the nodes confirm the held time after two minutes."""
    machine.nodes = {"gpu-1": 0.0, "gpu-2": 0.0}
    machine.run(60.0)
    machine.boot(20 * DAY)
    machine.error = -7_200.0
    machine.nodes = {"gpu-1": 0.0}
    machine.run(START_SECONDS - 10.0)
    assert machine.clock.doubt
    machine.run(30.0)

    assert (machine.off, machine.clock.doubt, machine.clock.is_sure) == (0, "", False)


def test_a_new_fleet_is_believed_after_a_day(machine: Machine) -> None:
    """Where none of the known nodes comes back, the time is in doubt for a day."""
    machine.nodes = {"gpu-1": 0.0}
    machine.run(60.0)
    machine.boot(20 * DAY)
    machine.nodes = {"gpu-2": 0.0}
    machine.run(STEADY_SECONDS - 3_600.0, step=3_600.0)
    assert machine.clock.doubt
    machine.run(2 * 3_600.0, step=3_600.0)

    assert (machine.off, machine.clock.is_sure) == (0, True)


def test_a_boot_into_the_past_dates_nothing_before_the_evidence(machine: Machine) -> None:
    """With a wall clock of 1970 the time goes on from the newest stored instant."""
    machine.run(60.0)
    machine.error = -TRUTH
    machine.boot(90.0)
    assert -130 <= machine.off <= 0
    assert machine.clock.doubt
    machine.error = 0.0
    machine.run(5.0)

    assert machine.clock.is_sure
    assert -130 <= machine.off <= 0


def test_the_engine_holds_what_its_service_holds(machine: Machine) -> None:
    """A process of its own on the same machine takes the time from the row, with its doubt."""
    engine = ProcessClock(machine.clock.wall, machine.clock.boot)
    machine.error = 20 * DAY
    machine.run(60.0)
    follow(machine.database, engine)
    assert round(engine.now() - machine.truth) == 0
    machine.boot(60.0)
    engine = ProcessClock(machine.clock.wall, machine.clock.boot)
    follow(machine.database, engine)

    assert engine.doubt == machine.clock.doubt != ""
