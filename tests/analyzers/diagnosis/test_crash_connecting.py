"""Ranks that fail while they connect: who came late is no culprit, and a job of which a process died is in no pause."""

from __future__ import annotations

import pytest

from analyzers.model.topology import infer
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.records import Frame, Members, Placement, ProcessState, Record, StackDump, Thread
from tests.support.crash_claims import only, raised
from tests.support.live_hangs import KNOWLEDGE, START, named

PAIR = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:144]"
FAILED = {
    "refused": ("RuntimeError", f"Gloo connectFullMesh failed with {PAIR} timed out connecting: SO_ERROR: Connection refused"),
    "no error": ("RuntimeError", f"Gloo connectFullMesh failed with {PAIR} no error"),
    "the store": ("DistNetworkError", "The client socket has timed out after 60000ms while trying to connect to (n0, 29401)."),
    "the rendezvous": ("RendezvousTimeoutError", ""),
    "clients": ("DistStoreError", "Timed out after 31 seconds waiting for clients. 3/4 clients joined."),
}  # fmt: skip
IMPORTS = (Frame("_find_and_load", "<frozen importlib._bootstrap>", 1007), Frame("<module>", "/srv/train.py", 3))
CONNECTS = (
    Frame("__init__", "/x/site-packages/torch/distributed/distributed_c10d.py", 2000),
    Frame("init_process_group", "/x/site-packages/torch/distributed/distributed_c10d.py", 1600),
    Frame("main", "/srv/train.py", 40),
)


@pytest.mark.parametrize("how", FAILED)
@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_the_rank_that_came_late_is_not_named(how: str, ranks: int) -> None:
    """All others failed to connect: it may have been slow to start, or any of their own addresses was wrong."""
    exception, message = FAILED[how]
    found = only([raised(rank, exception, message, at=START + rank) for rank in range(1, ranks)], ranks=ranks)

    assert (found.symptom, found.cause, found.suspects) == ("crash", "unknown", ())


def restarted(how: str = "refused", *, ended: bool = True, log: bool = True) -> list[Record]:
    """A job on one node that connects: rank 2 still imports, rank 0 fails and ends, and its launcher ends the others."""
    exception, message = FAILED[how]
    whose = {"node": "gpu-0", "job": "llama", "attempt": 1}
    found: list[Record] = [
        Placement(
            **whose, source="placement", at=START, boot_id="b", ranks=Members.of(range(4)), nodes=("gpu-0",) * 4,
            pids=tuple(range(100, 104)), world_size=4,
        )
    ]  # fmt: skip
    for rank in range(4):
        of_rank = whose | {"rank": rank, "pid": 100 + rank, "boot_id": "b"}
        frames = IMPORTS if rank == 2 else CONNECTS
        for at in (10.0, 20.0):
            found.append(ProcessState(**of_rank, source="process", state="S", at=START + at, cpu_seconds=at))
            found.append(
                StackDump(
                    **of_rank, source=f"stacks/{rank}", at=START + at, tool="py-spy",
                    threads=(Thread(frames=frames, main=True, name="MainThread"),),
                )
            )  # fmt: skip
        if ended:
            end = {"exit_code": 1} if rank == 0 else {"signal": 15}
            found.append(ProcessState(**of_rank, source="process", state="X", at=START + 30.0 + (rank > 0), **end))  # type: ignore[arg-type]
    if log:
        line = raised(0, exception, message, at=START + 29.0)
        found.append(type(line)(**{name: getattr(line, name) for name in line.__struct_fields__} | whose))
    return found


def verdict(records: list[Record], looks: int | None = 2) -> Verdict:
    """Judge as the engine does, in an incident that opened at the first look; None: as a reader of files."""
    window = Window.build(records, live=looks is not None, since=START + 10.0)
    return judge(window, infer(window), KNOWLEDGE, rounds=looks)


@pytest.mark.parametrize("how", FAILED)
@pytest.mark.parametrize(("log", "looks"), [(True, 1), (True, 2), (True, None), (False, 2)])
def test_a_job_of_which_a_process_died_is_in_no_pause(how: str, log: bool, looks: int | None) -> None:
    """What one rank still did then says nothing of why another ended."""
    found = verdict(restarted(how, log=log), looks)

    assert found.symptom == "crash"
    assert found.cause != "none"
    assert 2 not in named(found)
    assert not [root for root in found.roots if root.fault_class.startswith("pause_")]


def test_a_job_that_starts_is_in_a_pause() -> None:
    """Nobody has died: the others wait for the one that still imports."""
    found = verdict(restarted(ended=False, log=False))

    assert (found.cause, found.culprits) == ("none", ())
    assert [root.fault_class for root in found.roots] == ["pause_start"]
