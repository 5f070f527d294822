"""Lies about a job: what a liar's agent sends of ranks that other nodes host. Each is a function of the target and an instant.

A liar may know everything about the job: its name, its attempt, which rank is where under which pid. The lies of ``A_USER``
are those that a user of a node can make its honest agent tell, by environments, logs, files and listeners of its own.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from math import inf
from random import Random
from typing import Any

import msgspec

from collectors.records import (
    ARRAY_CODES,
    STEP_COLUMNS,
    CollectiveTimings,
    CommandResult,
    Coverage,
    Device,
    DeviceState,
    Frame,
    KernelEvent,
    LogEvent,
    Members,
    Placement,
    ProcessState,
    RasCommunicator,
    RasPeerDead,
    RasRank,
    Record,
    Samples,
    Steps,
)
from simulation.live.agent import Agent
from simulation.live.columns import ports
from simulation.live.course import Course, Interruption
from simulation.live.job import Attempt, LiveJob
from simulation.live.recorders import recorders
from simulation.live.scene_list import BEGAN_AT, Scene

AHEAD_SECONDS = 3_000.0
OWN_PID = 31_337


@dataclass(frozen=True)
class Target:
    """Whom a liar accuses in a scene: ``rank`` on ``node``, which are innocent. ``at``: of what is true, if anything."""

    scene: Scene
    rank: int
    at: float

    @property
    def job(self) -> LiveJob:
        """Return the job."""
        return self.scene.job

    @property
    def attempt(self) -> Attempt:
        """Return its newest attempt."""
        return self.job.attempts[-1]

    @property
    def node(self) -> str:
        """Return the innocent node."""
        return self.job.node_of(self.rank)

    @property
    def pid(self) -> int:
        """Return the pid of the innocent rank."""
        return self.attempt.pid(self.rank)

    @property
    def job_of(self) -> dict[str, Any]:
        """Return the fields that a record of the job has."""
        return {"job": self.job.name, "attempt": self.attempt.number}

    @property
    def whose(self) -> dict[str, Any]:
        """Return the fields that a record of the innocent rank has."""
        return {**self.job_of, "rank": self.rank}

    @cached_property
    def invented(self) -> LiveJob:
        """Return the same job as the liar tells of it: the innocent rank spins, and all others wait for it."""
        spin = Interruption(self.at - 60.0, "spin", inf, frozenset({self.rank}))
        course = Course(self.job.habits, Random(1), BEGAN_AT, interruptions=(spin,))
        return LiveJob(
            name=self.job.name, habits=self.job.habits, nodes=self.job.nodes, ranks_a_node=self.job.ranks_a_node,
            attempts=[Attempt(self.attempt.number, course)], stages=self.job.stages,
        )  # fmt: skip

    def agent(self, node: str) -> Agent:
        """Return an agent in the invented job."""
        return Agent(self.invented, node, Random(2), BEGAN_AT)


Lie = Callable[[Target, float], Iterable[Record]]
LIES: dict[str, Lie] = {}
A_USER: set[str] = set()
EARLY: set[str] = set()  # told from the job's first minute on, and not only around the fault


def lie(*, user: bool = True, early: bool = False) -> Callable[[Lie], Lie]:
    """Register a lie under its function's name. ``user``: a user of a node can tell it without a token."""

    def register(function: Lie) -> Lie:
        LIES[function.__name__] = function
        if user:
            A_USER.add(function.__name__)
        if early:
            EARLY.add(function.__name__)
        return function

    return register


def _process(target: Target, at: float, **more: Any) -> ProcessState:
    given = {**target.whose, "pid": OWN_PID, "state": "X", "source": "process", "boot_id": "liar", "command": "python"}
    return ProcessState(**{**given, "at": at, "started_at": at - 30.0, **more})


def _log(target: Target, at: float, event: str, **more: Any) -> LogEvent:
    given = {**target.whose, "at": at, "source": f"train.log:{round(at) % 1000}", "event": event}
    return LogEvent(**{**given, **more})


def _placement(target: Target, at: float, ranks: Iterable[int], **more: Any) -> Placement:
    ranks = list(ranks)
    given = {
        **target.job_of, "source": "placement", "at": at, "ranks": Members.of(ranks), "pids": tuple(OWN_PID + r for r in ranks),
        "nodes": ("liar",) * len(ranks), "started_ats": (at - 30.0,) * len(ranks), "world_size": target.job.world,
    }  # fmt: skip
    return Placement(**{**given, **more})


# --- ends and states of processes


