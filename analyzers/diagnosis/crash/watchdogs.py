"""What the numbers of several watchdogs show when they are compared: who calls something else, and who is behind.

Numbers compare within one communicator only. Its unique name decides which lines are of one; torch before 2.3 printed none,
and then only numbers that lie close together are taken for one communicator's: those of two run far apart.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from analyzers.diagnosis.crash.failures import evidence_of
from analyzers.model.finding import Evidence
from analyzers.model.ranges import ranges
from collectors.records import LogEvent

CLOSE = 100  # without a name: equal above this, or apart by less than one in so many
BURST_SECONDS = 600.0  # between two lines of one hang there is less: the watchdogs of a group have one timeout
AT_START = "PjRT_Client_Connect"
"""The barrier at which JAX's tasks meet first."""
_WORLD = frozenset({"0", "local:0"})
_NOT_COMPARED = frozenset({"SEND", "RECV", "COALESCED", "UNKNOWN", ""})
"""Operations that members may have at one number while all is well: each end of a pair has its own."""


_OF_ONE_SIZE = frozenset({"ALLREDUCE", "BROADCAST", "REDUCE"})
_SIZE = re.compile(r"\bNumelIn=(\d{1,15})\b")


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One number at which members of a communicator call different operations. ``odd``: the fewer, or all where none are."""

    odd: tuple[int, ...]
    why: str
    evidence: tuple[Evidence, ...]


@dataclass
class _Counters:
    """What the lines of one communicator give, by rank."""

    waits: dict[int, LogEvent] = field(default_factory=dict)  # the oldest operation that timed out
    enqueued: dict[int, LogEvent] = field(default_factory=dict)  # the line with the newest enqueued
    completed: dict[int, LogEvent] = field(default_factory=dict)
    calls: dict[int, dict[int, LogEvent]] = field(default_factory=lambda: defaultdict(dict))  # sequence → rank → line


def counters(events: Iterable[LogEvent]) -> dict[str, _Counters]:
    """Sort the lines of watchdogs by communicator; "" holds those that name none. A local group number compares nothing."""
    found: dict[str, _Counters] = defaultdict(_Counters)
    newest = newest_burst(list(events))
    world = "" if _names_it_now_and_then(newest) else "0"
    known = _named_beside(newest)
    for event in newest:
        named = event.group or known.get((event.rank, event.sequence))
        group = world if named in _WORLD else named or ""
        if event.rank is None or group.startswith("local:") or (not group and _elsewhere(event)):
            continue
        of_group, rank = found[group], event.rank
        if event.sequence is not None:
            held = of_group.waits.get(rank)
            if held is None or event.sequence < (held.sequence or 0):
                of_group.waits[rank] = event
            if (event.operation or "").upper() not in _NOT_COMPARED:
                of_group.calls[event.sequence].setdefault(rank, event)
        for mine, name in ((of_group.enqueued, "last_enqueued"), (of_group.completed, "last_completed")):
            value = getattr(event, name)
            if value is not None and (rank not in mine or getattr(mine[rank], name) < value):
                mine[rank] = event
    return dict(found)


def _named_beside(events: Sequence[LogEvent]) -> dict[tuple[int | None, int | None], str]:
    """Map (rank, number) to the group that a line gives for it: torch writes two lines of one time-out, and one may name none."""
    found: dict[tuple[int | None, int | None], set[str]] = defaultdict(set)
    for event in events:
        if event.group and event.rank is not None and event.sequence is not None:
            found[event.rank, event.sequence].add(event.group)
    return {key: next(iter(groups)) for key, groups in found.items() if len(groups) == 1}


def _names_it_now_and_then(events: Sequence[LogEvent]) -> bool:
    """Whether the world is the only named group and its lines lack a half of the comparison, which lines without a name have.

    Of one version some lines name the group and others do not. Nearness decides for all of them then.
    """
    named = [event for event in events if event.group in _WORLD]
    whole = any(one.sequence is not None for one in named) and any(one.last_enqueued is not None for one in named)
    groups = {event.group for event in events}
    return bool(named) and not whole and None in groups and groups <= _WORLD | {None}


def newest_burst(events: Sequence[LogEvent]) -> list[LogEvent]:
    """Leave out lines of an earlier hang, after which the job was started again and counted anew."""
    instants = sorted(event.at for event in events if event.at is not None)
    since = max((late for early, late in pairwise(instants) if late - early > BURST_SECONDS), default=None)
    return [event for event in events if since is None or event.at is None or event.at >= since]


TIME_OUTS = frozenset({"watchdog_timeout", "communication_timeout"})


def began_between(events: Iterable[LogEvent], last_step: float | None) -> tuple[float | None, float | None]:
    """Return between which instants the newest hang began: it holds when the first watchdog fires, and for its time-out.

    Steps after that are of a job that went on, or was started again: when that stopped the watchdogs do not say.
    """
    fired = newest_burst([event for event in events if event.event in TIME_OUTS])
    stamped = [(event.at, event.timeout_ms) for event in fired if event.at is not None]
    first = min((at for at, _ in stamped), default=None)
    if first is None or (last_step is not None and last_step > first):
        return None, None
    return min((at - limit / 1000 for at, limit in stamped if limit), default=None), first


def _elsewhere(event: LogEvent) -> bool:
    """Whether a line without a communicator's name is of one that is not the world: the rank inside it is another."""
    return event.group_rank is not None and event.group_rank != event.rank


