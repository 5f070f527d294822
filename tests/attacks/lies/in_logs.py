"""Lies in lines of logs."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from collectors.files.parsers.steps import parse
from collectors.records import Frame, Record, block
from tests.attacks.lies.telling import Target, lie, log
from tests.support.straggler_logs import MegatronJob


@lie()
def traceback(target: Target, at: float) -> Iterable[Record]:
    """The rank raised."""
    frames = (Frame("collate", "/srv/data.py", 7),)
    yield log(
        target, at, "traceback", exception="ValueError", message="too long", frames=frames, text="ValueError: too long"
    )


@lie()
def cuda_error(target: Target, at: float) -> Iterable[Record]:
    """The rank's GPU failed."""
    words = "CUDA error: uncorrectable ECC error encountered"
    yield log(target, at, "cuda_error", exception="RuntimeError", message=words, text=words)


@lie()
def out_of_memory(target: Target, at: float) -> Iterable[Record]:
    """The rank's share did not fit."""
    words = "CUDA out of memory. Tried to allocate 2.00 GiB"
    yield log(target, at, "oom", exception="torch.OutOfMemoryError", message=words, text=words)


@lie()
def fatal_python(target: Target, at: float) -> Iterable[Record]:
    """The rank's interpreter crashed."""
    yield log(target, at, "fatal_python", signal=11, text="Fatal Python error: Segmentation fault")


@lie()
def watchdogs_wait_for_it(target: Target, at: float) -> Iterable[Record]:
    """All ranks time out, and the innocent had not come."""
    for rank in range(target.job.world):
        its = (
            {"last_enqueued": 70, "last_completed": 70}
            if rank == target.rank
            else {"sequence": 77, "last_enqueued": 77}
        )
        yield log(
            target, at, "watchdog_timeout", rank=rank, group="0", operation="ALLREDUCE", timeout_ms=600_000, text="Watchdog",
            **its,
        )  # fmt: skip


@lie()
def never_at_the_barrier(target: Target, at: float) -> Iterable[Record]:
    """A barrier names the innocent."""
    words = f"[Rank 0]: Ranks {target.rank} failed to pass monitoredBarrier in 1800000 ms"
    yield log(target, at, "communication_timeout", rank=0, message=words, text=words)


@lie()
def stuck_monitor(target: Target, at: float) -> Iterable[Record]:
    """The innocent's monitor reports that it is stuck."""
    yield log(target, at, "watchdog_stuck", text="heartbeat monitor: no progress")


@lie()
def failed_first(target: Target, at: float) -> Iterable[Record]:
    """A launcher names the innocent as the first that failed."""
    yield log(target, at, "torchrun_failure", exit_code=-9, signal=9, first=True, pid=target.pid, local_rank=0)


@lie()
def exit_in_a_log(target: Target, at: float) -> Iterable[Record]:
    """A launcher reports the innocent's end."""
    yield log(target, at, "exit", exit_code=1, first=True)


@lie()
def node_failure(target: Target, at: float) -> Iterable[Record]:
    """The scheduler lost the innocent's node."""
    words = f"slurmstepd: error: *** STEP 4.0 ON {target.node} CANCELLED DUE TO NODE FAILURE ***"
    yield log(target, at, "node_failure", rank=None, text=words, message=words)


@lie()
def preempted(target: Target, at: float) -> Iterable[Record]:
    """The scheduler took the job's place."""
    yield log(target, at, "preempted", rank=None, text="CANCELLED DUE TO PREEMPTION")


@lie()
def time_limit(target: Target, at: float) -> Iterable[Record]:
    """The job's time was over."""
    yield log(target, at, "time_limit", rank=None, text="CANCELLED DUE TO TIME LIMIT")


@lie()
def lost_connections(target: Target, at: float) -> Iterable[Record]:
    """All others lost their connection to the innocent."""
    for rank in range(target.job.world):
        if rank != target.rank:
            words = "Connection closed by peer"
            yield log(
                target, at, "connection_closed", rank=rank, exception="DistBackendError", message=words, text=words,
                peer=f"{target.node}:4242",
            )  # fmt: skip


@lie()
def named_by_a_detector(target: Target, at: float) -> Iterable[Record]:
    """A detector of stragglers in a log of every rank has named the innocent in ten reports, and does it again."""
    job = MegatronJob(ranks=target.job.world, slow={target.rank: 1.5}, listed=2)
    given = parse(job.log(10).encode(), "train.log", 0, "node", at)
    for reports in block.decode(given["stragglers"]):
        for rank in range(target.job.world):
            yield msgspec.structs.replace(reports, **{**target.job_of, "rank": rank, "at": at})