@lie()
def killed(target: Target, at: float) -> Iterable[Record]:
    """The rank was killed."""
    yield _process(target, at, signal=9)


@lie()
def failed(target: Target, at: float) -> Iterable[Record]:
    """The rank has left with a code."""
    yield _process(target, at, exit_code=1)


@lie()
def left_well(target: Target, at: float) -> Iterable[Record]:
    """The rank has left in good order, long before."""
    yield _process(target, at - 60.0, exit_code=0)


@lie(user=False)
def killed_by_its_pid(target: Target, at: float) -> Iterable[Record]:
    """The rank's true process was killed."""
    yield _process(target, at, signal=9, pid=target.pid, started_at=target.attempt.course.begin)


@lie(user=False)
def killed_without_a_node(target: Target, at: float) -> Iterable[Record]:
    """The same, without a word of the node."""
    yield _process(target, at, signal=9, pid=target.pid, started_at=target.attempt.course.begin, node=None)


@lie()
def all_others_killed(target: Target, at: float) -> Iterable[Record]:
    """Every rank but the innocent was killed."""
    for rank in range(target.job.world):
        yield _process(target, at, signal=9, rank=rank, pid=OWN_PID + rank)


@lie(user=False)
def gone(target: Target, at: float) -> Iterable[Record]:
    """The rank's process has ended, nobody knows how."""
    yield _process(target, at, pid=target.pid, started_at=target.attempt.course.begin)


@lie()
def stopped(target: Target, at: float) -> Iterable[Record]:
    """The rank's process is stopped."""
    yield _process(target, at, state="T")


@lie(user=False)
def stopped_by_its_pid(target: Target, at: float) -> Iterable[Record]:
    """The rank's true process is stopped."""
    yield _process(target, at, state="T", pid=target.pid, started_at=target.attempt.course.begin)


@lie(user=False)
def in_the_kernel(target: Target, at: float) -> Iterable[Record]:
    """The rank is stuck in the driver."""
    yield _process(
        target, at, state="D", wait_channel="nv_wait", pid=target.pid, started_at=target.attempt.course.begin
    )


@lie(user=False)
def all_alive(target: Target, at: float) -> Iterable[Record]:
    """Every rank lives, the one that does not too."""
    for rank in range(target.job.world):
        yield _process(target, at, rank=rank, state="R", pid=target.attempt.pid(rank), started_at=BEGAN_AT)


@lie()
def all_begun_anew(target: Target, at: float) -> Iterable[Record]:
    """Every rank has a younger process."""
    for rank in range(target.job.world):
        yield _process(target, at, rank=rank, state="R", pid=OWN_PID + rank)


@lie(user=False)
def killed_in_an_hour(target: Target, at: float) -> Iterable[Record]:
    """The rank is killed in the future."""
    yield _process(target, at + AHEAD_SECONDS, signal=9, pid=target.pid)


@lie(user=False)
def dated_ahead(target: Target, at: float) -> Iterable[Record]:
    """The liar itself is in the future: everybody else must have been silent since long."""
    yield _process(target, at + AHEAD_SECONDS, state="R")
    yield Coverage(at=at + AHEAD_SECONDS)
    yield _placement(target, at + AHEAD_SECONDS, [target.rank])


@lie(user=False)
def a_child_of_it(target: Target, at: float) -> Iterable[Record]:
    """A helper of the rank waits for files."""
    yield _process(target, at, state="D", wait_channel="rpc_wait_bit_killable", parent_pid=target.pid)


# --- NCCL RAS


def _communicator(target: Target, at: float, **of_rank: Any) -> RasCommunicator:
    ranks = tuple(
        RasRank(
            rank=rank, host=target.job.node_of(rank), pid=target.attempt.pid(rank),
            **(of_rank if rank == target.rank else {}),
        )
        for rank in range(target.job.world)
    )  # fmt: skip
    return RasCommunicator(
        **target.job_of, source="ras 127.0.0.1:28028", at=at, hash="9f", secondary_hash="1", size=target.job.world,
        status="RUNNING", ranks=ranks,
    )  # fmt: skip


@lie()
def ras_dead_peer(target: Target, at: float) -> Iterable[Record]:
    """RAS lost the innocent's process."""
    yield RasPeerDead(**target.job_of, source="ras", at=at, host=target.node, pid=target.pid)


@lie()
def ras_dead_host(target: Target, at: float) -> Iterable[Record]:
    """RAS lost the innocent's node."""
    yield RasPeerDead(**target.job_of, source="ras", at=at, host=target.node)


