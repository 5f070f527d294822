"""What agents saw of the processes of instances: how they ended, whether they use their processors, who grew in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from analyzers.model.frames import FrameRules, is_user_code, shown
from analyzers.model.role_instances import Instance, Seat
from analyzers.model.role_silence import ASKED, ENDED, NOT_SEEN, Seen
from analyzers.model.window import Window
from collectors.records import KernelEvent, Placement, ProcessState, StackDump
from collectors.records.identity import places, short

GONE_SECONDS = 60.0  # agents read states every ten seconds
LEAST_CPU = 0.01  # of one processor
ROUNDS_SECONDS = 8.0  # between the first stack and the last: two rounds, of which each may take two
_Process = tuple[str, int]  # node and pid


def seen_processes(
    window: Window,
    instances: Mapping[Seat, Instance],
    ranks: Mapping[Seat, int],
    grown_share: float,
    rules: FrameRules,
) -> dict[Seat, Seen]:
    """Return what process tables, the kernel and stacks show of each instance whose process is known.

    ``ranks``: of the instances.
    """
    rows: dict[_Process, list[ProcessState]] = defaultdict(list)
    newest: dict[str, float] = {}
    for row in window.records_of(ProcessState):
        if row.node is not None:
            rows[short(row.node), row.pid].append(row)
            newest[short(row.node)] = max(newest.get(short(row.node), 0.0), row.at or 0.0)
    killed = {
        (short(one.node), one.pid)
        for one in window.records_of(KernelEvent)
        if one.event == "oom_kill" and one.node and one.pid
    }
    owners = _owners(window, instances, ranks, rows)
    found = {
        seat: seen
        for seat, process in owners.items()
        if (seen := _seen(process, rows.get(process, []), newest, killed)) is not None
    }
    grown = {seat: _grown(rows.get(process, [])) for seat, process in owners.items()}
    for seat, process in owners.items():
        if seat in found and found[seat].killed_for_memory:
            beside = {other: grown[other] for other, (node, _) in owners.items() if node == process[0]}
            found[seat] = _blame(found[seat], seat, beside, grown_share)
    for seat, its in _stacks(window, instances, owners).items():
        place = own_code(its, rules)
        found[seat] = replace(found.get(seat, NOT_SEEN), own_code=place, elsewhere=not place)
    return found


def _stacks(
    window: Window, instances: Mapping[Seat, Instance], owners: Mapping[Seat, _Process]
) -> dict[Seat, list[StackDump]]:
    """Return the stacks of each instance's process that agents took since it last said anything new, oldest first."""
    dumps: dict[_Process, list[StackDump]] = defaultdict(list)
    for dump in window.records_of(StackDump):
        if dump.node is not None and dump.pid is not None and dump.at is not None and dump.boot_id is not None:
            dumps[short(dump.node), dump.pid].append(dump)
    found: dict[Seat, list[StackDump]] = {}
    for seat, process in owners.items():
        its = [one for one in dumps.get(process, ()) if (one.at or 0.0) > instances[seat].stays.changed_at]
        its.sort(key=lambda one: one.at or 0.0)
        if its and (its[-1].at or 0.0) - (its[0].at or 0.0) >= ROUNDS_SECONDS:
            found[seat] = its
    return found


def own_code(dumps: Sequence[StackDump], rules: FrameRules) -> str:
    """Return where the main thread of a process ran in each of these stacks, in the program's own code; empty: it did not.

    Its innermost frame is the program's own, and it uses a processor: what decodes is in its model, and what polls sleeps.
    """
    mains = [next((thread for thread in dump.threads if thread.main), None) for dump in dumps]
    runs = [
        one for one in mains if one is not None and one.active and one.frames and not any(w.call for w in one.sockets)
    ]
    if len(runs) < len(dumps) or any(not is_user_code(one.frames[0]) or rules.duty(one.frames).name for one in runs):
        return ""
    return shown(runs[-1].frames[0]) if len({rules.normal(one.frames) for one in runs}) == 1 else ""


