"""Whether stacks in files show a standstill: a rank may move from one set to the next.

Files are read without a symptom: no detector has seen a job that stands still. What agents send comes with one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from analyzers.model.frames import FrameRules
from analyzers.model.ranges import ranges
from analyzers.model.standings import ENOUGH_LOOKS, WAITING, Standing, histories
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import StackDump

COPIED_SECONDS = 1.0  # sets that seem nearer than that were copied, and the time between them is lost
GOES_ON_SECONDS = 60.0  # between two sets: in more, a job that went on may have come to stand still
ALIKE = (
    "whether the job stands still: ranks that run are found twice in the line that takes the longest, too; the log of its "
    "steps, from the same time, would show it"
)


def of_files(window: Window) -> bool:
    """Whether all stacks are of files: no agent took one."""
    return not window.live and all(dump.boot_id is None for dump in window.records_of(StackDump))


def with_left_waits(
    found: Mapping[int, Standing], window: Window, topology: Topology, rules: FrameRules
) -> dict[int, Standing]:
    """Mark ranks that waited in one set of stacks in files and work in the next, soon after: what they waited for has come."""
    if not of_files(window):
        return dict(found)
    of_rank = histories(window, topology, rules)

    def left(one: Standing) -> bool:
        looks = of_rank(one.rank)
        waited = [look.duty.name in WAITING for look in looks[:-1]]
        if not waited or not waited[-1] or waited.count(False) >= ENOUGH_LOOKS:
            return False
        before, newest = looks[-2].dump.at, looks[-1].dump.at
        return before is not None and newest is not None and COPIED_SECONDS <= newest - before <= GOES_ON_SECONDS

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
