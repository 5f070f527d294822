"""What several nodes or jobs show at once: one infrastructure incident, nobody evicted, and nothing where it is chance."""

from __future__ import annotations

import pytest

from collectors.records import Device, DeviceState, KernelEvent, ProcessState
from tests.fleet_world import (
    FOUR_SWITCHES,
    START,
    World,
    evicts_nobody,
    incident,
    links_down,
    mounted,
    only,
    unanswering,
)

# --- agents that fall silent


def test_nothing_is_told_of_nodes_that_report() -> None:
    """Sixty-four staggered agents and an hour: no incident, no alarm, nobody silent."""
    world = World(jobs=[("a", range(32)), ("b", range(32, 64))])
    world.run(3600)

    assert world.opened == {}
    assert world.alarms == []
    assert all(not report.silent for report in world.reports)


def test_thirty_percent_of_the_agents_cut_is_one_incident_that_names_no_node() -> None:
    """Nineteen of 64 fall silent: one incident after about a minute, abstained, and over when they are back."""
    world = World(jobs=[("a", range(64))])
    world.run(120)
    world.cut = set(world.names[::3][:19])
    cut_at = world.now
    world.run(300)
    shared = only(world)

    assert shared.symptom.detector == "silent_together"
    assert shared.nodes == frozenset(world.cut)
    assert world.reports[-1].silent == frozenset(world.cut)
    opened_at = next(index for index, report in enumerate(world.reports) if report.shared)
    assert START + 10 * (opened_at + 1) - cut_at <= 90
    assert shared.verdict.abstained
    assert evicts_nobody(shared)
    assert any("[domains]" in missing.what for missing in shared.verdict.missing)
    world.cut = set()
    assert world.run(30).shared == ()
    assert world.over == {shared.key: "all of 19 agents report again"}


def test_one_silent_agent_is_nobodys_infrastructure() -> None:
    """A machine that died alone is not explained away, and two of a large job's nodes are not either."""
    world = World(jobs=[("a", range(64))])
    world.run(120)
    world.cut = {"n07"}
    assert world.run(300).silent == {"n07"}
    world.cut = {"n07", "n08"}
    world.run(300)
    assert world.opened == {}


def test_a_fifth_of_a_small_job_counts() -> None:
    """Two of a job's eight nodes falling silent together are one incident; the same two of no job are not."""
    for jobs, expected in (([("small", range(8))], 1), ([], 0)):
        world = World(jobs=jobs)
        world.run(120)
        world.cut = {"n03", "n04"}
        world.run(200)
        assert len(world.opened) == expected


def test_nodes_that_fall_silent_apart_are_no_incident() -> None:
    """Five nodes of one fleet that die a minute apart from each other share nothing."""
    world = World()
    world.run(120)
    for number in range(5):
        world.cut.add(f"n{number:02d}")
        world.run(60)
    world.run(120)
    assert world.opened == {}


def test_a_switch_is_named_where_its_nodes_fell_silent_and_others_did_not() -> None:
    """All sixteen nodes of a leaf silent and 48 others not: the switch, cause network; its job's stall is explained."""
    world = World(site=FOUR_SWITCHES, jobs=[("a", range(16, 32)), ("b", range(32, 64))])
    world.run(120)
    world.cut = {f"n{number}" for number in range(16, 32)}
    world.run(200)
    shared = only(world)
    culprit = shared.verdict.culprits[0]

    assert (culprit.kind, culprit.id, shared.verdict.cause) == ("switch", "leaf-1", "network")
    assert shared.jobs == {"a"}
    assert evicts_nobody(shared)
    assert shared.explains(incident("a", "no_progress", world.now, ("n16",)))
    assert not shared.explains(incident("b", "no_progress", world.now, ("n40",)))
    assert not shared.explains(incident("a", "rank_dead", world.now, ("n16",)))
    assert not shared.explains(incident("a", "no_progress", shared.symptom.at - 600, ("n16",)))


