"""The same fault on several nodes: one incident of what they share, and none where it is chance or a program's own."""

from __future__ import annotations

import pytest

from collectors.records import Device, DeviceState, KernelEvent, ProcessState
from tests.support.fleet_world import (
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


def test_a_file_server_that_answers_nobody_is_named() -> None:
    """All nodes wait for one of two servers: that one, cause storage, every stalled job explained, over when it answers."""
    world = World(jobs=[("a", range(32)), ("b", range(32, 64))])
    mounted(world, "filer1", world.names)
    mounted(world, "filer2", world.names, "/home")
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
    """Three of its 64 nodes wait: it is not the server, the verdict abstains, and the job's stall is not explained by it."""
    world = World(jobs=[("a", range(64))])
    mounted(world, "filer1", world.names)
    world.run(120)
    unanswering(world, world.names[:3])
    world.run(120)
    assert only(world).verdict.abstained
    assert not only(world).explains(incident("a", "no_progress", world.now, ("n01",)))


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
