"""The loop over all jobs: its alarms, what it keeps, what a restart and hostile batches do to it, and the site's table."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.incidents.fleet import Fleet, SharedIncident, incident_key
from analyzers.incidents.fleet.node_activity import NodeActivity
from analyzers.incidents.fleet.rules import Rules
from analyzers.incidents.fleet.signs import file_server
from analyzers.incidents.messages import Received
from analyzers.model.incident import Incident
from analyzers.model.verdict import to_json
from collectors.records import (
    CollectorReport,
    Coverage,
    Device,
    DeviceState,
    KernelEvent,
    LogEvent,
    ProcessState,
    Record,
)
from service.engine.resume import resume_engine
from service.packaged_knowledge import KnowledgeError, load
from service.store.database import Database
from service.store.models import Alarm as AlarmRow
from tests.support.fleet_world import FOUR_SWITCHES, START, World, evicts_nobody, links_down, mounted, only, unanswering

# --- clocks


@pytest.mark.parametrize("skew", [-10.0, 10.0, -7200.0])
def test_clocks_that_are_apart_are_an_alarm_and_change_nothing_else(skew: float) -> None:
    """A third of the clocks off by seconds or hours: one alarm, over when they agree, and the switch is still found."""
    world = World(site=FOUR_SWITCHES)
    world.skew = dict.fromkeys(world.names[::3], skew)
    world.run(120)
    alarm = world.alarms[0]
    assert (len(world.alarms), alarm.kind, alarm.raised) == (1, "clock", True)
    assert set(alarm.nodes) == set(world.names[::3])
    assert f"{skew:+.1f} s" in alarm.text
    links_down(world, world.names[16:32])
    world.run(60)
    assert only(world).verdict.culprits[0].id == "leaf-1"
    world.skew = {}
    world.run(180)
    assert [alarm.raised for alarm in world.alarms] == [True, False]


def test_one_late_batch_is_no_wrong_clock() -> None:
    """A node whose first batch was five seconds on the way looks behind, until its next one."""
    world = World(nodes=4)
    world.cut = {"n01"}
    world.run(100)
    world.cut, world.skew = set(), {"n01": -5.0}
    world.run(10)
    assert abs(world.seen["n01"].offset) > 2
    world.skew = {}
    world.run(120)
    assert world.alarms == []


# --- coverage


def blind_coverage(error: str = "py-spy is not installed") -> Coverage:
    """A minute in which neither stacks nor recorders could be taken."""
    return Coverage(
        collectors=(
            CollectorReport(name="stacks", runs=30, nothing=30, error=error),
            CollectorReport(name="recorder", runs=1, failures=1),
        )
    )


def test_a_job_of_which_a_fifth_cannot_be_seen_is_an_alarm() -> None:
    """Thirteen blind agents of 64: raised once, with their number and the reason; over when they see again."""
    world = World(jobs=[("a", range(64))])
    for name in world.names[:13]:
        world.tell(name, blind_coverage())
    world.run(300)
    assert [(alarm.kind, alarm.job, alarm.raised) for alarm in world.alarms] == [("coverage", "a", True)]
    assert "80%" in world.alarms[0].text
    assert "py-spy is not installed" in world.alarms[0].text
    assert "are seen, below" not in world.alarms[0].text  # their processes are: stacks and dumps are what is missing
    seeing = Coverage(collectors=(CollectorReport(name="stacks", runs=30, records=1),))
    for name in world.names[:8]:
        world.tell(name, seeing)
    world.run(60)
    assert len(world.alarms) == 1  # 92 %: above the bound, and not yet over
    for name in world.names[8:13]:
        world.tell(name, seeing)
    world.run(60)
    assert [alarm.raised for alarm in world.alarms] == [True, False]


def test_silent_and_unplaced_ranks_are_unseen() -> None:
    """A job of 80 ranks of which 64 are placed, eight of these on nodes that fell silent: 70 % are seen."""
    world = World(jobs=[("a", range(64))])
    world.jobs["a"].world_size = 80
    world.run(120)
    world.cut = set(world.names[:8])
    world.run(120)
    last = world.alarms[-1]
    assert last.raised
    assert set(last.nodes) == set(world.names[:8])
    assert "70% of 80 ranks" in last.text
    assert "16 on nodes that were not reported" in last.text


def test_a_job_without_a_recorder_is_seen_by_its_stacks() -> None:
    """A plain gloo job has no recorder, and stacks that were not due in this minute can be taken in the next."""
    world = World(jobs=[("a", range(8))])
    recorder = CollectorReport(name="recorder", runs=2, nothing=1, error="not asked; of 4 ranks could be asked: none")
    for name in world.names[:8]:
        world.tell(name, Coverage(collectors=(CollectorReport(name="stacks", runs=30, nothing=30), recorder)))
    world.run(300)
    assert world.alarms == []


@pytest.mark.parametrize("why", ["starting", "ended", "unsaid"])
def test_no_alarm_without_ground(why: str) -> None:
    """A job that has just begun, one that has ended, and agents that say nothing of their collectors raise nothing."""
    world = World(jobs=[("a", range(8))])
    if why == "starting":
        world.jobs["a"].first_at = START + 60
    elif why == "ended":
        world.jobs["a"].ended = dict.fromkeys(world.jobs["a"].ranks)
    for name in world.names[:8]:
        world.tell(name, Coverage() if why == "unsaid" else blind_coverage())
    world.run(200)
    assert world.alarms == []


# --- memory, restarts, determinism


def test_an_engine_that_starts_again_keeps_its_incident() -> None:
    """Restored with the log of five minutes: the same key goes on, nothing is opened twice, and it ends as before."""
    world = World(jobs=[("a", range(64))])
    world.run(120)
    world.cut = set(world.names[:20])
    world.run(150)
    shared = only(world)
    alarms = list(world.alarms)
    held = stored(shared, world.now)
    assert incident_key(held) == shared.key

    world.fleet = Fleet(world.knowledge)
    world.fleet.restore([held], alarms)
    world.run(10)
    assert [one.key for one in world.reports[-1].shared] == [shared.key]  # what is merged into it stays merged
    world.run(180)
    assert list(world.opened) == [shared.key]
    assert world.alarms == alarms
    assert world.reports[-1].shared
    world.cut = set()
    world.run(60)
    assert world.over[shared.key] == "all of 20 agents report again"


def stored(shared: SharedIncident, at: float) -> Incident:
    """The incident that an engine would have stored for it, read back from JSON."""
    written = Incident(
        id="inc-2", kind="infrastructure", job=None, attempt=None, opened_at=at, onset_at=shared.symptom.at,
        symptoms=(shared.symptom,), after=0, nodes=tuple(sorted(shared.nodes)),
    )  # fmt: skip
    return msgspec.json.decode(msgspec.json.encode(written), type=Incident)


def test_the_same_batches_give_the_same_bytes() -> None:
    """Two runs of one scenario of three classes at once end in equal documents."""

    def once() -> bytes:
        world = World(site=FOUR_SWITCHES, jobs=[("a", range(16, 32))])
        mounted(world, "filer1", world.names)
        world.run(120)
        world.cut = {f"n{number}" for number in range(16, 32)}
        unanswering(world, world.names[:8])
        world.run(300)
        return b"".join(to_json(shared.verdict) for shared in world.opened.values())

    first = once()
    assert first
    assert first == once()


hostile_records = st.lists(
    st.one_of(
        st.builds(
            KernelEvent,
            event=st.sampled_from(["link_down", "xid", "nfs_not_responding", "nfs_responding", "off_bus", "", "mlx5"]),
            at=st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
            code=st.one_of(st.none(), st.integers(-5, 2**40)),
            device=st.one_of(st.none(), st.text(max_size=5)),
            severity=st.one_of(st.none(), st.just("fatal")),
        ),
        st.builds(
            DeviceState,
            device=st.sampled_from(["/", "/data", "GPU-1", ""]),
            state=st.text(max_size=9),
            at=st.floats(0, 4e9),
        ),
        st.builds(
            ProcessState,
            pid=st.integers(-1, 3),
            state=st.sampled_from(["D", "R", "X", ""]),
            wait_channel=st.one_of(st.none(), st.just("nfs_wait")),
            job=st.one_of(st.none(), st.just("a")),
            at=st.one_of(st.none(), st.floats(0, 4e9)),
            cpu_seconds=st.one_of(st.none(), st.floats(0, 1e9)),
        ),
        st.builds(
            Device, type=st.sampled_from(["gpu", "mount", "x"]), id=st.text(max_size=4), name=st.text(max_size=9)
        ),
        st.builds(Coverage),
        st.builds(LogEvent, event=st.text(max_size=4)),
    ),
    max_size=12,
)


@pytest.mark.system
@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 400), st.integers(-(10**6), 10**6), hostile_records), max_size=25
    )
)
def test_no_batch_breaks_the_loop_or_evicts(batches: list[tuple[int, int, int, list[Record]]]) -> None:
    """Batches from the future, out of order, with unknown words and impossible numbers: a report, and no node named."""
    world = World(nodes=6, jobs=[("a", range(3)), ("b", range(3, 6))])
    for number, later, skew, records in batches:
        name = world.names[number]
        received = Received(
            sequence=0, received_at=START + later, node=name, sent_at=START + later + skew, records=tuple(records)
        )
        world.seen.setdefault(name, NodeActivity(START + later)).take(received)
        world.fleet.take(received)
        world.now = START + later
        for shared in world.look().shared:
            assert evicts_nobody(shared)
            to_json(shared.verdict)


def test_what_is_kept_of_a_node_is_bounded() -> None:
    """A node that tells of 10,000 mounts, processes and events costs no more than one with a hundred."""
    world = World(nodes=1)
    for number in range(10_000):
        world.tell(
            "n00",
            DeviceState(device=f"/data/{number}", state="no_answer", at=world.now),
            ProcessState(pid=number, state="D", job="a", at=world.now),
            KernelEvent(event="link_down", device=f"ib{number}", at=world.now),
            KernelEvent(event="nfs_not_responding", device=f"s{number}", at=world.now),
        )
    world.run(10)
    signs = world.fleet._signs["n00"]
    assert max(map(len, (signs.mounts, signs.blocked, signs.events, signs.unanswering, signs.ports))) <= 256


@pytest.mark.system
def test_an_alarm_that_passed_while_the_engine_was_down_is_over_with_the_next(database: Database) -> None:
    """The store's raised alarms are taken up by an engine that starts; one without ground any more is reported to be over."""
    with database.transaction() as session:
        for kind, over_at in (("clock", None), ("coverage", START)):
            session.add(AlarmRow(kind=kind, job=None, text="off", nodes=["n1"], raised_at=START, over_at=over_at))
    state = resume_engine(database, load(), START + 60, lambda: None).state
    reported = [
        alarm
        for looks in range(8)
        for alarm in state.fleet.look(state.jobs, state.nodes, START + 60 + 10 * looks).alarms
    ]
    assert [(alarm.kind, alarm.raised) for alarm in reported] == [("clock", False)]