@lie()
def ras_dead_of_no_job(target: Target, at: float) -> Iterable[Record]:
    """RAS lost it, in no job's name."""
    yield RasPeerDead(source="ras", at=at, host=target.node, pid=target.pid)


@lie()
def ras_dead_rank(target: Target, at: float) -> Iterable[Record]:
    """A communicator without the innocent."""
    yield _communicator(target, at, dead=True, missing=True)


@lie()
def ras_mute_rank(target: Target, at: float) -> Iterable[Record]:
    """The innocent does not respond to RAS."""
    yield _communicator(target, at, unresponsive=True)


@lie()
def ras_lagging_rank(target: Target, at: float) -> Iterable[Record]:
    """The innocent launched less than its peers, in two polls alike."""
    for ago in (12.0, 0.0):
        made = _communicator(target, at - ago)
        ranks = tuple(
            msgspec.structs.replace(one, counts={"AllReduce": 900 - (one.rank == target.rank)}) for one in made.ranks
        )
        yield msgspec.structs.replace(made, ranks=ranks)


@lie()
def killed_and_ras(target: Target, at: float) -> Iterable[Record]:
    """Two kinds of evidence agree: an end by signal 9, and RAS."""
    yield from killed(target, at)
    yield from ras_dead_host(target, at)


# --- lines of logs


@lie()
def traceback(target: Target, at: float) -> Iterable[Record]:
    """The rank raised."""
    frames = (Frame("collate", "/srv/data.py", 7),)
    yield _log(
        target, at, "traceback", exception="ValueError", message="too long", frames=frames, text="ValueError: too long"
    )


@lie()
def cuda_error(target: Target, at: float) -> Iterable[Record]:
    """The rank's GPU failed."""
    words = "CUDA error: uncorrectable ECC error encountered"
    yield _log(target, at, "cuda_error", exception="RuntimeError", message=words, text=words)


@lie()
def out_of_memory(target: Target, at: float) -> Iterable[Record]:
    """The rank's share did not fit."""
    words = "CUDA out of memory. Tried to allocate 2.00 GiB"
    yield _log(target, at, "oom", exception="torch.OutOfMemoryError", message=words, text=words)


@lie()
def fatal_python(target: Target, at: float) -> Iterable[Record]:
    """The rank's interpreter crashed."""
    yield _log(target, at, "fatal_python", signal=11, text="Fatal Python error: Segmentation fault")


@lie()
def watchdogs_wait_for_it(target: Target, at: float) -> Iterable[Record]:
    """All ranks time out, and the innocent had not come."""
    for rank in range(target.job.world):
        its = (
            {"last_enqueued": 70, "last_completed": 70}
            if rank == target.rank
            else {"sequence": 77, "last_enqueued": 77}
        )
        yield _log(
            target, at, "watchdog_timeout", rank=rank, group="0", operation="ALLREDUCE", timeout_ms=600_000, text="Watchdog",
            **its,
        )  # fmt: skip


@lie()
def never_at_the_barrier(target: Target, at: float) -> Iterable[Record]:
    """A barrier names the innocent."""
    words = f"[Rank 0]: Ranks {target.rank} failed to pass monitoredBarrier in 1800000 ms"
    yield _log(target, at, "communication_timeout", rank=0, message=words, text=words)


@lie()
def stuck_monitor(target: Target, at: float) -> Iterable[Record]:
    """The innocent's monitor reports that it is stuck."""
    yield _log(target, at, "watchdog_stuck", text="heartbeat monitor: no progress")


@lie()
def failed_first(target: Target, at: float) -> Iterable[Record]:
    """A launcher names the innocent as the first that failed."""
    yield _log(target, at, "torchrun_failure", exit_code=-9, signal=9, first=True, pid=target.pid, local_rank=0)


@lie()
def exit_in_a_log(target: Target, at: float) -> Iterable[Record]:
    """A launcher reports the innocent's end."""
    yield _log(target, at, "exit", exit_code=1, first=True)


@lie()
def node_failure(target: Target, at: float) -> Iterable[Record]:
    """The scheduler lost the innocent's node."""
    words = f"slurmstepd: error: *** STEP 4.0 ON {target.node} CANCELLED DUE TO NODE FAILURE ***"
    yield _log(target, at, "node_failure", rank=None, text=words, message=words)


@lie()
def preempted(target: Target, at: float) -> Iterable[Record]:
    """The scheduler took the job's place."""
    yield _log(target, at, "preempted", rank=None, text="CANCELLED DUE TO PREEMPTION")


@lie()
def time_limit(target: Target, at: float) -> Iterable[Record]:
    """The job's time was over."""
    yield _log(target, at, "time_limit", rank=None, text="CANCELLED DUE TO TIME LIMIT")


