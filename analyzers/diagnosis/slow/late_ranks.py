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
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analyzers.diagnosis.slow.arrivals import Arrivals, Collectives, waits
from analyzers.diagnosis.slow.grouping import Floats, Ints
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


@dataclass(frozen=True)
class LateMember:
    """A member that comes last. ``gap``: seconds that the others waited for it alone, an operation; ``wait``: in total."""

    process: int
    communicator: int
    gap: float
    wait: float
    share: float  # of the span; NaN: not known
    proven: bool  # three members or more, or it came late since a time only
    p: float
    many: bool = False  # it is one of many that come late


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
    for begin in (0, half):
        part = one.seconds[:, begin:]
        if part.shape[1] < FEWEST_OPERATIONS:
            break
        rows = apart(part, base[begin:])
        if len(rows):
            return _described(index, one, base, rows, begin)
    return []


def apart(seconds: Floats, base: Floats) -> Ints:
    """Return the members that come later than the others: by more than their spread, and by a part of the transfer."""
    early = np.nanmax(seconds, axis=0) - seconds  # seconds after the first that came
    level = np.nanmedian(early, axis=1)
    least = (WELL_ABOVE - 1.0) * float(np.median(base))
    usual = float(np.median(level))
    bound = max(least, TIMES_SPREAD * spread(level)) if len(level) > 2 else least
    if len(level) == 2:
        usual = float(level.min())
    steady = np.nanmean(early > usual + bound / 2, axis=1) >= STEADY
    return np.flatnonzero((level - usual > bound) & steady)


def _described(index: int, one: Collectives, base: Floats, rows: Ints, begin: int) -> list[LateMember]:
    others = np.setdiff1d(np.arange(len(one.members)), rows)
    if not len(others):
        return []
    with np.errstate(invalid="ignore"):
        gaps = np.nanmin(one.seconds[others, begin:], axis=0) - one.seconds[rows][:, begin:]
    gaps = np.where(np.isfinite(gaps), gaps, 0.0)
    many = len(rows) > max(1, len(one.members) // 4)
    p = split_p(one, base)
    # A wait is for the last of those that come late: together they cost no more than that one.
    cost = float(np.maximum(gaps.min(axis=0), 0.0).sum()) * one.scale
    span = one.span * gaps.shape[1] / one.seconds.shape[1]
    described = []
    for place, row in enumerate(rows.tolist()):
        proven = len(one.members) > 2 or (begin == 0 and _began(gaps[place])) or begin > 0
        described.append(
            LateMember(
                one.members[row], index, float(np.median(gaps[place])), cost, min(cost / span, 0.999), proven, p, many
            )
        )
    return described


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
    for one, base in zip(found.communicators, bases, strict=True):
        for who, whom, seconds in waits(one, (WELL_ABOVE - 1.0) * base):
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
    most: tuple[int, int, int, float] | None = None
    for one, base in zip(found.communicators, bases, strict=True):
        if len(one.members) < 3 or not one.span > 0:
            continue
        ordered = np.sort(np.where(np.isfinite(one.seconds), one.seconds, np.inf), axis=0)
        gap = np.where(np.isfinite(ordered[1]), ordered[1] - ordered[0], 0.0)
        late = gap > (WELL_ABOVE - 1.0) * base
        if not late.any():
            continue
        last = np.argmin(np.where(np.isfinite(one.seconds), one.seconds, np.inf), axis=0)
        each = np.bincount(last[late], gap[late], len(one.members))
        row, share = int(np.argmax(each)), float(each.max()) * one.scale / one.span
        if each[row] > ONES_OWN * each.sum() and (most is None or share > most[3]):
            most = one.members[row], int((late & (last == row)).sum()), len(late), min(share, 0.999)
    return most


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
