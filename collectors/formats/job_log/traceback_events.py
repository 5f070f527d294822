"""A traceback as events: the exception that was the root, and what a library's words inside its message report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from signal import SIGTERM

from collectors.formats.job_log import log_marks
from collectors.formats.job_log.families import network, ray
from collectors.formats.job_log.job_lines import Line
from collectors.formats.job_log.shapes import event, events
from collectors.formats.job_log.tracebacks import LAST_LINE, Traceback
from collectors.records import LogEvent

_REPORTED = frozenset({"exit", "torchrun_failure", "closing_signal"})
QUOTED = (*network.SHAPES, *ray.SHAPES)


def event_of(traceback: Traceback, head: Line, spawned: int | None) -> LogEvent:
    """A finished traceback as an event: the chain's root, and in the text what it led to."""
    shown = (
        f"{traceback.exception}: {traceback.message}".splitlines()[0][:400] if traceback.exception else "cut traceback"
    )
    if traceback.then:
        names = ", ".join(traceback.then)
        how = "during handling of which came" if traceback.link == "during handling" else "which caused"
        shown = f"{shown} ({how} {names})"
    whole = traceback.message
    return event(
        Line(traceback.line, "", head.stream, head.rank, head.local_rank, head.pid, head.node, head.task),
        "traceback",
        at=traceback.at,
        rank=head.rank if head.rank is not None else spawned,
        text=shown,
        exception=traceback.exception or None,
        message=whole or None,
        frames=traceback.frames,
        peer=log_marks.peer_of(whole),
        timeout_ms=log_marks.timeout_of(whole),
    )


def quoted_in(traceback: LogEvent, head: Line) -> Iterator[LogEvent]:
    """What an exception quotes of a library: NCCL's last warning stands below torch's words, Ray's reason in its message."""
    whole = f"{traceback.exception}: {traceback.message or ''}"
    for text in whole.splitlines():
        yield from events(QUOTED, replace(head, text=text))


def alone(line: Line) -> Iterator[LogEvent]:
    """Give the exception that a line is, if it is the last line of a traceback."""
    if found := LAST_LINE.match(line.text):
        yield event(line, "traceback", exception=found[1], message=found[2])


def may_stand(line: Line, found: Sequence[LogEvent]) -> bool:
    """Whether the last line of a traceback may stand for all of it: nothing else was found that could say more.

    That is: cut tracebacks of processes with ranks, or a launcher's report of exits after it, as Python's exceptions end.
    """
    cut = line.rank is not None and all(each.event == "traceback" and not each.exception for each in found)
    reported = all(
        each.event in _REPORTED
        and each.signal in {None, SIGTERM}
        and each.exit_code in {None, 1}
        and each.exception is None
        and int(each.source) > line.number
        for each in found
    )
    return not found or cut or reported
