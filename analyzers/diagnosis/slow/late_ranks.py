"""Who comes last to collectives of its own accord, and which communicators are long on all members.

    P = (Tmax − Tmin) / (Tmax − Tbase), of operations whose Tmax is well above Tbase (CCL-D, PPoPP 2026)
      near 1   one member comes late: it has about the base duration, the others waited for it
      near 0   all take long: the fabric between them, or a member's link
      between  both

A member that comes late to one communicator may itself have waited in another: it passes lateness on. So who is last is
followed to who it waited for, as long as its own waits explain its lateness (Holmes, NSDI 2025).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from analyzers.diagnosis.slow.arrivals import Arrivals, Collectives, waits
from analyzers.diagnosis.slow.grouping import Floats, Ints, Mask
from analyzers.diagnosis.slow.levels import rise, turn
from analyzers.model.medians import spread

FEWEST_OPERATIONS = 10
WELL_ABOVE = 1.25  # times the base duration: below, an operation shows neither a wait nor a slow transfer
TIMES_SPREAD = 6.0
STEADY = 0.7  # of the operations, in which a late member must be late
ONES_OWN = 0.8  # of the waits at times: so many are for one member
INHERITED = 0.5  # of the waits that a member causes: so much of its own waiting explains them
NETWORK = -1  # for which a process waits: transfers that are slow themselves
LONG = 1.25  # times as long as siblings, or as before: communication that is slow
NEWEST = 0.1  # of the operations: what is so in them is so now
FEWEST_NEWEST = 5
WORSE = 2.0  # times as late as before, or as long a run of late operations: it has changed


@dataclass(frozen=True)
class LateMember:
    """A member that comes last. ``gap``: seconds that the others waited for it alone, an operation; ``wait``: in total.

    ``begin``: the first operation that is compared. ``recent``: late to each since then, and not before.
    """

    process: int
    communicator: int
    gap: float
    wait: float
    share: float  # of the span; NaN: not known
    proven: bool  # three members or more, or it came late since a time only
    p: float
    many: bool = False  # it is one of many that come late
    begin: int = 0
    recent: bool = False


def base_seconds(found: Arrivals) -> list[Floats]:
    """Return what each operation of each communicator takes when no member waits: the usual shortest of its kind."""
    shortest: dict[tuple[int, str, int], list[Floats]] = defaultdict(list)
    for one in found.communicators:
        for kind, mask in kinds_of(one):
            shortest[one.size, *kind].append(np.nanmin(one.seconds[:, mask], axis=0))
    usual = {kind: float(np.median([np.median(part) for part in parts])) for kind, parts in shortest.items()}
    bases = []
    for one in found.communicators:
        base = np.zeros(len(one.bytes))
        for kind, mask in kinds_of(one):
            base[mask] = usual[one.size, *kind]
        bases.append(base)
    return bases


def kinds_of(one: Collectives) -> list[tuple[tuple[str, int], Ints]]:
    """Return where the operations of each name and size are."""
    places: dict[tuple[str, int], list[int]] = defaultdict(list)
    for index, kind in enumerate(zip(one.operation, one.bytes.tolist(), strict=True)):
        places[kind].append(index)
    return [(kind, np.array(where, np.int64)) for kind, where in sorted(places.items())]


def split_p(one: Collectives, base: Floats) -> float:
    """Return CCL-D's P, the median of the operations that are well above their base; NaN where none is."""
    longest, shortest = np.nanmax(one.seconds, axis=0), np.nanmin(one.seconds, axis=0)
    above = longest > WELL_ABOVE * base
    if not above.any():
        return float("nan")
    return float(np.median(((longest - shortest) / (longest - base))[above]))


def late_members(found: Arrivals, bases: list[Floats]) -> list[LateMember]:
    """Return the members that come last to their communicators, steadily and apart from the others."""
    late = []
    for index, one in enumerate(found.communicators):
        if one.seconds.shape[1] >= FEWEST_OPERATIONS:
            late += _late(index, one, bases[index])
    return late


def _late(index: int, one: Collectives, base: Floats) -> list[LateMember]:
    half = one.seconds.shape[1] // 2
    found: list[LateMember] = []
    for begin in (0, half):
        part = one.seconds[:, begin:]
        if part.shape[1] < FEWEST_OPERATIONS:
            break
        rows = apart(part, base[begin:])
        if len(rows):
            found = _described(index, one, base, rows, begin)
            break
    recent = _recent(index, one, base)
    costs = max((member.share for member in found), default=0.0)
    return recent if any(member.share > WORSE * costs for member in recent) or not found else found


def _recent(index: int, one: Collectives, base: Floats) -> list[LateMember]:
    """Return the members that come late to each of the newest operations, and did not before."""
    early, level, usual, bound = _lateness(one.seconds, base)
    late = early > np.maximum(usual + bound, WORSE * level[:, None])
    run = np.where(late.all(axis=1), 0, np.argmin(late[:, ::-1], axis=1))
    rows = [row for row in np.flatnonzero(run >= FEWEST_OPERATIONS).tolist() if _is_new(late[row], int(run[row]))]
    if not rows:
        return []
    begin = late.shape[1] - int(run[rows].max())
    found = np.intersect1d(apart(one.seconds[:, begin:], base[begin:]), rows)
    return [replace(member, recent=True) for member in _described(index, one, base, found, begin)]