@lie()
def lost_connections(target: Target, at: float) -> Iterable[Record]:
    """All others lost their connection to the innocent."""
    for rank in range(target.job.world):
        if rank != target.rank:
            words = "Connection closed by peer"
            yield _log(
                target, at, "connection_closed", rank=rank, exception="DistBackendError", message=words, text=words,
                peer=f"{target.node}:4242",
            )  # fmt: skip


# --- where the ranks are


@lie(early=True)
def its_place(target: Target, at: float) -> Iterable[Record]:
    """The innocent rank runs on the liar's node."""
    yield _placement(target, at, [target.rank])


@lie(early=True)
def everybodys_place(target: Target, at: float) -> Iterable[Record]:
    """Every rank runs on the liar's node."""
    yield _placement(target, at, range(target.job.world))


@lie(user=False, early=True)
def its_place_by_its_pid(target: Target, at: float) -> Iterable[Record]:
    """The innocent rank's true process runs on the liar's node."""
    yield _placement(target, at, [target.rank], pids=(target.pid,), started_ats=())


@lie(user=False)
def its_place_on_no_node(target: Target, at: float) -> Iterable[Record]:
    """A placement that names no node."""
    yield _placement(target, at, [target.rank], nodes=())
    yield from killed_without_a_node(target, at)


@lie()
def moved_and_killed(target: Target, at: float) -> Iterable[Record]:
    """The innocent rank was begun anew on the liar's node, and was killed."""
    yield _placement(target, at - 1.0, [target.rank])
    yield _process(target, at, signal=9, pid=OWN_PID + target.rank)


@lie(early=True)
def one_rank_more(target: Target, at: float) -> Iterable[Record]:
    """The job has a rank more, which was killed."""
    more = target.job.world
    yield _placement(target, at - 1.0, [more], world_size=more + 1)
    yield _process(target, at, rank=more, signal=9, pid=OWN_PID + more)


@lie(early=True)
def a_million_ranks(target: Target, at: float) -> Iterable[Record]:
    """The job is far larger than anybody knew."""
    yield _placement(target, at, [target.job.world + 7], world_size=1_000_000)


@lie()
def a_later_attempt(target: Target, at: float) -> Iterable[Record]:
    """The job has begun anew, and all is well."""
    number = target.attempt.number + 98
    yield _placement(target, at, range(target.job.world), attempt=number)
    yield _steps(target, at, attempt=number)


@lie()
def an_earlier_attempt(target: Target, at: float) -> Iterable[Record]:
    """The attempt before fails."""
    yield _placement(target, at, range(target.job.world), attempt=target.attempt.number - 1)
    yield _process(target, at, signal=9, attempt=target.attempt.number - 1)


@lie(user=False)
def of_no_attempt(target: Target, at: float) -> Iterable[Record]:
    """The same job without an attempt."""
    yield _placement(target, at, range(target.job.world), attempt=None)
    yield _process(target, at, signal=9, attempt=None)


@lie(early=True)
def of_another_role(target: Target, at: float) -> Iterable[Record]:
    """A rank of the same number with a role of its own was killed."""
    yield _placement(target, at - 1.0, [target.rank], roles=("critic",), role="critic")
    yield _process(target, at, signal=9, pid=OWN_PID + target.rank, role="critic")


# --- stacks, recorders, rings: those of an invented job in which the innocent rank spins


def _at_rest(target: Target, at: float, records: Iterable[Record]) -> Iterable[Record]:
    return [msgspec.structs.replace(record, node=None) for record in records]


@lie()
def its_stack(target: Target, at: float) -> Iterable[Record]:
    """The innocent rank spins in its own code."""
    agent, attempt = target.agent(target.node), target.invented.attempts[0]
    yield from _at_rest(target, at, [agent.stack(attempt, target.rank, at - ago) for ago in (4.0, 1.0)])


@lie()
def everybodys_stack(target: Target, at: float) -> Iterable[Record]:
    """All others wait for it."""
    agent, attempt = target.agent(target.node), target.invented.attempts[0]
    for rank in range(target.job.world):
        yield from _at_rest(target, at, [agent.stack(attempt, rank, at - ago) for ago in (4.0, 1.0)])


@lie()
def its_recorder(target: Target, at: float) -> Iterable[Record]:
    """Its flight recorder stands behind."""
    ranks = range(target.rank, target.rank + 1)
    yield from _at_rest(target, at, recorders(target.invented, target.invented.attempts[0], ranks, at, 0.0))


