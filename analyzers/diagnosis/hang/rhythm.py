"""Whether it is a hang at all. In a healthy job some rank always waits: a hang takes two samples, or an age beyond the rhythm."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Literal

import numpy as np

from analyzers.diagnosis.hang.fronts import Fronts
from analyzers.model.recorder import Mask
from analyzers.model.window import APART_SECONDS, SKEW_SECONDS, Window, last_activity_ns, step_instants
from collectors.records import FlightRecorderDump, LogEvent, Ring, Steps

Pulse = Literal["running", "hung", "undecided", "unknown"]

# A pause this short is no hang, whatever the rhythm: taking a dump with its stacks takes 1 to 2 s by itself.
SHORTEST_HANG_SECONDS = 5.0
ALWAYS_HEALTHY_SECONDS = 1.0
# Up to 1.5 times the usual longest pause is the rhythm; beyond 3 times the longest ever seen is not.
WITHIN_RHYTHM, BEYOND_RHYTHM = 1.5, 3.0
# A modification time later than any watchdog would have allowed was made by a copy, not by the dump.
TIMEOUT_MARGIN, LONGEST_TRUSTED_SECONDS = 1.5, 2 * 3600.0
NEVER_DATED = (
    "when the dumps were taken is unknown, and those of a healthy job look like this between two steps: file times that a"
    " copy keeps (cp -p, scp -p), or a second set 30 s later, would show whether it stands still"
)
MOVED = "every rank dumped twice made progress between its two dumps"
DATED_BY_ITSELF = "a ring does not say when it was copied, so it does not show for how long its ranks wait"
FEWEST_GAPS = 20
TIMED_OUT = "watchdog_timeout"
STEPS_ON = 4  # after the newest entry of all dumps
ZONE_SECONDS = 1500.0  # steps that seem to be later than that may have stamps of another time zone


@dataclass(frozen=True, slots=True)
class Rhythm:
    """``pulse`` with the reason in a sentence, and when the oldest wait began, None where there is none."""

    pulse: Pulse
    why: str
    onset_ns: int | None


def rhythm(window: Window, progress: Fronts) -> Rhythm:
    """Judge whether the job runs. ``unknown``: no two samples, no trusted time; a hang is assumed, and nothing evicted for it."""
    onset = _oldest_created_ns(progress)
    return Rhythm(*_judged(window, progress, onset), onset)


def _judged(window: Window, progress: Fronts, onset: int | None) -> tuple[Pulse, str]:
    pulse, why = _by_dumps(window, progress, onset)
    if pulse in {"hung", "unknown"} and (steps := _steps_after(window)) >= STEPS_ON:
        return "undecided", f"the logs report {steps} steps after the newest entry of the dumps, which are from before"
    return pulse, why


def _by_dumps(window: Window, progress: Fronts, onset: int | None) -> tuple[Pulse, str]:
    age, moved = _age_seconds(window, progress), _moved(window)
    if moved is False:
        return "hung", "two dumps of the same ranks show no progress between them"
    if age is None:
        return ("running", MOVED) if moved else _undated(window, progress)
    if moved is None and _dated_by_themselves(window):
        return "undecided", DATED_BY_ITSELF
    waits = f"the oldest wait was {age:.1f} s old when the dump was taken"
    if onset is None:  # between two launches the silence since the last one is compared with the rhythm
        waits = f"nothing was outstanding, and the last launch was {age:.1f} s old when the dump was taken"
    return _by_age(age, *_pauses(progress), waits, moved=moved is True)


def _undated(window: Window, progress: Fronts) -> tuple[Pulse, str]:
    """Judge by what a watchdog gave up: that was too long a wait, whenever the dumps were taken."""
    if (operation := _given_up(window, progress)) is not None:
        return "hung", f"a watchdog gave up operation {operation}, which the dumps call unfinished"
    return "unknown", NEVER_DATED


def _given_up(window: Window, progress: Fronts) -> int | None:
    """Return the sequence number of an operation that a log says timed out and a dump calls unfinished."""
    rows = np.flatnonzero(_waits(progress))
    waits = {*progress.table["collective_seq"][rows].tolist(), *progress.table["p2p_seq"][rows].tolist()}
    said = (one.sequence for one in window.records_of(LogEvent) if one.event == TIMED_OUT)
    return next((sequence for sequence in said if sequence in waits), None)


def _by_age(age: float, usual: float | None, longest: float | None, waits: str, *, moved: bool) -> tuple[Pulse, str]:
    if usual is None or longest is None:
        if moved:
            return "running", MOVED
        if age > max(SHORTEST_HANG_SECONDS, 10.0):
            return "hung", waits
        return "undecided", f"{waits}, and the dumps hold too little history to know the job's rhythm"
    if age <= max(WITHIN_RHYTHM * usual, ALWAYS_HEALTHY_SECONDS):
        return "running", f"{waits}, within the job's own rhythm (its usual longest pause is {usual:.2f} s)"
    if age > max(BEYOND_RHYTHM * longest, SHORTEST_HANG_SECONDS):
        return "hung", f"{waits}, beyond the job's own rhythm (its longest pause before was {longest:.2f} s)"
    if moved:
        return "running", MOVED
    return "undecided", f"{waits}; the job has paused up to {longest:.2f} s before"


def _oldest_created_ns(progress: Fronts) -> int | None:
    created = progress.table["created_ns"][_waits(progress)]
    return int(created.min()) if len(created) else None


def _waits(progress: Fronts) -> Mask:
    """Mark all that a rank's own dump calls unfinished, whether its peers prove it ended or not."""
    waits: Mask = (progress.outstanding | progress.lost) & (progress.table["created_ns"] > 0)
    return waits