def _is_new(late: Mask, run: int) -> bool:
    """Whether a run at the end is much longer than each before it: who is late for a while now and then is no later now."""
    turns = np.flatnonzero(np.diff(np.concatenate([[False], late[:-run], [False]]).astype(np.int8)))
    return bool(run > WORSE * np.max(np.diff(turns)[::2], initial=0))


def apart(seconds: Floats, base: Floats) -> Ints:
    """Return the members that come later than the others: by more than their spread, and by a part of the transfer."""
    early, level, usual, bound = _lateness(seconds, base)
    steady = np.nanmean(early > usual + bound / 2, axis=1) >= STEADY
    return np.flatnonzero((level - usual > bound) & steady)


def _lateness(seconds: Floats, base: Floats) -> tuple[Floats, Floats, float, float]:
    """Return how long after the first each member comes, what is usual of each and of all, and how much more is late."""
    early = np.nanmax(seconds, axis=0) - seconds
    level = np.nanmedian(early, axis=1)
    least = (WELL_ABOVE - 1.0) * float(np.median(base))
    usual = float(np.median(level))
    bound = max(least, TIMES_SPREAD * spread(level)) if len(level) > 2 else least
    if len(level) == 2:
        usual = float(level.min())
    return early, level, usual, bound


def _described(index: int, one: Collectives, base: Floats, rows: Ints, begin: int) -> list[LateMember]:
    others = np.setdiff1d(np.arange(len(one.members)), rows)
    if not len(others) or not len(rows):
        return []
    with np.errstate(invalid="ignore"):
        gaps = np.nanmin(one.seconds[others, begin:], axis=0) - one.seconds[rows][:, begin:]
    gaps = np.where(np.isfinite(gaps), gaps, 0.0)
    many = len(rows) > max(1, len(one.members) // 4)
    p = split_p(part_of(one, np.arange(begin, len(base))), base[begin:])
    # A wait is for the last of those that come late: together they cost no more than that one.
    cost = float(np.maximum(gaps.min(axis=0), 0.0).sum()) * one.scale
    share = _share(one, cost, gaps.shape[1] / len(base))
    described = []
    for place, row in enumerate(rows.tolist()):
        proven = len(one.members) > 2 or (begin == 0 and _began(gaps[place])) or begin > 0
        described.append(
            LateMember(one.members[row], index, float(np.median(gaps[place])), cost, share, proven, p, many, begin)
        )
    return described


def _share(one: Collectives, cost: float, part: float) -> float:
    """Return which share of the time of a part of the operations a cost is that this part alone has."""
    return min(cost / (one.span * part + cost * (1 - part)), 0.999)


def part_of(one: Collectives, columns: Ints) -> Collectives:
    """Return some of the operations of a communicator; its span stays that of all."""
    operation = tuple(one.operation[column] for column in columns.tolist())
    return replace(one, seconds=one.seconds[:, columns], bytes=one.bytes[columns], operation=operation)


def _began(series: Floats) -> bool:
    """Whether a lateness began within the records: the one reference that two members have."""
    at = int(turn(series[None])[0])
    size, noise = rise(series, at)
    return bool(size > 0.5 * np.median(series[at:]) and size > TIMES_SPREAD * noise)


def own_lateness(
    found: Arrivals, bases: list[Floats], late: list[LateMember], more: Mapping[tuple[int, int], float]
) -> list[LateMember]:
    """Return those of the late members that did not wait for others as long themselves.

    ``more``: what processes waited beside collectives: (who, for whom) → seconds, in sends and receives; ``NETWORK`` for whom
    is no process.
    """
    waited: dict[tuple[int, int], float] = defaultdict(float, more)
    since = min((member.begin / len(bases[member.communicator]) for member in late), default=0.0)
    for one, base in zip(found.communicators, bases, strict=True):
        columns = np.arange(int(since * len(base)), len(base))
        for who, whom, seconds in waits(part_of(one, columns), (WELL_ABOVE - 1.0) * base[columns]):
            waited[who, whom] += seconds
    by_process = _strongest(late)
    roots = {_root(process, by_process, waited) for process in by_process}
    most = max((by_process[one].wait for one in roots if one in by_process), default=0.0)
    return [by_process[one] for one in sorted(roots) if one in by_process and by_process[one].wait >= most / 2]


def _strongest(late: list[LateMember]) -> dict[int, LateMember]:
    """Return one lateness of each process: where peers prove it, if it costs about as much there as anywhere."""
    found: dict[int, LateMember] = {}
    for process in sorted({member.process for member in late}):
        own = [member for member in late if member.process == process]
        most = max(member.wait for member in own)
        found[process] = max(own, key=lambda member: (member.proven and member.wait >= most / 2, member.wait))
    return found


def _root(process: int, late: dict[int, LateMember], waited: dict[tuple[int, int], float]) -> int:
    """Follow lateness to who it began with."""
    seen = {process}
    while True:
        suffered = {whom: seconds for (who, whom), seconds in waited.items() if who == process}
        if process not in late or sum(suffered.values()) < INHERITED * late[process].wait:
            return process
        onward = max(sorted(suffered), key=lambda whom: suffered[whom])
        if onward in seen:
            return process
        seen.add(onward)
        process = onward


def long_communicators(found: Arrivals) -> dict[int, float]:
    """Return the communicators whose every member takes long, and how many times as long as siblings, or as before.

    Those without a record of each member are left out: the one that is missing may be the one that the others wait for.
    """
    levels = {index: _level(one) for index, one in enumerate(found.communicators) if one.whole and _enough(one)}
    shapes: dict[object, list[int]] = defaultdict(list)
    for index in levels:
        shapes[found.communicators[index].shape].append(index)
    long = {}
    for same in shapes.values():
        for index in same:
            others = np.array([levels[other] for other in same if other != index])
            if len(others) >= 3:
                times = levels[index] / float(np.median(others))
                if times > LONG and levels[index] > float(np.median(others)) + TIMES_SPREAD * spread(others):
                    long[index] = times
            else:
                times = _by_past(found.communicators[index])
                if times > LONG:
                    long[index] = times
    return long


def _enough(one: Collectives) -> bool:
    return bool(one.seconds.shape[1] >= FEWEST_OPERATIONS)


def _level(one: Collectives) -> float:
    """Return what its operations take without waits, in total, an operation."""
    return float(np.mean(np.nanmin(one.seconds, axis=0)))


def _by_past(one: Collectives) -> float:
    """Return how many times as long its operations take since a time as before it, 1 where there is no such time."""
    logs = np.log(np.nanmin(one.seconds, axis=0))
    for _, where in kinds_of(one):
        logs[where] -= np.median(logs[where])
    if len(logs) < 2 * FEWEST_OPERATIONS:
        return 1.0
    at = int(turn(logs[None])[0])
    size, noise = rise(logs, at)
    if min(at, len(logs) - at) < FEWEST_OPERATIONS or size < TIMES_SPREAD * noise:
        return 1.0
    return float(np.exp(size))


def late_at_times(found: Arrivals, bases: list[Floats]) -> tuple[int, int, int, float] | None:
    """Return who alone comes late at times: process, late operations of all, and the share of the time that others wait for it.

    Of the communicator in which that is most; None where no one does, or several do.
    """
    known = zip(found.communicators, bases, strict=True)
    return _most(_alone(one, base, np.arange(len(base))) for one, base in known)


def late_now(found: Arrivals, bases: list[Floats]) -> tuple[int, int, int, float] | None:
    """Return the same of the newest operations of each kind, where it is late to most of them."""
    parts = (
        _alone(one, base, where[-max(FEWEST_NEWEST, int(NEWEST * len(where))) :], len(where))
        for one, base in zip(found.communicators, bases, strict=True)
        for _, where in kinds_of(one)
        if len(where) >= FEWEST_OPERATIONS
    )
    return _most(part for part in parts if part is not None and part[1] >= STEADY * part[2])


def _most(found: Iterable[tuple[int, int, int, float] | None]) -> tuple[int, int, int, float] | None:
    return max((one for one in found if one is not None), key=lambda one: one[3], default=None)


def _alone(one: Collectives, base: Floats, columns: Ints, of: int = 0) -> tuple[int, int, int, float] | None:
    """Return the same of some operations of one communicator. ``of``: how many share its span; 0: these alone."""
    seconds = one.seconds[:, columns]
    if len(one.members) < 3 or not one.span > 0:
        return None
    ordered = np.sort(np.where(np.isfinite(seconds), seconds, np.inf), axis=0)
    gap = np.where(np.isfinite(ordered[1]), ordered[1] - ordered[0], 0.0)
    late = gap > (WELL_ABOVE - 1.0) * base[columns]
    if not late.any():
        return None
    last = np.argmin(np.where(np.isfinite(seconds), seconds, np.inf), axis=0)
    each = np.bincount(last[late], gap[late], len(one.members))
    row = int(np.argmax(each))
    if each[row] <= ONES_OWN * each.sum():
        return None
    share = _share(one, float(each[row]) * one.scale, len(columns) / (of or len(columns)))
    return one.members[row], int((late & (last == row)).sum()), len(late), share


def steady_share(found: Arrivals) -> float:
    """Return the largest part of the time that members of a communicator come apart, in every operation alike.

    What changes from operation to operation is no one's: many members that vary a little wait for another one each time.
    """
    shares = [0.0]
    for one in found.communicators:
        level = np.nanmedian(np.nanmax(one.seconds, axis=0) - one.seconds, axis=1)
        share = float(np.ptp(level)) * one.seconds.shape[1] * one.scale / one.span
        shares.append(share if np.isfinite(share) else 0.0)
    return max(shares)
