"""Which faults are the consequence of another: one link that fails makes every GPU that used it report errors.

A fault that can echo is explained by a fault of higher precedence on another device that lies from ``ECHO_SECONDS``
before it to ``SKEW_SECONDS`` after it. The search is by bins of time, so that ten thousand GPUs cost ten thousand steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from analyzers.diagnosis.hardware.faults import Fault

ECHO_SECONDS = 30.0  # the vendor's NVLink failure flow looks for a link that went down within the last 30 seconds
SKEW_SECONDS = 5.0
_BIN_SECONDS = 5.0

Bins = dict[tuple[str, int], list[Fault]]


def explained(faults: Sequence[Fault]) -> dict[int, Fault]:
    """Map the index of each fault that is an echo to the fault that explains it."""
    bins = _bins(faults)
    overall = _best_two_by_clock(faults)
    found: dict[int, Fault] = {}
    for index, fault in enumerate(faults):
        if not fault.echoes:
            continue
        origins = [other for other in _near(fault, bins, overall) if _explains(other, fault)]
        if origins:
            found[index] = max(origins, key=lambda other: other.precedence)
    return _to_the_root(found, faults)


def _explains(origin: Fault, fault: Fault) -> bool:
    if origin.occurrence.key == fault.occurrence.key:
        return False
    gap = fault.occurrence.at.after(origin.occurrence.at)
    if gap is not None and not -SKEW_SECONDS <= gap <= ECHO_SECONDS:
        return False
    if origin.precedence > fault.precedence:
        return True
    # Equals: the one that stands well before all skew came first.
    return origin.precedence == fault.precedence and gap is not None and gap > SKEW_SECONDS


def _near(fault: Fault, bins: Bins, overall: dict[str, list[Fault]]) -> Iterator[Fault]:
    at = fault.occurrence.at
    for clock, best in overall.items():
        if clock != at.clock or at.seconds is None:
            yield from best
    if at.seconds is None:
        return
    first, last = int((at.seconds - ECHO_SECONDS) // _BIN_SECONDS), int((at.seconds + SKEW_SECONDS) // _BIN_SECONDS)
    for number in range(first, last + 1):
        yield from bins.get((at.clock, number), ())


def _bins(faults: Sequence[Fault]) -> Bins:
    """Keep, per clock and bin, the best faults of two distinct devices, earliest first among equals."""
    bins: Bins = defaultdict(list)
    for fault in faults:
        at = fault.occurrence.at
        if at.seconds is not None:
            _keep_best(bins[at.clock, int(at.seconds // _BIN_SECONDS)], fault)
    return bins


def _best_two_by_clock(faults: Sequence[Fault]) -> dict[str, list[Fault]]:
    best: dict[str, list[Fault]] = defaultdict(list)
    for fault in faults:
        _keep_best(best[fault.occurrence.at.clock], fault)
    return best


def _keep_best(kept: list[Fault], fault: Fault) -> None:
    same = next((other for other in kept if other.occurrence.key == fault.occurrence.key), None)
    if same is not None:
        if _rank(fault) < _rank(same):
            kept[kept.index(same)] = fault
    else:
        kept.append(fault)
    kept.sort(key=_rank)
    del kept[2:]


def _rank(fault: Fault) -> tuple[int, float, str, str]:
    at = fault.occurrence.at.seconds
    return (-fault.precedence, at if at is not None else 0.0, *fault.occurrence.key)


def _to_the_root(found: dict[int, Fault], faults: Sequence[Fault]) -> dict[int, Fault]:
    """Follow chains of echoes to the fault that nothing explains."""
    index_of = {id(fault): index for index, fault in enumerate(faults)}
    rooted: dict[int, Fault] = {}
    for index, nearest in found.items():
        origin, steps = nearest, 0
        while (next_index := index_of[id(origin)]) in found and steps < 64:
            origin, steps = found[next_index], steps + 1
        rooted[index] = origin
    return rooted
