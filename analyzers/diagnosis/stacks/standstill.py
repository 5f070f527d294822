"""Whether stacks in files show a standstill: a log may have newer steps, and a rank may move from one set to the next.

Files are read without a symptom: no detector has seen a job that stands still. What agents send comes with one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from analyzers.model.frames import FrameRules
from analyzers.model.ranges import ranges
from analyzers.model.standings import ENOUGH_LOOKS, WAITING, Standing, histories
from analyzers.model.topology import Topology
from analyzers.model.window import SKEW_SECONDS, Window, step_instants
from collectors.records import StackDump, Steps

STEPS_ON = 2  # after the newest stack, in each log: one may have ended while it was taken
PAUSE_SECONDS, PAUSE_FACTOR = 30.0, 5.0  # between two steps, of the median: what is longer may be the hang
ZONE_SECONDS = 1500.0  # no two time zones are nearer: steps that seem to be later by more may be of another one
ALIKE = (
    "whether the job stands still: ranks that run are found twice in the line that takes the longest, too; the log of its "
    "steps, from the same time, would show it"
)


def of_files(window: Window) -> bool:
    """Whether all stacks are of files: no agent took one."""
    return not window.live and all(dump.boot_id is None for dump in window.records_of(StackDump))


def steps_after(window: Window) -> str:
    """Say that the logs report steps from after the newest stack, which is of no hang then; empty: they do not.

    The time of a file is that of the stack or of a later copy. The times of a log are read as UTC.
    """
    taken = [dump.at for dump in window.records_of(StackDump) if dump.at is not None]
    logs = [at for one in window.records_of(Steps) if len(at := step_instants(one))]
    if not taken or not logs or not of_files(window) or len(taken) < len(window.records_of(StackDump)):
        return ""
    newest = max(taken)
    count = min(int((at > newest + SKEW_SECONDS).sum()) for at in logs)
    if count < STEPS_ON or max(float(at.max()) for at in logs) - newest > ZONE_SECONDS:
        return ""
    if any(_stood(np.sort(at), newest + SKEW_SECONDS) for at in logs):
        return ""
    return (
        f"whether the job stands still: the logs report {count:,} steps after the newest stack was taken, as far as their times "
        "are of UTC; these stacks are of a job that ran, and newer ones would show where it stands"
    )


def _stood(at: NDArray[np.float64], taken: float) -> bool:
    """Whether steps came apart around an instant for longer than they do: it stood still then, and went on or began anew."""
    place = int(np.searchsorted(at, taken, side="right"))
    if not 0 < place < len(at):
        return True
    return bool(at[place] - at[place - 1] > max(PAUSE_SECONDS, PAUSE_FACTOR * float(np.median(np.diff(at)))))


def with_left_waits(
    found: Mapping[int, Standing], window: Window, topology: Topology, rules: FrameRules
) -> dict[int, Standing]:
    """Mark the ranks that waited in one set of stacks in files and work in the next: what they waited for has come."""
    if not of_files(window):
        return dict(found)
    of_rank = histories(window, topology, rules)

    def left(one: Standing) -> bool:
        earlier = [seen.duty.name in WAITING for seen in of_rank(one.rank)[:-1]]
        return bool(earlier) and earlier[-1] and earlier.count(False) < ENOUGH_LOOKS

    return {rank: replace(one, left_a_wait=True) if left(one) else one for rank, one in found.items()}


def moves(outside: Sequence[Standing], window: Window) -> str:
    """Say that ranks that hold the others up move between two sets of stacks in files; empty: they do not."""
    if not of_files(window) or not all(one.moved and not one.frozen for one in outside):
        return ""
    named = f"rank{'s' if len(outside) > 1 else ''} {ranges(one.rank for one in outside)}"
    return (
        f"whether the job stands still: {named} moved between the sets of stacks, and may only take long; the log of its steps, "
        "from the same time, would show it"
    )


def went_on(left: Sequence[Standing]) -> str:
    """Say that the job went on between two sets of stacks, by the ranks whose wait came to its end."""
    named = f"rank{'s' if len(left) > 1 else ''} {ranges(one.rank for one in left)}"
    return (
        f"whether the job stands still: {named} waited in one set of stacks and no longer in the next, so that it went on; a "
        "later set would show whether it still does"
    )
