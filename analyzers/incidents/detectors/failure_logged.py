"""A log reports a failure that ends a rank, or a failure after which the job did not go on.

Programs also log failures that they survive: a handled exception, a restored connection. Those are symptoms only where no step
follows. A job may print any words, those of a failed GPU too: what ends a rank is a symptom at once where an ended process or
its node's kernel backs it, and else like the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.incidents.detectors import detector
from analyzers.incidents.job_views.event_log import SeenEvent
from analyzers.incidents.job_views.job import JobView
from analyzers.model.incident import Symptom
from collectors.records import LogEvent

FATAL = frozenset({
    "watchdog_timeout", "watchdog_abort", "watchdog_stuck", "cuda_error", "fatal_python", "torchrun_failure", "exit",
})  # fmt: skip
SURVIVABLE = frozenset({
    "traceback", "oom", "nccl_error", "connection_closed", "communication_timeout", "network_error", "watchdog_dump",
})  # fmt: skip
STOPPED_BY = frozenset({2, 15})
STOPPED_WITH = frozenset({-2, -15, 130, 143})
LAUNCHERS = frozenset({
    "ChildFailedError", "SignalException", "KeyboardInterrupt", "SystemExit", "ProcessExitedException",
    "ProcessRaisedException",
})  # fmt: skip
"""Exceptions that report the end of another process, or that the job was ended from outside."""
SETTLED_SECONDS = 5.0  # in which the next step would have come
UNMOVED_SECONDS = 30.0  # in which a run without steps that goes on has moved: its counters are read every ten
RELATED_SECONDS = 300.0  # between a failure of a device and what a program logs of it
TEXT_CHARACTERS = 200


@detector("failure_logged")
def detect(view: JobView, now: float) -> Iterator[Symptom]:
    """Yield a crash for the first failure since the job last moved."""
    found = [seen for seen in view.logged.entries if isinstance(seen.event, LogEvent) and _fails(seen.event)]
    if not found:
        return
    since = view.settled_until  # the job went on after older failures
    for seen in found:
        event = seen.event
        if seen.at < since or not isinstance(event, LogEvent) or not _is_lasting(view, seen, event, now):
            continue
        line = next(iter((event.message or event.text).strip().splitlines()), "")[:TEXT_CHARACTERS]
        words = f": {event.exception}: {line}" if event.exception else f": {line}" if line else ""
        whose = view.name(event.rank) if event.rank is not None else seen.node
        yield Symptom(
            kind="crash",
            detector="failure_logged",
            at=seen.at,
            text=f"the log of {whose} reports {event.event}{words}"[: 2 * TEXT_CHARACTERS],
            ranks=() if event.rank is None else (event.rank,),
            nodes=(seen.node,),
        )
        return


def _fails(event: LogEvent) -> bool:
    stopped = event.signal in STOPPED_BY or event.exit_code in STOPPED_WITH
    ended_well = event.exit_code == 0 and event.signal is None
    if event.event not in FATAL | SURVIVABLE or stopped or ended_well:
        return False
    if event.event == "traceback" and not event.exception:
        return False  # it was cut before its last line: a launcher that was asked to stop prints one, too
    return (event.exception or "").rpartition(".")[2] not in LAUNCHERS


def _is_lasting(view: JobView, seen: SeenEvent, event: LogEvent, now: float) -> bool:
    """Whether the failure is fatal by its kind and something beside the log says so, or no step has followed it.

    A run without steps goes on for all that is known, until a rank of it ends, or no witness has moved for half a minute.
    """
    ends = view.ended.values()
    if ends and not view.processes.alive and all(end.well for end in ends):
        return False  # it may be another program's that writes into the same file
    if event.event in FATAL and _is_backed(view, seen):
        return True
    if any(end.at >= seen.at - SETTLED_SECONDS for end in ends):
        return view.newest_step is None or _no_step_since(view, seen)
    if view.newest_step is None or (view.newest_step_at or 0.0) < view.run_began_at <= seen.at:
        return _is_unmoved(view, seen, event, now)
    return _no_step_since(view, seen) and not _may_be_anothers(view, seen, event, now)


def _no_step_since(view: JobView, seen: SeenEvent) -> bool:
    # 2 × the median step time: the present step may have been about to end, and the next has had its time.
    allowed = max(SETTLED_SECONDS, 2.0 * (view.rhythm.median_seconds() or 0.0))
    return view.progress.until >= seen.at + allowed and (view.newest_step_at or 0.0) <= seen.at + allowed / 2


def _is_unmoved(view: JobView, seen: SeenEvent, event: LogEvent, now: float) -> bool:
    """Whether no witness beside the steps has moved for half a minute; where none was read, words that end a rank count."""
    measured = [one for one in view.testimonies(now) if one.witness != "steps" and one.state != "unmeasured"]
    moved_at = max((one.at or 0.0 for one in measured), default=0.0)
    unmoved = now >= seen.at + UNMOVED_SECONDS and moved_at <= seen.at + UNMOVED_SECONDS / 2
    return unmoved and (bool(measured) or (event.event in FATAL and view.newest_step is None))


def _may_be_anothers(view: JobView, seen: SeenEvent, event: LogEvent, now: float) -> bool:
    """Whether the job works on without a step, as one that saves: another program may have written the line.

    Where the line names a rank, that one's process must work; peers that wait for a rank that raised may spin.
    """
    if event.rank is None:
        return not _is_unmoved(view, seen, event, now)
    return view.witnesses.may_work(event.rank, seen.at)


def _is_backed(view: JobView, seen: SeenEvent) -> bool:
    """Whether a process of the job has ended badly since it last moved, or the node's kernel or a device reports trouble.

    What they reported before the run began backs no line that is dated into it: that may be an old one without a time.
    """
    if any(not end.well and end.at >= view.settled_until for end in view.ended.values()):
        return True
    began_at = view.run_began_at if seen.at >= view.run_began_at else 0.0
    of_node = (one.at for one in view.hardware.entries if one.node == seen.node)
    return any(at >= began_at and abs(at - seen.at) <= RELATED_SECONDS for at in of_node)