def test_a_switch_of_which_half_is_spared_is_not_named() -> None:
    """Eight of a leaf's sixteen nodes are silent: a domain that explains half of it explains nothing."""
    world = World(site=FOUR_SWITCHES)
    world.run(120)
    world.cut = {f"n{number}" for number in range(16, 24)}
    world.run(200)
    assert only(world).verdict.abstained


def test_two_domains_with_the_same_nodes_are_no_answer() -> None:
    """A switch and a power feed that serve the same rack cannot be told apart by silence, and both are suspects."""
    site = FOUR_SWITCHES + '[domains.power]\nfeed-1 = ["n1[6-9]", "n2?", "n3[01]"]\n'
    world = World(site=site)
    world.run(120)
    world.cut = {f"n{number}" for number in range(16, 32)}
    world.run(200)
    verdict = only(world).verdict

    assert verdict.abstained
    assert {entry.id for entry in verdict.suspects} == {"leaf-1", "power feed-1", "unknown"}
    assert any("apart" in missing.what for missing in verdict.missing)


# --- our own outages


def test_all_agents_silent_is_our_own_outage() -> None:
    """When nobody reports, this service or the way to it is the cause, and no job is blamed or alarmed for."""
    world = World(jobs=[("a", range(64))])
    world.run(120)
    world.cut = set(world.names)
    world.run(200)
    shared = only(world)

    assert (shared.verdict.cause, shared.verdict.culprits[0].kind) == ("platform", "platform")
    assert evicts_nobody(shared)
    assert not shared.explains(incident("a", "no_progress", world.now, ("n01",)))
    assert world.alarms == []


def test_after_an_outage_nobody_is_silent_until_all_have_had_time_to_come_back() -> None:
    """Agents return over half a minute: no second incident, no node silent; one that stays away is, a minute later."""
    world = World(jobs=[("a", range(64))])
    world.run(120)
    world.cut = set(world.names)
    world.run(180)
    back_at = world.now
    outage = only(world)

    def return_one_by_one(world: World) -> None:
        gone = int((world.now - back_at) * 2)
        world.cut = set(world.names[gone:]) if gone < 63 else {"n63"}

    world.every_second = return_one_by_one
    before = len(world.reports)
    world.run(60)
    assert all(not report.silent for report in world.reports[before:])
    assert world.run(60).silent == {"n63"}
    assert list(world.opened) == [outage.key]
    assert outage.key in world.over


def test_agents_that_never_come_back_from_our_outage_are_an_incident_of_their_own() -> None:
    """Our outage is over with the first minute of batches; the nineteen that stay away fell silent together."""
    world = World(jobs=[("a", range(64))])
    world.run(120)
    world.cut = set(world.names)
    world.run(180)
    outage = only(world)
    world.cut = set(world.names[:19])
    world.run(180)
    rest = world.opened[next(key for key in world.opened if key != outage.key)]

    assert world.over == {outage.key: "45 of 64 agents report again"}
    assert (rest.symptom.detector, rest.nodes) == ("silent_together", frozenset(world.cut))
    assert rest.verdict.abstained


def test_an_engine_that_was_away_finds_nobody_silent() -> None:
    """After a pause of five minutes without a look the first minute opens nothing, whatever the log still lacks."""
    world = World()
    world.run(120)
    world.now += 300.0  # neither batches nor looks: the engine was down, and the log is not read yet
    report = world.look()

    assert (report.shared, report.silent) == ((), frozenset())
    world.run(300)
    assert world.opened == {}


def test_a_service_restart_of_forty_seconds_opens_nothing() -> None:
    """Shorter than the bound on silence, an outage is not worth a word."""
    world = World(jobs=[("a", range(64))])
    world.run(120)
    world.cut = set(world.names)
    world.run(40)
    world.cut = set()
    world.run(200)
    assert (world.opened, world.alarms) == ({}, [])


# --- the same on several nodes


