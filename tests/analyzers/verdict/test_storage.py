"""A file system that does not answer: it is the cause, once, and who waits there is named and not accused."""

from __future__ import annotations

import pytest

from analyzers.model.finding import Evidence, Finding, Suspect
from collectors.records import KernelEvent, Record
from service.reports import text
from tests.support.argued_claims import a_set, claim, decided, named, suspect
from tests.support.live_hangs import START, Hang, inside, verdict
from tests.support.live_hangs import named as ranks_named

LOADER = (inside("wait", "get", "_try_get_data", file="/x/site-packages/torch/utils/data/dataloader.py"),) * 2
WAITING = tuple(rank for rank in range(64) if rank != 5)


def kernel() -> list[Record]:
    """What the kernel of one node writes: its server is silent, a worker of the loader is blocked."""
    common = {"source": "kern.log", "node": "gpu-2"}
    return [
        KernelEvent(event="nfs_not_responding", device="nas-3", at=START + 31.0, text="no answer", **common),  # type: ignore[arg-type]
        KernelEvent(event="hung_task", process="pt_data_worker:7", at=START + 58.0, text="blocked", **common),  # type: ignore[arg-type]
    ]


def server(*scope: int, **more: object) -> Finding:
    """A file server that a node of these ranks does not reach."""
    shown = Evidence(text="the server is silent", source="kern.log:1")
    blamed = Suspect(kind="storage", strength=0.5, why="a file server stopped answering (nas-3)", evidence=(shown,))
    known = {
        "cause": "storage",
        "symptom": "hardware",
        "scope": frozenset(scope),
        "onset": 31.0,
        "first_symptom": shown,
    }
    return claim("hardware", "storage_unreachable", blamed, **{**known, **more})


def loader(*ranks: int, fault_class: str = "stuck_data_loader") -> Finding:
    """Stacks of which these stand in their loaders, and all others wait."""
    claims = (suspect(rank, strength=0.85) for rank in ranks)
    scope = frozenset(range(64))
    return claim("stacks", fault_class, *claims, cause="data", narrows=True, scope=scope, together=len(ranks) > 1)


@pytest.mark.parametrize("looks", [None, 3])
def test_a_worker_that_a_silent_server_blocks_is_the_storages_and_names_who_waits(looks: int | None) -> None:
    """Two lines of the kernel and one stack are one cause; no stack is asked for."""
    found = verdict(Hang(stands=LOADER, more=kernel()).records(), looks)
    page = " ".join(text.render(found).split())

    assert (found.symptom, found.cause, ranks_named(found), found.action.kind) == ("hang", "storage", [2], "none")
    assert len(found.roots) == 1
    assert page.startswith("The storage that rank 2 on gpu-2 uses (not a machine) hangs the job")
    assert "nas-3" in page
    assert "blocked in a file system" in page
    assert not [one.what for one in found.missing if "stack" in one.what]


def test_a_checkpoint_that_waits_for_a_file_server_is_the_storages_where_its_duration_is_unknown() -> None:
    """In files no second look bounds the pause; in a running job the checkpoint has its time before anything is named."""
    saving = (inside("save", "save_checkpoint", file="/x/site-packages/torch/serialization.py"),) * 2
    hang = Hang(stands=saving, state="D", channel="nfs_wait_bit_killable").records()
    found, live = verdict(hang, None), verdict(hang, 1)

    assert (found.cause, ranks_named(found), found.action.kind) == ("storage", [2], "none")
    assert [root.fault_class for root in live.roots] == ["pause_checkpoint"]


def test_the_one_rank_in_its_loader_on_that_node_waits_there() -> None:
    """Of the node's four ranks one reads, the others wait for it: it is named, and all others are victims."""
    waits = a_set(1, 5, 9, fault_class="never_entered", cause="machine")
    found = decided(server(4, 5, 6, 7), waits, loader(5))

    assert named(found) == [("storage n1", (5,))]
    assert (found.symptom, found.cause, found.victims.count) == ("hang", "storage", 63)


def test_a_loader_on_another_node_is_not_what_that_server_holds() -> None:
    """Its own node reaches the server as far as is seen: the rank keeps its own cause."""
    waits = a_set(1, 20, 9, fault_class="never_entered", cause="machine")
    found = decided(server(4, 5, 6, 7), waits, loader(20))

    assert ("node n5", (20,)) in named(found)
    assert all(20 not in one.ranks for one in found.culprits if one.kind == "storage")


def test_kernel_and_process_state_say_it_once_and_are_surer_together() -> None:
    """A rank that is uninterruptible in the file system, and the node's kernel about its server."""
    held = Suspect(kind="storage", strength=0.5, why="rank 5 waits for NFS", ranks=(5,), evidence=(Evidence(text="D"),))
    state = claim("process", "file_server_wait", held, cause="storage", scope=frozenset({5}))
    waits = claim("hang", "never_entered", suspect(5, strength=0.95), scope=frozenset(range(64)), victims=WAITING)
    alone, both = decided(waits, state), decided(waits, state, server(4, 5, 6, 7))

    assert named(alone) == named(both) == [("storage n1", (5,))]
    assert [len(one.roots) for one in (alone, both)] == [1, 1]
    assert both.culprits[0].probability > 0.9
    assert (both.action.kind, both.victims.count) == ("none", 63)


def test_what_a_device_lost_is_no_wait_for_files() -> None:
    """Its record misses what its peers prove: that its process reads a file as well is no excuse."""
    held = Suspect(kind="storage", strength=0.5, why="rank 5 waits for NFS", ranks=(5,))
    state = claim("process", "file_server_wait", held, cause="storage", scope=frozenset({5}))
    found = decided(claim("hang", "completion_lost", suspect(5, strength=0.97), scope=frozenset({5})), state)

    assert (found.cause, named(found)) == ("machine", [("node n1", (5,))])


def test_one_agent_that_says_it_twice_makes_it_no_surer() -> None:
    """A state and a line of the kernel that one node's agent sent are one agent's word."""
    held = Suspect(kind="storage", strength=0.5, why="rank 5 waits for NFS", ranks=(5,), evidence=(Evidence(text="D"),))
    state = claim("process", "file_server_wait", held, cause="storage", senders=frozenset({"n1"}))
    once, twice = decided(state), decided(state, server(4, 5, 6, 7, senders=frozenset({"n1"})))

    assert once.culprits[0].probability == twice.culprits[0].probability == 0.5
    assert decided(state, server(4, 5, 6, 7)).culprits[0].probability == 0.75