# --- the site's table


def test_a_sites_table_that_would_be_read_past_is_refused(tmp_path: Path) -> None:
    """An unknown kind, a pattern that is no list and a bound that is no number are named, each with what it must be."""
    table = tmp_path / "fleet.toml"
    table.write_text(
        '[domains.swich]\nleaf = ["n*"]\n[domains.rack]\nr1 = "n*"\n[silence]\nseconds = "long"\nsecond = 3\n'
    )
    with pytest.raises(KnowledgeError) as refused:
        load(table)
    for part in ("domains.swich", "domains.rack.r1", "silence.seconds = 'long'", "silence.second:"):
        assert part in str(refused.value)

    table.write_text('[domains.rack]\nr1 = ["n*"]\n[silence]\nseconds = 90\n')
    assert Rules.from_knowledge(load(table)).silence_seconds == 90.0


def test_a_pattern_of_a_file_system_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    """A site's row without words and one whose pattern does not compile are named."""
    table = tmp_path / "wait_channels.toml"
    table.write_text('[network_file_system]\na = {words = "A"}\nb = {words = "B", function = "("}\n')
    with pytest.raises(KnowledgeError, match=r"network_file_system\.a: must have.*network_file_system\.b\.function"):
        load(table)
    table.write_text('[undecided]\na = {function = "x"}\n')
    with pytest.raises(KnowledgeError, match=r"undecided\.a: must have"):
        load(table)


def test_the_packaged_bounds_are_the_codes_own() -> None:
    """What is unusable in a table falls back on the code's value, so the two must not drift apart."""
    packaged, own = Rules.from_knowledge(load()), Rules()
    for bound in dataclasses.fields(Rules):
        if bound.name not in ("events", "file_systems"):
            assert getattr(packaged, bound.name) == getattr(own, bound.name), bound.name


@pytest.mark.parametrize(
    ("source", "server"),
    [
        ("filer1:/home", "filer1"),
        ("10.0.0.1@tcp:/fs", "10.0.0.1@tcp"),
        ("[fe80::1]:/x", "[fe80::1]"),
        ("beegfs_nodev", "beegfs_nodev"),
    ],
)
def test_the_server_of_a_mount(source: str, server: str) -> None:
    """What stands before the path; a file system that names none stands for itself."""
    assert file_server(source) == server
