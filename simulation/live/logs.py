"""The ends of a job's processes after the first one, and the log lines that report them."""

from __future__ import annotations

from random import Random

from collectors.records import Frame, LogEvent
from simulation.live.job import Attempt, End, Report
from simulation.live.scenes import Sketch


def ends(random: Random, drawn: Sketch, first: int, how: End) -> dict[int, End]:
    """Return the first rank's end, and those of the others, which the launchers terminate."""
    ends = {rank: End(how.at + random.uniform(0.08, 2.0), signal=15) for rank in range(drawn.world)}
    return ends | {first: how}


def traceback(drawn: Sketch, attempt: Attempt, rank: int, words: tuple[str, str], function: str) -> Report:
    """Return what a rank wrote before it left: an exception, its words, and where."""
    at = attempt.ends[rank].at
    frames = (Frame(function, "/srv/train/data.py", 70), Frame("main", "/srv/train/train.py", 209))
    event = LogEvent(
        source=f"rank{rank}.log:133", at=at, job=drawn.name, attempt=attempt.number, rank=rank, event="traceback",
        exception=words[0], message=words[1], frames=frames, text=f"{words[0]}: {words[1]}",
    )  # fmt: skip
    return Report(at + drawn.random.uniform(0.8, 5.5), drawn.node_of(rank), event)


def launcher(drawn: Sketch, attempt: Attempt, first: int) -> list[Report]:
    """What the launcher of the first node writes: which rank failed first, and which it terminated."""
    node, end = drawn.node_of(first), attempt.ends[first]
    sent_at = end.at + drawn.random.uniform(1.0, 6.0)
    whose = {"job": drawn.name, "attempt": attempt.number}
    reports = []
    for rank in (rank for rank in range(drawn.world) if drawn.node_of(rank) == node):
        its = attempt.ends[rank]
        code = its.exit_code if its.exit_code is not None else -(its.signal or 0)
        event = LogEvent(
            **whose, source=f"torchrun.log:{190 + rank}", at=end.at + 0.3, rank=rank, event="torchrun_failure",  # type: ignore[arg-type]
            exit_code=code, signal=its.signal, pid=attempt.pid(rank), local_rank=rank % drawn.ranks_a_node,
            first=rank == first,
        )  # fmt: skip
        reports.append(Report(sent_at, node, event))
    return reports


def watchdog(drawn: Sketch, attempt: Attempt, rank: int, at: float) -> Report:
    """Return what a rank's watchdog wrote when a collective's time was over."""
    text = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=977, OpType=ALLREDUCE, Timeout(ms)=600000)"
    event = LogEvent(
        source=f"rank{rank}.log:140", at=at, job=drawn.name, attempt=attempt.number, rank=rank,
        event="watchdog_timeout", text=text, sequence=977, operation="ALLREDUCE", elapsed_ms=600_100, timeout_ms=600_000,
        pid=attempt.pid(rank),
    )  # fmt: skip
    return Report(at + 0.9, drawn.node_of(rank), event)