def test_a_file_server_that_answers_nobody_is_named() -> None:
    """All 64 nodes wait for filer1: the server, cause storage, every stalled job explained, over when it answers."""
    world = World(jobs=[("a", range(32)), ("b", range(32, 64))])
    mounted(world, "filer1", world.names)
    world.run(120)
    unanswering(world, world.names)
    world.run(120)
    shared = only(world)

    assert (shared.verdict.cause, shared.verdict.culprits[0].kind, shared.verdict.culprits[0].id) == (
        "storage",
        "storage",
        "filer1",
    )
    assert shared.explains(incident("a", "no_progress", world.now, ("n01",)))
    assert shared.explains(incident("b", "outstanding", world.now, ("n40",)))
    assert evicts_nobody(shared)
    unanswering(world, world.names, "ok")
    assert world.run(30).shared == ()
    assert shared.key in world.over


def test_a_file_server_that_pauses_for_twenty_seconds_opens_nothing() -> None:
    """It stalled nobody for long."""
    world = World()
    mounted(world, "filer1", world.names)
    world.run(120)
    unanswering(world, world.names)
    world.run(20)
    unanswering(world, world.names, "ok")
    world.run(120)
    assert world.opened == {}


def test_a_file_server_that_answers_most_is_not_named() -> None:
    """Three of its 64 nodes wait: it is not the server, and the verdict abstains."""
    world = World()
    mounted(world, "filer1", world.names)
    world.run(120)
    unanswering(world, world.names[:3])
    world.run(120)
    assert only(world).verdict.abstained


def test_mounts_that_were_never_readable_are_a_matter_of_permissions() -> None:
    """Sixty-four agents that start together and may not read a mount open nothing; one that became unreadable does."""
    world = World()
    for name in world.names:
        world.tell(name, DeviceState(device="/data", state="unreadable", at=world.now))
    world.run(200)
    assert world.opened == {}

    world = World()
    mounted(world, "filer1", world.names)
    world.run(60)
    unanswering(world, world.names, "unreadable")
    world.run(120)
    assert only(world).verdict.culprits[0].id == "filer1"


def blocked(
    world: World, name: str, rank: int, *, cpu_seconds: float = 9.0, channel: str = "rpc_wait_bit_killable"
) -> None:
    """Tell of a rank's process in uninterruptible sleep."""
    row = ProcessState(
        pid=100 + rank, state="D", wait_channel=channel, cpu_seconds=cpu_seconds, rank=rank, job="a", at=world.now
    )
    world.tell(name, row)


@pytest.mark.parametrize(
    ("channel", "cpu_a_look", "expected"),
    [
        ("rpc_wait_bit_killable", 0.0, 1),
        ("rpc_wait_bit_killable", 0.5, 0),  # slow, and going on: a checkpoint
        ("ext4_file_write_iter", 0.0, 0),  # each machine has a disk of its own
        ("uvm_va_space_down", 0.0, 0),
    ],
)
def test_processes_blocked_on_another_machines_files(channel: str, cpu_a_look: float, expected: int) -> None:
    """Ranks of four nodes blocked for half a minute without using a processor are a storage incident; writers are not."""
    world = World(jobs=[("a", range(8))])

    def every_ten(world: World) -> None:
        if int(world.now) % 10 == 0 and world.now > START + 100:
            for rank in range(4):
                blocked(world, world.names[rank], rank, cpu_seconds=cpu_a_look * (world.now - START), channel=channel)

    world.every_second = every_ten
    world.run(240)
    assert len(world.opened) == expected
    if expected:
        assert only(world).symptom.detector == "shared_storage"
        assert only(world).explains(incident("a", "no_progress", world.now, ("n01",)))
        world.every_second = lambda world: None
        for rank in range(4):
            world.tell(world.names[rank], ProcessState(pid=100 + rank, state="R", rank=rank, job="a", at=world.now))
        assert world.run(20).shared == ()


