"""Processes that stand in the same place, as one row: fewest ranks first, because the outlier is what one looks for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from analyzers.model.window import Window
from collectors.records import Frame, StackDump, Thread

MOST_FRAMES = 80  # of one stack; the outermost beyond are cut


@dataclass(frozen=True, slots=True)
class StackGroup:
    """Processes with the same main-thread stack. ``frames`` innermost first; the last ``common`` are in every group."""

    ranks: tuple[int, ...]
    unranked: int  # processes whose rank is unknown
    frames: tuple[str, ...]
    common: int
    holds_gil: int  # processes whose main thread held the GIL
    sources: tuple[str, ...]


def stack_groups(window: Window) -> tuple[StackGroup, ...]:
    """Group the newest stacks of every training process; helpers such as data-loader workers follow their parent."""
    groups: dict[tuple[str, ...], list[StackDump]] = defaultdict(list)
    for dump in _newest(window.records_of(StackDump)):
        thread = main_thread(dump)
        if thread is not None:
            groups[tuple(_place(frame) for frame in thread.frames[:MOST_FRAMES])].append(dump)
    common = _common(list(groups))
    rows = [_row(frames, dumps, common if common < len(frames) else 0) for frames, dumps in groups.items()]
    return tuple(sorted(rows, key=lambda row: (len(row.ranks) + row.unranked, row.ranks, row.frames)))


def main_thread(dump: StackDump) -> Thread | None:
    """Return the thread that trains: the one marked main, else the one so named, else the first with frames."""
    with_frames = [thread for thread in dump.threads if thread.frames]
    marked = (thread for thread in with_frames if thread.main or thread.name == "MainThread")
    return next(marked, with_frames[0] if with_frames else None)


def _newest(dumps: Iterable[StackDump]) -> list[StackDump]:
    """Keep the newest dump of each process, and of processes of one rank only those whose parent is not among them."""
    newest: dict[tuple[int | None, str | None, int | None, str], StackDump] = {}
    for dump in dumps:
        key = (dump.rank, dump.node, dump.pid, dump.source if dump.pid is None else "")
        if key not in newest or (newest[key].at or 0.0) <= (dump.at or 0.0):
            newest[key] = dump
    kept = list(newest.values())
    pids = {(dump.rank, dump.pid) for dump in kept if dump.rank is not None and dump.pid is not None}
    return [dump for dump in kept if dump.rank is None or (dump.rank, dump.parent_pid) not in pids]


def _place(frame: Frame) -> str:
    """Name a frame without the tool's own spelling: function and the file's last two parts, no line (it moves)."""
    file = "/".join(frame.file.replace("\\", "/").split("/")[-2:])
    return f"{frame.function} ({file})" if file else frame.function


def _common(stacks: list[tuple[str, ...]]) -> int:
    """Count the outermost frames that all groups share."""
    if len(stacks) < 2:
        return 0
    count = 0
    for frames in zip(*(reversed(stack) for stack in stacks), strict=False):
        if len(set(frames)) > 1:
            break
        count += 1
    return count


def _row(frames: tuple[str, ...], dumps: list[StackDump], common: int) -> StackGroup:
    ranks = tuple(sorted({dump.rank for dump in dumps if dump.rank is not None}))
    mains = [main_thread(dump) for dump in dumps]
    return StackGroup(
        ranks,
        sum(dump.rank is None for dump in dumps),
        frames,
        common,
        sum(bool(thread and thread.owns_gil) for thread in mains),
        tuple(sorted({dump.source for dump in dumps})),
    )