def mismatches(found: Mapping[str, _Counters], reports: Sequence[LogEvent]) -> Iterator[Mismatch]:
    """Yield each number at which ranks of one communicator call different operations, the oldest first.

    ``reports``: the lines in which a library itself says so, one an operation.
    """
    for group, of_group in sorted(found.items()):
        for sequence in sorted(of_group.calls):
            calls: dict[str, list[int]] = defaultdict(list)
            for rank, event in of_group.calls[sequence].items():
                calls[_called(event)].append(rank)
            if len(calls) > 1 and (group or sequence > CLOSE):
                yield _mismatch(calls, sequence, list(of_group.calls[sequence].values()))
                break
    said: dict[tuple[str | None, int | None], list[LogEvent]] = defaultdict(list)
    for event in reports:
        said[event.group, event.sequence].append(event)
    for (_, number), lines in sorted(said.items(), key=lambda pair: (pair[0][0] or "", pair[0][1] or -1)):
        calls = defaultdict(list)
        for event in lines:
            calls[event.operation or "another operation"] += ranks_of(event)
        yield _mismatch(calls, number, lines)


def _called(event: LogEvent) -> str:
    """Return what a watchdog's line says that its rank called: the operation, and how much of it where all must have as much."""
    operation = (event.operation or "").upper()
    size = _SIZE.search(event.text) if operation in _OF_ONE_SIZE else None
    return f"{operation} of {size[1]}" if size else operation


def _mismatch(calls: Mapping[str, list[int]], sequence: int | None, lines: Sequence[LogEvent]) -> Mismatch:
    ordered = sorted(calls.items(), key=lambda pair: (-len(set(pair[1])), pair[0]))
    most = len(set(ordered[0][1]))
    alone = len(ordered) > 1 and most > len(set(ordered[1][1]))
    odd = sorted({rank for _, ranks in (ordered[1:] if alone else ordered) for rank in ranks})
    number = f"in collective number {sequence} " if sequence is not None else ""
    said = "; ".join(f"rank{'s' if len(set(own)) > 1 else ''} {ranges(own)}: {name}" for name, own in ordered if own)
    why = f"{number}the members of one group call different operations" + (f" ({said})" if said else "")
    shown = {event.operation: event for event in reversed(lines)}
    return Mismatch(tuple(odd), why, tuple(evidence_of(event) for event in list(shown.values())[:4]))


def disjoint(reports: Sequence[LogEvent]) -> list[LogEvent]:
    """Return a report for each set of ranks that waits in an operation of its own, where no rank is in two of them."""
    by_ranks = {tuple(sorted(ranks_of(event))): event for event in _joined(reports)}
    count = sum(len(ranks) for ranks in by_ranks)
    apart = len(by_ranks) > 1 and count == len({rank for ranks in by_ranks for rank in ranks})
    return list(by_ranks.values()) if apart else []


def _joined(reports: Sequence[LogEvent]) -> list[LogEvent]:
    """The reports that name an operation and all the ranks that wait in it."""
    return [event for event in reports if event.event == "collective_unfinished" and event.operation and event.ranks]