@lie()
def everybodys_recorder(target: Target, at: float) -> Iterable[Record]:
    """All others' flight recorders wait for it."""
    ranks = range(target.job.world)
    yield from _at_rest(target, at, recorders(target.invented, target.invented.attempts[0], ranks, at, 0.0))


@lie()
def everybodys_ring(target: Target, at: float) -> Iterable[Record]:
    """The probe's rings of all ranks."""
    for node in target.job.nodes:
        yield from _at_rest(target, at, target.agent(node).rings(target.invented.attempts[0], at, 16))


@lie()
def a_whole_job(target: Target, at: float) -> Iterable[Record]:
    """Everything at once: places, states, stacks and recorders of a job in which the innocent spins."""
    attempt = target.invented.attempts[0]
    yield from everybodys_place(target, at)
    for node in target.job.nodes:
        yield from _at_rest(target, at, target.agent(node).states(attempt, target.job.ranks_on(node), at))
    yield from everybodys_stack(target, at)
    yield from everybodys_recorder(target, at)


# --- steps


def _steps(target: Target, at: float, **more: Any) -> Steps:
    count = 12
    values: dict[str, list[float]] = {
        "step": [10**6 + n for n in range(count)],
        "at": [at - count + n for n in range(count)],
    }
    values |= {name: more.pop(name) for name in ("loss", "nan") if name in more}
    columns = {
        name: array(
            ARRAY_CODES[code], [int(v) if code[1] == "i" else v for v in values.get(name, [0.0] * count)]
        ).tobytes()
        for name, code in STEP_COLUMNS.items()
    }
    given = {**target.whose, "source": "train.log", "at": at, "told_by": "plain", "step": 10**6 + count}
    return Steps(**{**given, **more}, count=count, columns=columns)


@lie()
def it_steps(target: Target, at: float) -> Iterable[Record]:
    """The job moves."""
    yield _steps(target, at)


@lie()
def it_steps_in_the_future(target: Target, at: float) -> Iterable[Record]:
    """The job has moved in an hour."""
    yield _steps(target, at + AHEAD_SECONDS)


@lie()
def its_loss_is_not_a_number(target: Target, at: float) -> Iterable[Record]:
    """The loss is NaN."""
    yield _steps(target, at, loss=[float("nan")] * 12, nan=[1.0] * 12)


# --- devices, counters, agents


@lie(user=False)
def its_gpu_is_lost(target: Target, at: float) -> Iterable[Record]:
    """The innocent's GPU fell off the bus, by its name."""
    device = f"GPU-{target.node}-0"
    yield Device(at=at, type="gpu", id=device, index=0, pci="0000:1b:00", **target.job_of)
    yield DeviceState(at=at, device=device, index=0, pci="0000:1b:00", state="lost", **target.job_of)
    yield KernelEvent(at=at, event="xid", code=79, pci="0000:1b:00", pid=target.pid, text="off the bus", **target.whose)


@lie(user=False)
def its_memory_was_short(target: Target, at: float) -> Iterable[Record]:
    """A kernel killed the innocent's pid for memory."""
    yield KernelEvent(at=at, event="oom_kill", pid=target.pid, process="python", text="Out of memory: Killed process")


@lie(user=False)
def a_link_is_down(target: Target, at: float) -> Iterable[Record]:
    """A port flaps, again and again."""
    for ago in (8.0, 5.0, 2.0):
        yield KernelEvent(at=at - ago, event="link_down", device="mlx5_0", text="mlx5_0: Link down", **target.job_of)


@lie(user=False)
def bytes_move(target: Target, at: float) -> Iterable[Record]:
    """The job's ports are busy."""
    made = ports(at, at)
    yield Samples(**{name: getattr(made, name) for name in made.__struct_fields__} | target.job_of)


@lie(user=False)
def answers_for_it(target: Target, at: float) -> Iterable[Record]:
    """The innocent's agent has answered, and has nothing."""
    for verb in ("stacks", "recorders", "read"):
        yield CommandResult(**target.whose, at=at, command=f"1-{target.node}-{verb}", verb=verb, outcome="nothing")


@lie()
def slow_collectives(target: Target, at: float) -> Iterable[Record]:
    """NCCL's inspector measured the innocent."""
    yield CollectiveTimings(
        **target.whose, at=at, communicator="9f", size=target.job.world, communicator_rank=target.rank
    )


@lie()
def everything_at_once(target: Target, at: float) -> Iterable[Record]:
    """All of it in one batch."""
    for name in sorted(A_USER - {"everything_at_once"}):
        yield from LIES[name](target, at)