def _age_seconds(window: Window, progress: Fronts) -> float | None:
    """Return the age of the oldest wait when its own rank was dumped, None where no instant can be trusted."""
    active_ns = [last_activity_ns(dump) for dump in window.dumps]
    dated = zip(window.dumps, active_ns, strict=True)
    at = {dump.rank: dump.at for dump, newest_ns in dated if dump.at is not None and newest_ns > 0}
    if len(at) < len(window.dumps) / 2 or not at:
        return None
    last = max(active_ns) / 1e9
    timeout = int(progress.table["timeout_ms"].max(initial=0)) / 1e3
    trusted = TIMEOUT_MARGIN * timeout if timeout > 0 else LONGEST_TRUSTED_SECONDS
    trusted = float("inf") if window.live else trusted  # an agent took it then
    newest = max(at.values())
    if newest is None or not -5.0 <= newest - last <= trusted + SHORTEST_HANG_SECONDS:
        return None
    table, rows = progress.table, np.flatnonzero(_waits(progress))
    ranks, first = np.unique(table["rank"][rows], return_index=True)
    created = table["created_ns"][rows][first] / 1e9
    ages = [(at.get(int(rank)) or newest) - float(since) for rank, since in zip(ranks, created, strict=True)]
    return max(*ages, 0.0) if ages else newest - last


def _dated_by_themselves(window: Window) -> bool:
    """Whether all is of files of the probe's rings, which no agent has read: their newest entry is all that dates them."""
    rings = window.records_of(Ring)
    return bool(rings) and all(ring.undated for ring in rings) and not window.records_of(FlightRecorderDump)


def _pauses(progress: Fronts) -> tuple[float | None, float | None]:
    """Return the ranks' usual longest pause (the median over ranks) and the longest of all, from launch to launch."""
    table = progress.table
    rows = np.flatnonzero(progress.current & (table["created_ns"] > 0))
    rank, created = table["rank"][rows], table["created_ns"][rows]
    # A communicator's first operation connects its members, which can take seconds: that is no rhythm.
    connects = np.where(table.is_p2p[rows], table["p2p_seq"][rows], table["collective_seq"][rows])[:-1] <= 1
    kept = (rank[1:] == rank[:-1]) & ~connects
    gaps, of_rank = np.diff(created)[kept], rank[1:][kept]
    if len(gaps) < FEWEST_GAPS or not table.finished[rows].any():
        return None, None
    starts = np.flatnonzero(np.concatenate(([True], of_rank[1:] != of_rank[:-1])))
    longest = np.maximum.reduceat(gaps, starts) / 1e9
    return statistics.median(longest.tolist()), float(longest.max())


def _steps_after(window: Window) -> int:
    """Return the fewest steps that a log reports after the newest entry of all dumps: what these show had passed then."""
    known = [at for one in window.records_of(Steps) if len(at := step_instants(one))]
    if window.live or not known:
        return 0
    newest = max(map(last_activity_ns, window.dumps), default=-1) / 1e9
    if newest <= 0 or max(float(at.max()) for at in known) - newest > ZONE_SECONDS:
        return 0
    return min(int((at > newest + SKEW_SECONDS).sum()) for at in known)


def _moved(window: Window) -> bool | None:
    """Compare ranks that were dumped twice: True if all moved, False if none did, None if unknown or mixed.

    Equal dumps whose files are of one moment are copies of one.
    """
    newest = {dump.rank: dump for dump in window.dumps}
    verdicts = []
    for earlier in window.earlier_dumps:
        later = newest.get(earlier.rank)
        if (
            later is not None
            and earlier.source != later.source
            and (earlier.columns != later.columns or not _of_one_moment(earlier, later))
        ):
            verdicts.append(last_activity_ns(later) > last_activity_ns(earlier))
    if not verdicts or (any(verdicts) and not all(verdicts)):
        return None
    return verdicts[0]


def _of_one_moment(earlier: FlightRecorderDump, later: FlightRecorderDump) -> bool:
    if earlier.at is None or later.at is None:
        return earlier.at is later.at
    return abs(later.at - earlier.at) < APART_SECONDS