def _absent(reports: Sequence[LogEvent]) -> dict[int, Evidence]:
    """Return the few ranks that wait in none of the operations in which all others wait, up to the highest named."""
    joined = _joined(reports)
    waiting = {rank for event in joined for rank in ranks_of(event)}
    absent = set(range(max(waiting, default=0))) - waiting
    if not absent or 2 * len(absent) >= len(waiting):
        return {}
    first = joined[0]
    said = f"ranks {ranges(sorted(waiting))} wait in {first.operation}"
    return {
        rank: Evidence(text=f"{said}, and rank {rank} does not", source=first.source, at=first.at) for rank in absent
    }


def is_by_name(event: LogEvent) -> bool:
    """Whether a report is of operations that a program submits by their names, in an order of its own, as Horovod's are."""
    if event.event not in {"collective_behind", "collective_unfinished"} or event.sequence is not None:
        return False
    return bool(event.operation) or "missing ranks:" in event.text


def ranks_of(event: LogEvent) -> list[int]:
    """Return the ranks that a line is about: those it names, or else its writer's."""
    if event.ranks is not None:
        return list(event.ranks.ranks())
    return [] if event.rank is None else [event.rank]


def behind(found: Mapping[str, _Counters], reports: Sequence[LogEvent]) -> dict[int, Evidence]:
    """Return the ranks that have not reached what others of their communicator wait in, or have finished.

    ``reports``: lines that say of ranks that they finished one collective and did not join the next. A rank that waits in
    another communicator as well may be a victim of that one, and is left out; so are more than half of those compared, for
    then the few are ahead.
    """
    late: dict[int, Evidence] = {}
    for group, of_group in sorted(found.items()):
        here = _not_entered(group, of_group) | _not_finished(group, of_group)
        elsewhere = {rank for name, other in found.items() if name != group for rank in other.waits}
        compared = of_group.waits.keys() | of_group.enqueued.keys()
        if 2 * len(here) <= len(compared):
            late |= {rank: evidence for rank, evidence in here.items() if rank not in elsewhere}
    late |= _absent(reports)
    waits_in = {rank for of_group in found.values() for rank in of_group.waits}
    for event in reports:
        named = ranks_of(event)
        if len(named) > 1 and AT_START in event.text:
            continue  # a list that a paste may have cut, of tasks that had not started: nothing sets them apart
        few = len(named) == 1 or 2 * len(named) <= max(named, default=0) + 1  # as far as the numbers show the others
        if event.event in {"collective_behind", "heartbeat_lost"} and (
            2 * len(named) <= len(waits_in | set(named)) or (few and len(waits_in) < 2)
        ):
            late |= {rank: evidence_of(event) for rank in named if rank not in late}
    return late


def _not_entered(group: str, of_group: _Counters) -> dict[int, Evidence]:
    """Return the ranks that had not enqueued what others timed out on; without a name the two numbers lie close."""
    if not of_group.waits:
        return {}
    front = min(event.sequence or 0 for event in of_group.waits.values())
    found = {}
    for rank, event in of_group.enqueued.items():
        last = event.last_enqueued or 0
        if rank not in of_group.waits and last < front and (group or CLOSE * (front - last) < front):
            count = len(of_group.waits)
            text = f"rank {rank} had enqueued {last} operations{_of(group)}; "
            text += f"{count} rank{'s wait' if count > 1 else ' waits'} in number {front}"
            found[rank] = Evidence(text=text, source=event.source, at=event.at)
    return found


def _not_finished(group: str, of_group: _Counters) -> dict[int, Evidence]:
    """Return the ranks that wait in what another rank has finished."""
    if not of_group.completed:
        return {}
    best = max(of_group.completed, key=lambda rank: (of_group.completed[rank].last_completed or 0, -rank))
    furthest = of_group.completed[best].last_completed or 0
    found = {}
    for rank, event in of_group.waits.items():
        number = event.sequence or 0
        mine = of_group.completed.get(rank)
        if (
            (mine is None or (mine.last_completed or 0) < number)
            and number <= furthest
            and (group or CLOSE * (furthest - number) < number)
        ):
            text = f"rank {rank} waits in number {number}{_of(group)}, and rank {best} has finished number {furthest}"
            found[rank] = Evidence(text=text, source=event.source, at=event.at)
    return found


def _of(group: str) -> str:
    return f" of group {group}" if group else ""