def test_links_lost_on_all_nodes_of_a_switch_are_the_switch() -> None:
    """Sixteen links within seconds, all of one leaf: the switch; over when the links are up again."""
    world = World(site=FOUR_SWITCHES, jobs=[("a", range(16, 32))])
    world.run(120)
    links_down(world, world.names[16:32])
    world.run(60)
    shared = only(world)

    assert (shared.verdict.culprits[0].id, shared.verdict.symptom) == ("leaf-1", "hardware")
    assert shared.explains(incident("a", "hardware_event", world.now, ("n16", "n17")))
    world.run(600)
    assert world.over == {}
    for name in world.names[16:32]:
        world.tell(name, KernelEvent(event="link_up", device="ib0", at=world.now))
    world.run(20)
    assert "links" in world.over[shared.key]


def test_links_that_come_back_at_once_are_everyday_life_and_twice_they_are_not() -> None:
    """Sixteen ports of a leaf down for two seconds open nothing; four minutes later again, they are the switch's."""
    world = World(site=FOUR_SWITCHES)
    world.run(120)
    for expected in (0, 1):
        links_down(world, world.names[16:32])
        for name in world.names[16:32]:
            world.tell(name, KernelEvent(event="link_up", device="ib0", at=world.now + 2))
        world.run(120)
        assert len(world.opened) == expected
    world.run(400)
    assert list(world.over) == [only(world).key]


def test_links_of_two_jobs_are_an_incident_and_of_two_nodes_of_one_job_are_not() -> None:
    """Two nodes are enough where their jobs have nothing else in common; nothing is explained where nothing is named."""
    world = World(jobs=[("a", range(8)), ("b", range(8, 16))])
    world.run(120)
    links_down(world, ["n00", "n01"])
    world.run(40)
    assert world.opened == {}
    links_down(world, ["n09"])
    world.run(60)
    shared = only(world)
    assert shared.verdict.abstained
    assert not shared.explains(incident("a", "hardware_event", world.now, ("n00",)))


@pytest.mark.parametrize(("code", "expected"), [(31, 0), (13, 0), (43, 0), (79, 1), (119, 1)])
def test_a_programs_own_xids_are_nothing_shared(code: int, expected: int) -> None:
    """A bug gives Xid 31 on every node of its job at once; a lost GPU on six nodes within a minute is no program's."""
    world = World(jobs=[("a", range(8))])
    world.run(120)
    for name in world.names[:6]:
        world.tell(name, KernelEvent(event="xid", code=code, pci="0000:9b:00", text=f"Xid {code}", at=world.now))
    world.run(60)
    assert len(world.opened) == expected


def test_a_driver_version_is_named_as_a_library_where_only_its_nodes_are_hit() -> None:
    """Xid 119 on all twelve nodes of one driver version and none of 52 others."""
    world = World()
    for number, name in enumerate(world.names):
        version = "575.57" if number < 12 else "570.86"
        world.tell(name, Device(type="gpu", id=f"GPU-{number}", attributes={"driver_version": version}))
    world.run(120)
    for name in world.names[:12]:
        world.tell(name, KernelEvent(event="xid", code=119, pci="0000:9b:00", text="GSP timeout", at=world.now))
    world.run(60)
    culprit = only(world).verdict.culprits[0]
    assert (culprit.kind, culprit.id) == ("library", "driver 575.57")


def test_old_events_are_history() -> None:
    """Agents that start read the kernel's log from the boot: what it tells of an hour ago opens nothing."""
    world = World()
    world.run(60)
    for name in world.names:
        world.tell(name, KernelEvent(event="link_down", device="ib0", text="Link down", at=world.now - 3600))
    world.run(120)
    assert world.opened == {}


def test_a_dying_switch_is_one_incident_through_links_mounts_and_silence() -> None:
    """Links first, a file server out of reach, then silence: three classes on the same nodes are one incident."""
    world = World(site=FOUR_SWITCHES, jobs=[("a", range(16, 32)), ("b", range(32, 64))])
    mounted(world, "filer1", world.names)
    world.run(120)
    links_down(world, world.names[16:32])
    unanswering(world, world.names[16:32])
    world.run(60)
    world.cut = {f"n{number}" for number in range(16, 32)}
    world.run(200)
    shared = only(world)
    assert shared.verdict.culprits[0].id == "leaf-1"
    assert {item.analyzer for item in shared.verdict.evidence} == {"fleet"}