def _owners(
    window: Window,
    instances: Mapping[Seat, Instance],
    ranks: Mapping[Seat, int],
    rows: Mapping[_Process, Sequence[ProcessState]],
) -> dict[Seat, _Process]:
    """Map instances to their youngest process: one that was replaced has ended, and its instance has not.

    Which processes are whose is known by what an instance says of itself, else by the placement of its role and rank.
    """
    seat_of = {(seat[0], rank): seat for seat, rank in ranks.items() if seat in instances}
    seats: dict[_Process, Seat] = {}
    began: dict[_Process, float] = {}
    for placement in window.records_of(Placement):
        for place, role, rank in places(placement):
            seat = seat_of.get((role, rank))
            if seat is not None and place < min(len(placement.pids), len(placement.nodes)):
                process = short(placement.nodes[place]), placement.pids[place]
                seats[process] = seat
                began[process] = placement.started_ats[place] if place < len(placement.started_ats) else 0.0
    for process, its in rows.items():
        for row in its:
            if row.parent_pid is None and row.rank is not None and (seat := seat_of.get((row.role or "", row.rank))):
                seats.setdefault(process, seat)
    for seat, one in sorted(instances.items()):
        if one.pid is not None and one.node is not None:
            seats[short(one.node), one.pid] = seat
    return {seat: process for process, seat in sorted(seats.items(), key=lambda one: _age(one[0], began, rows))}


def _age(
    process: _Process, began: Mapping[_Process, float], rows: Mapping[_Process, Sequence[ProcessState]]
) -> tuple[bool, float, float]:
    """Return what grows with how late a process began: by its start, else by when it was read last."""
    its = rows.get(process, ())
    started = max((row.started_at or 0.0 for row in its), default=0.0)
    return bool(its), max(began.get(process) or 0.0, started), max((row.at or 0.0 for row in its), default=0.0)


def _seen(
    process: _Process, rows: Sequence[ProcessState], newest: Mapping[str, float], killed: Collection[_Process]
) -> Seen | None:
    if not rows:
        return Seen(state="X", killed_for_memory=True) if process in killed else None
    ordered = sorted(rows, key=lambda row: (row.at or 0.0, row.state in ENDED))
    last = ordered[-1]
    gone = last.state not in ENDED and newest[process[0]] - (last.at or 0.0) > GONE_SECONDS
    return Seen(
        state="gone" if gone else last.state, at=last.at, still_seconds=_still(ordered), source=last.source,
        for_seconds=_in_state(ordered),
        killed_for_memory=process in killed or _counted(ordered), ended_well=last.exit_code == 0 and not last.signal,
        asked_to_end=(last.signal or (last.exit_code or 0) - 128) in ASKED,  # a program that catches one exits with 128 more
    )  # fmt: skip


def _counted(ordered: Sequence[ProcessState]) -> bool:
    """Whether a SIGKILL ended it while its node's count of kills for memory went up."""
    counts = [row.oom_kills_total for row in ordered if row.oom_kills_total is not None]
    return ordered[-1].signal == 9 and len(counts) > 1 and counts[-1] > counts[0]


def _in_state(ordered: Sequence[ProcessState]) -> float:
    """Return for how long it was read in its newest state without another between."""
    alike = list(takewhile(lambda row: row.state == ordered[-1].state, reversed(ordered)))
    return (alike[0].at or 0.0) - (alike[-1].at or 0.0)


def _still(ordered: Sequence[ProcessState]) -> float | None:
    """Return for how long it is known to have used no processor; None without two readings."""
    timed = [(row.at, row.cpu_seconds) for row in ordered if row.at is not None and row.cpu_seconds is not None]
    if len(timed) < 2:
        return None
    at, used = timed[-1]
    return max((at - then for then, before in timed if used - before <= LEAST_CPU * (at - then)), default=0.0)


def _grown(rows: Iterable[ProcessState]) -> tuple[int, int]:
    """Return by how many bytes it grew, and how many it had at most."""
    held = [row.resident_bytes for row in sorted(rows, key=lambda row: row.at or 0.0) if row.resident_bytes]
    return (held[-1] - held[0], max(held)) if held else (0, 0)


def _blame(seen: Seen, seat: Seat, beside: Mapping[Seat, tuple[int, int]], grown_share: float) -> Seen:
    """Name the process of its node that grew most, where that is a good share of what they hold together."""
    held = sum(most for _, most in beside.values())
    guilty, (growth, _) = max(beside.items(), key=lambda one: (one[1][0], one[0]))
    leaked = growth > grown_share * held and growth > 2 * beside[seat][0]
    return replace(seen, leaked_by=guilty if leaked else None, killed_for_memory=True)  # fmt: skip
