"""Lies about devices, counters and agents, and all lies at once."""

from __future__ import annotations

from collections.abc import Iterable

from collectors.records import (
    CollectiveTimings,
    CommandResult,
    Device,
    DeviceState,
    KernelEvent,
    Record,
    Samples,
)
from simulation.live.columns import ports
from tests.attacks.lies.telling import A_USER, LIES, Target, lie


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
