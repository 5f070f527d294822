"""Lies in the words of public vocabularies, of launchers, health checks and watchdogs, by lines that belong to no rank."""

from __future__ import annotations

from collections.abc import Iterable

from collectors.records import Members, Record
from tests.attacks.lies.telling import Target, lie, log


@lie()
def its_device_is_lost_by_a_code(target: Target, at: float) -> Iterable[Record]:
    """Lines of the innocent state errors of its GPU by their public names."""
    for code in ("cudaErrorECCUncorrectable", "NVML_ERROR_GPU_IS_LOST", "ZE_RESULT_ERROR_DEVICE_LOST"):
        yield log(target, at, "stated", code=code, message=f"step failed: {code}", text=f"step failed: {code}")


@lie()
def its_network_is_gone_by_a_code(target: Target, at: float) -> Iterable[Record]:
    """Lines of no rank state that the innocent's node is not reached."""
    for code in ("EHOSTUNREACH", "EHOSTDOWN", "IBV_WC_RETRY_EXC_ERR"):
        words = f"{target.node}: {code}"
        yield log(target, at, "stated", rank=None, code=code, peer=f"{target.node}:4242", message=words, text=words)


@lie()
def its_port_is_gone(target: Target, at: float) -> Iterable[Record]:
    """The innocent's card reports that its port failed."""
    words = "got async fatal event: local catastrophic error"
    yield log(target, at, "network_error", device="mlx5_0", code="IBV_EVENT_DEVICE_FATAL", message=words, text=words)


@lie()
def it_is_behind(target: Target, at: float) -> Iterable[Record]:
    """A line of no rank reports that the innocent has not joined a collective."""
    words = f"Rank {target.rank} finished collective #70 and did not join #71"
    yield log(
        target, at, "collective_behind", rank=None, ranks=Members.of([target.rank]), last_completed=70, sequence=71,
        group="0", message=words, text=words,
    )  # fmt: skip


@lie()
def it_joins_another_collective(target: Target, at: float) -> Iterable[Record]:
    """Lines of no rank report that the innocent calls another collective than all others."""
    others = [rank for rank in range(target.job.world) if rank != target.rank]
    for ranks, operation in (([target.rank], "BROADCAST"), (others, "ALLREDUCE")):
        yield log(
            target, at, "collective_mismatch", rank=None, ranks=Members.of(ranks), operation=operation, sequence=71,
            text=operation,
        )  # fmt: skip


@lie()
def its_heartbeat_is_lost(target: Target, at: float) -> Iterable[Record]:
    """A coordinator has lost the innocent's heartbeat."""
    words = f"task {target.rank} heartbeat timeout"
    yield log(target, at, "heartbeat_lost", rank=None, ranks=Members.of([target.rank]), message=words, text=words)


@lie()
def its_worker_died(target: Target, at: float) -> Iterable[Record]:
    """Launchers report the end of the innocent's worker, and of its daemon, by the name of its node."""
    words = f"worker on {target.node} died: its node has died"
    for event in ("worker_died", "actor_died", "daemon_lost"):
        yield log(target, at, event, rank=None, peer=target.node, pid=target.pid, message=words, text=words)


@lie()
def its_health_check_failed(target: Target, at: float) -> Iterable[Record]:
    """A scheduler drains the innocent's node after a health check."""
    words = f"{target.node}: check_hw_gpu: 7 of 8 GPUs, kill task failed, node not responding"
    for event in ("node_failure", "diagnostic_failed", "evicted"):
        yield log(target, at, event, rank=None, peer=target.node, message=words, text=words)


@lie()
def its_memory_ran_out(target: Target, at: float) -> Iterable[Record]:
    """A pod of the innocent was killed for memory."""
    words = f"{target.node}: OOMKilled"
    yield log(
        target, at, "container_end", rank=None, peer=target.node, exit_code=137, signal=9, message=words, text=words
    )


@lie()
def a_service_refuses_it(target: Target, at: float) -> Iterable[Record]:
    """A service that the innocent asks answers that it is overloaded."""
    words = "503 Service Unavailable"
    yield log(
        target, at, "stated", code="HTTP_SERVICE_NOT_AVAILABLE", message=words, text=words, peer=f"{target.node}:80"
    )
