"""What the platform's own lines say of a job: how it was ended, what its pods wait for, what failed before."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from analyzers.diagnosis.crash.evictions import used_more
from analyzers.diagnosis.crash.failures import ECHOES, OWN, SPOKEN, Failure, place
from analyzers.model.finding import Evidence
from analyzers.model.window import Window
from collectors.records import STEP_COLUMNS, LogEvent, Steps

MANY_UNHEARD = 3  # nodes
STOOD_SECONDS = 60.0
"""At least so long without a step before the end, and so many times the longest gap before, is a standstill."""
STOOD_GAPS, FEWEST_GAPS = 5.0, 5
PLUGIN, DAEMON = "plugin", "daemon"  # a refusal's operation: a scheduler's plugin, or a daemon itself, failed
FULL, ENDED = "full", "ended"  # a node ran short of something; the platform took the place
OWN_USE = "own"  # a container used more of its node than it asked for, or than its limit
PLANNED = "planned"  # a person or an autoscaler had the place emptied
STATUS = "status"  # a list's column: the reason is elsewhere
UNHEARD = "unheard"  # a lost node's operation: it did not answer
ASKS = frozenset({"shutdown", "cancelled", "time_limit"})
STOPS = frozenset({"cancelled", "time_limit"})
"""Words of who ends the whole job: what follows them without words is theirs (Slurm: SIGTERM, and SIGKILL after KillWait)."""
WORDLESS = frozenset({"killed", "crashed", "aborted", "exit"})
BY_KEY = "a person stopped it (Ctrl-C), and nothing failed before"
UNSEEN = "the ranks' stacks, flight-recorder dumps or process states from before the job was ended"


def how_ended(events: Sequence[LogEvent]) -> str:
    """Return how the job was ended from outside, in words: by the signal that its lines name, or a cancellation."""
    if any(event.signal == signal.SIGINT or event.exception == "KeyboardInterrupt" for event in events):
        return "interrupted (SIGINT)"
    if any(event.signal == signal.SIGHUP for event in events):
        return "ended with its terminal (SIGHUP)"
    if all(event.event in {"cancelled", "step_cancelled"} for event in events):
        return "cancelled"
    return "asked to end (SIGTERM)"


def interrupted(ended: Sequence[LogEvent]) -> bool:
    """Whether a process was interrupted by SIGINT: a person's key, or the scheduler's first word; no fault raises it."""
    return any(event.exception == "KeyboardInterrupt" for event in ended)


def asked_to_end(classified: Sequence[tuple[str, LogEvent]], failures: Sequence[Failure]) -> list[LogEvent]:
    """Return the lines that ask a job to end: of a scheduler, of a person, or of a launcher that was asked itself.

    A step is cancelled by its own srun, too, after a task that failed, whose line comes first. It counts where every task that
    was killed was so after it.
    """
    asked = [event for kind, event in classified if kind in ASKS]
    killed = [failure for failure in failures if failure.kind in {"killed", "terminated"}]
    steps = [event for kind, event in classified if kind == "step_ended" and "CANCELLED" in event.text]
    after = bool(killed) and all(_came_after(failure, {"killed", "terminated"}, steps) for failure in killed)
    return [*asked, *(steps if after else [])]


def failed_apart(
    classified: Sequence[tuple[str, LogEvent]], failures: Iterable[Failure], asked: Sequence[LogEvent]
) -> bool:
    """Whether a process failed otherwise than one does whose job is ended: by SIGTERM, or after that word without its own.

    After a launcher's own word, which may be an answer to another node's failure, only a lost peer proves nothing.
    """
    stops = [event for kind, event in classified if kind in STOPS or _is_interrupt(event)]
    stops += [event for event in asked if event.event == "step_cancelled"]
    dead = [failure for failure in failures if failure.kind not in {"", "terminated"}]
    return not all(
        _came_after(one, WORDLESS, stops) or _came_after(one, ECHOES, [*asked, *stops], "echo") for one in dead
    )


def not_killed_after(calls: Sequence[LogEvent], failures: Iterable[Failure]) -> list[Failure]:
    """Return those whom no SIGKILL ended after a program had ended the job itself."""
    return [failure for failure in failures if not _came_after(failure, {"killed"}, calls)]


def _came_after(failure: Failure, kinds: Collection[str], ends: Sequence[LogEvent], kind: str | None = None) -> bool:
    """Whether a process ended in one of these ways, and all that shows it is later than an end of its job."""
    shown = [event for each, event in failure.classified if each in kinds]
    return (
        failure.kind in ({kind} if kind else kinds)
        and bool(ends)
        and all(any(_after(event, end) for end in ends) for event in shown)
    )


def _is_interrupt(event: LogEvent) -> bool:
    return event.exception == "KeyboardInterrupt" or (event.event == "terminated" and event.signal == signal.SIGINT)


def _after(event: LogEvent, end: LogEvent) -> bool:
    (file, line), (other, before) = place(event.source), place(end.source)
    if event.at is not None and end.at is not None:
        return event.at > end.at or (event.at == end.at and file == other and line > before)
    return file == other and line > before


def standstill(window: Window, ends: Sequence[LogEvent]) -> Evidence | None:
    """Return the last step of a job that took none for long before it was ended; None: it did, or no record shows it.

    Of a live job the engine knows when it stood still.
    """
    end = min((event.at for event in ends if event.at is not None), default=None)
    series = [] if window.live or end is None else [one for one in window.records_of(Steps) if _whole(one)]
    if end is None or not series:
        return None
    at, numbers = (
        np.concatenate([np.frombuffer(one.columns[name], STEP_COLUMNS[name]) for one in series])
        for name in ("at", "step")
    )
    if len(at) <= FEWEST_GAPS or not np.isfinite(at).all() or at.max() > end:
        return None
    last, longest, newest = float(at.max()), float(np.diff(np.sort(at)).max()), int(numbers[int(at.argmax())])
    if end - last < max(STOOD_SECONDS, STOOD_GAPS * longest):
        return None
    named = f" after step {newest}" if newest >= 0 else ""
    said = f"no step{named} in the {end - last:,.0f} s until the job was {how_ended(ends)}"
    text = f"{said}; the longest gap before was {longest:.1f} s"
    return Evidence(text=text, source=series[0].source, at=last)


def _whole(steps: Steps) -> bool:
    sizes = (np.dtype(STEP_COLUMNS[name]).itemsize * steps.count for name in ("at", "step"))
    return steps.count > 0 and [len(steps.columns.get(name, b"")) for name in ("at", "step")] == list(sizes)


def older_than(own: Sequence[Failure], events: Sequence[LogEvent], seconds: float) -> bool:
    """Return whether a rank failed by itself well before the first of the events; unknown times prove nothing."""
    first = min((event.at for event in events if event.at is not None), default=None)
    mine = [failure.event.at for failure in own if failure.event is not None and failure.event.at is not None]
    return first is not None and any(at < first - seconds for at in mine)


def still_waits(classified: Sequence[tuple[str, LogEvent]]) -> list[LogEvent]:
    """Return what a pod waits for and no later line says that it got; a container that runs has a place, too."""
    waits: list[LogEvent] = []
    for kind, event in classified:
        if kind == "waits_for_place":
            waits.append(event)
        elif kind == "got_place":
            waits = [one for one in waits if event.operation not in {one.operation, "start"}]
    return waits


def refusals(classified: Sequence[tuple[str, LogEvent]], failures: Sequence[Failure]) -> list[LogEvent]:
    """Return what the platform refused or ended.

    What a scheduler's plugin fails at, such as in an epilog, may come after the end: it explains none that speaks for itself.
    What a daemon says of itself explains no process that failed at all. Beside a node that was lost both are its echo.
    """
    lost = any(nodes_out(classified))
    spoken = lost or any(failure.kind in SPOKEN for failure in failures)
    failed = lost or any(failure.kind in OWN for failure in failures)
    hushed = {
        PLUGIN: spoken,
        PLANNED: spoken,
        DAEMON: failed,
        STATUS: any(failure.kind == "device_lost" for failure in failures),
    }
    return [event for kind, event in classified if kind == "refused" and not hushed.get(event.operation or "", False)]


def lost_nodes(classified: Sequence[tuple[str, LogEvent]]) -> list[LogEvent]:
    """Return the reports that a node failed; one that was only unheard of for a while, and answers again, has not."""
    lost: list[LogEvent] = []
    for kind, event in classified:
        if kind == "node_failure":
            lost.append(event)
        elif kind == "node_returned":
            lost = [one for one in lost if one.operation != UNHEARD or one.node not in {event.node, None}]
    return lost


def nodes_out(classified: Sequence[tuple[str, LogEvent]]) -> Iterator[tuple[str, list[LogEvent]]]:
    """Yield the nodes that failed, and those that the scheduler took out of use though they answer, as kind and reports."""
    lost = lost_nodes(classified)
    failed = {event.node for event in lost}
    if lost:
        yield "node_failure", lost
    for taken in ("node_drained", "node_differs"):
        if out := [event for kind, event in classified if kind == taken and event.node not in failed]:
            yield taken, out


def refused_fault_class_of(refused: Sequence[LogEvent]) -> tuple[str, float, str]:
    """Return the fault class of refusals, how sure they make, and why."""
    if all(event.operation == DAEMON for event in refused):
        return (
            "daemon_failed",
            0.6,
            "a daemon of the scheduler reports trouble of its own, and no process failed by itself",
        )
    on = ", ".join(dict.fromkeys(event.node for event in refused if event.node))
    where = f" (node {on})" if on else ""
    if any(event.operation == OWN_USE and used_more(event.message or event.text) for event in refused):
        why = (
            "its container used more of its node's disk or memory than it asked for, or than its limit, and was evicted"
        )
        return "used_too_much", 0.8, f"{why}{where}"
    if any(event.operation in {FULL, OWN_USE} for event in refused):
        return "node_full", 0.8, f"its node ran short of disk, memory or processes and ended its container{where}"
    if all(event.operation in {ENDED, PLANNED} for event in refused):
        return "container_ended", 0.8, f"the platform ended its container{where}"
    return "container_refused", 0.8, f"the platform refused it a container, or a device in it{where}"


def are_silent_together(events: Sequence[LogEvent]) -> bool:
    """Whether so many nodes do not respond, and nothing else is said of them, that the cause is what they share."""
    return len({event.node for event in events}) >= MANY_UNHEARD and all(
        "not responding" in event.text.lower() for event in events
    )
