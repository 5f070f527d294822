"""What the process table shows of a rank: stopped, uninterruptible, gone. No dump shows any of these.

A stopped process (SIGSTOP) keeps the stack and the flight recorder of its victims, so its state letter is often the only
evidence there is. State D is ordinary for milliseconds; what it waits for in the kernel shows whether it is storage.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from analyzers.knowledge import Knowledge
from analyzers.model.finding import Cause, Evidence, Finding, Suspect
from analyzers.model.frames import FrameRules
from analyzers.model.processes import BLOCKED, READ_AGAIN_SECONDS, Owners, in_files, rows_by_rank
from analyzers.model.ranges import ranges
from analyzers.model.standings import standings
from analyzers.model.topology import Topology
from analyzers.model.wait_channels import NetworkFileSystems, Undecided
from analyzers.model.window import Window
from collectors.records import ProcessState, StackDump

STOPPED = 0.95
TRACED = 0.5  # py-spy and gdb stop a process for a moment
UNINTERRUPTIBLE = 0.5
UNINTERRUPTIBLE_TWICE = 0.8
UNDECIDED, UNDECIDED_TWICE = 0.3, 0.5
"""Where the kernel's function does not show whether a machine, a disk or a file server holds it: who, and hardly why."""
EXITED = 0.9
ABSENT = 0.85
ABSENT_WITHOUT_NODES = 0.7
MAX_ABSENT_SHARE = 1 / 3
"""More ranks without a process than this share of those with one: the table does not cover the job, or the job is over."""

OUT_OF_DATE_SECONDS = 90.0
"""An agent reports states every 10 s: one so much older than another rank's is of a node that no longer reports."""
SAME_LOOK_SECONDS = 0.5
IN_TWO = ", in two tables one after the other"
MOST_SHOWN = 16  # rows of ranks that wait together
REGULAR_SECONDS = 1.0  # by which an agent's readings are not regular
_DEAD = frozenset({"Z", "X"})
_STOPPED = frozenset({"T", "t"})
_FILES = frozenset({"data_loader", "checkpoint", "storage"})
"""Duties of a stack in which a rank reads or writes files."""
_DRIVER = re.compile(r"^(?:nv|uvm|os_acquire|_nv|rm_|ib_|mlx5|rdma|uverbs)")


def analyze(window: Window, topology: Topology, knowledge: Knowledge) -> Iterator[Finding]:
    """Find ranks that are stopped, uninterruptible or without a process."""
    table = window.records_of(ProcessState)
    if not table:
        return
    rows = window.once(rows_by_rank, topology)
    newest = {rank: found[-1] for rank, found in rows.items()}
    dead = {rank: row for rank, row in newest.items() if row.state in _DEAD}
    if len(dead) < len(newest):
        gone = {rank: row for rank, row in dead.items() if _without_a_word(row)}
        yield from _named(gone, "gone", {"Z": EXITED, "X": EXITED}, "its process has exited (state {0.state})")
    known = _last_known(rows)
    stopped = {rank: row for rank, row in known.items() if row.state in _STOPPED}
    some = 0 < len(stopped) < max(2, len(topology.ranks))
    if some and _read_again(stopped, rows) and _others_ran(stopped, rows, topology, _STOPPED):
        why = "its process is stopped (state {0.state}): it takes part in nothing until it is continued"
        yield from _named(stopped, "stopped", {"T": STOPPED, "t": TRACED}, why)
    if len(stopped) >= max(2, len(topology.ranks)) and all(row.state == "T" for row in stopped.values()):
        yield _suspended(stopped)
    at_files = _at_files(window, topology, knowledge)
    network = NetworkFileSystems(knowledge)
    held = {rank: row for rank, row in known.items() if _held(row, network, at_files=rank in at_files)}
    blocked = {rank: row for rank, row in held.items() if not _came_out(row, rows[rank])}
    yield from _uninterruptible(blocked, rows, topology, network, Undecided(knowledge))
    yield from _absent(table, newest, window, topology)


def _without_a_word(row: ProcessState) -> bool:
    """Whether nothing is known of its end: a code or a signal is what the crash rules read, and would count twice."""
    return row.exit_code is None and row.signal is None


def _last_known(rows: Mapping[int, Sequence[ProcessState]]) -> dict[int, ProcessState]:
    """Return each rank's newest state; before the end, where the whole job has ended; not one that is long out of date."""
    over = all(found[-1].state in _DEAD for found in rows.values())
    judged = {rank: [row for row in found if not over or row.state not in _DEAD] for rank, found in rows.items()}
    newest = {rank: found[-1] for rank, found in judged.items() if found}
    instants = [row.at for row in newest.values() if row.boot_id is not None and row.at is not None]
    since = max(instants, default=0.0) - OUT_OF_DATE_SECONDS
    return {rank: row for rank, row in newest.items() if row.boot_id is None or (row.at or 0.0) >= since}


def _read_again(stopped: Mapping[int, ProcessState], rows: Mapping[int, Sequence[ProcessState]]) -> bool:
    """Whether an agent read one of them stopped twice: one look may fall into the moment in which all are stopped in turn."""
    return any(row.boot_id is None or _so_before(row, rows[rank]) for rank, row in stopped.items())


def _others_ran(
    held: Mapping[int, ProcessState],
    rows: Mapping[int, Sequence[ProcessState]],
    topology: Topology,
    states: frozenset[str],
) -> bool:
    """Whether another rank was read out of these states while these were in them, as an agent reports it: else all may be.

    A person stops and continues all ranks at once, and a mount hangs for all that read it; a node that has not reported since
    shows its ranks as they were. The other ran for as long as there is between two readings of these: shorter runs are missed.
    """
    rank, last = max(held.items(), key=lambda item: item[1].at or 0.0)
    if last.boot_id is None or last.at is None or len(topology.ranks) < 2:
        return True
    since, apart = last.at, 0.0
    for row in reversed(rows[rank]):
        if row.state not in states:
            break
        apart, since = max(apart, since - (row.at or 0.0)), row.at or 0.0
    return any(
        found[-1].state not in states
        and _ran_for(found, states, since, last.at) >= apart - REGULAR_SECONDS
        and not any(row.state in states and (row.at or 0.0) >= last.at - READ_AGAIN_SECONDS for row in found)
        for other, found in rows.items()
        if other not in held
    )


def _ran_for(rows: Sequence[ProcessState], states: frozenset[str], since: float, until: float) -> float:
    """Return for how long at the end of a span a rank was read out of these states; minus infinity where it was not."""
    ran: list[float] = []
    for row in reversed(rows):
        at = row.at or 0.0
        if at > until + SAME_LOOK_SECONDS:
            continue
        if row.state in states or at < since - SAME_LOOK_SECONDS:
            break
        ran.append(at)
    return ran[0] - ran[-1] if ran else -math.inf


def _named(
    rows: Mapping[int, ProcessState], fault_class: str, strengths: Mapping[str, float], why: str
) -> Iterator[Finding]:
    """Yield one finding that names all these ranks together."""
    if rows:
        yield _finding(
            fault_class,
            "machine",
            tuple(_suspect(rank, row, strengths[row.state], why.format(row)) for rank, row in sorted(rows.items())),
        )


def _suspended(stopped: Mapping[int, ProcessState]) -> Finding:
    """Return that the whole job is stopped from outside: where its ranks stand then says nothing."""
    first = stopped[min(stopped)]
    why = f"the processes of all {len(stopped)} ranks are stopped (state T): a scheduler or a person has suspended the job"
    evidence = _suspect(min(stopped), first, STOPPED, why).evidence
    suspect = Suspect(kind="platform", strength=STOPPED, why=why, ranks=tuple(sorted(stopped)), evidence=evidence)
    return _finding("all_stopped", "platform", (suspect,))


def _finding(fault_class: str, cause: Cause, suspects: tuple[Suspect, ...]) -> Finding:
    return Finding(
        analyzer="process",
        family="process",
        symptom="hang",
        cause=cause,
        fault_class=fault_class,
        suspects=suspects,
        together=len(suspects) > 1,
        scope=frozenset(rank for suspect in suspects for rank in suspect.ranks),
        evidence=tuple(item for suspect in suspects for item in suspect.evidence),
    )


def _suspect(rank: int, row: ProcessState, strength: float, why: str) -> Suspect:
    channel = f", waiting in {row.wait_channel}" if row.wait_channel else ""
    text = f"rank {rank}: process {row.pid} is in state {row.state}{channel}"
    evidence = (Evidence(text=text, source=row.source, at=row.at if row.boot_id else None),)
    return Suspect(kind="rank", strength=strength, why=why, ranks=(rank,), node=row.node, evidence=evidence)


def _at_files(window: Window, topology: Topology, knowledge: Knowledge) -> frozenset[int]:
    """Return the ranks whose stacks show that they read or write files, or that their data loader does."""
    rules = window.once(FrameRules.of, knowledge)
    found = standings(window, topology, rules) if rules.rules and window.records_of(StackDump) else {}
    return frozenset(rank for rank, one in found.items() if one.duty in _FILES or _FILES.intersection(one.reasons))


def _held(row: ProcessState, network: NetworkFileSystems, *, at_files: bool) -> bool:
    """Whether a process waits in the kernel and nothing but an answer ends that.

    State I is a kernel thread's, unless the client of a file system waits so. State S is any wait's: only with frames that
    read files does it show that the process waits for the server whose client sleeps so.
    """
    if row.state == "S":
        return at_files and network.in_sleep(row.wait_channel)
    return row.state == "D" or (row.state in BLOCKED and network.waited_for(row.wait_channel) != "")


def _uninterruptible(
    blocked: Mapping[int, ProcessState],
    rows: Mapping[int, Sequence[ProcessState]],
    topology: Topology,
    network: NetworkFileSystems,
    undecided: Undecided,
) -> Iterator[Finding]:
    """Yield what state D means: storage where ranks of several machines wait for files, or one for a server; else a machine."""
    storage = {rank: row for rank, row in blocked.items() if in_files(row)}
    if _many(storage, topology):
        first = storage[min(storage)]
        text = f"{len(storage)} ranks are uninterruptible in file-system waits ({first.wait_channel})"
        shown = sorted(storage.items())[:MOST_SHOWN]
        evidence = tuple(_suspect(rank, row, 0.8, text).evidence[0] for rank, row in shown)
        suspect = Suspect(kind="storage", strength=0.8, why=text, ranks=tuple(sorted(storage)), evidence=evidence)
        yield _finding("uninterruptible", "storage", (suspect,))
    elif remote := {rank: row for rank, row in blocked.items() if network.waited_for(row.wait_channel)}:
        yield _at_server(remote, rows, network)
        blocked = {rank: row for rank, row in blocked.items() if rank not in remote}
    if storage and (_many(storage, topology) or not _others_ran(storage, rows, topology, BLOCKED)):
        blocked = {rank: row for rank, row in blocked.items() if rank not in storage}
    if len(blocked) * 2 <= max(len(rows), 2):
        open_still = {rank: row for rank, row in blocked.items() if undecided.waited_for(row.wait_channel)}
        yield from _by_machine({rank: row for rank, row in blocked.items() if rank not in open_still}, rows)
        yield from _not_shown(open_still, rows, undecided)


def _by_machine(blocked: Mapping[int, ProcessState], rows: Mapping[int, Sequence[ProcessState]]) -> Iterator[Finding]:
    """Yield the ranks that wait in a driver, for a disk of their machine, or elsewhere in its kernel."""
    suspects = []
    for rank, row in sorted(blocked.items()):
        twice = _so_before(row, rows[rank])
        driver = _DRIVER.search(row.wait_channel or "") is not None
        strength = UNINTERRUPTIBLE_TWICE if twice else UNINTERRUPTIBLE + 0.15 * driver
        why = f"its process is uninterruptible in {row.wait_channel}" + (IN_TWO if twice else "")
        suspects.append(_suspect(rank, row, strength, why))
    if suspects:
        yield _finding("uninterruptible", "machine", tuple(suspects))


def _not_shown(
    blocked: Mapping[int, ProcessState], rows: Mapping[int, Sequence[ProcessState]], undecided: Undecided
) -> Iterator[Finding]:
    """Yield the ranks of which the kernel's function does not show what holds them, and what would show it."""
    suspects, asked = [], []
    for rank, row in sorted(blocked.items()):
        twice = _so_before(row, rows[rank])
        if not twice and undecided.passes(row.wait_channel):
            continue
        where = (f" in {row.wait_channel}" if row.wait_channel else "") + (IN_TWO if twice else "")
        why = f"its process is uninterruptible{where}, and waits for {undecided.waited_for(row.wait_channel)}"
        suspects.append(_suspect(rank, row, UNDECIDED_TWICE if twice else UNDECIDED, why))
        asked.append(
            f"what holds rank {rank} in the kernel: as root, `cat /proc/{row.pid}/wchan /proc/{row.pid}/stack`"
        )
    if suspects:
        yield replace(_finding("uninterruptible", "unknown", tuple(suspects)), missing=tuple(asked[:MOST_SHOWN]))


def _at_server(
    remote: Mapping[int, ProcessState], rows: Mapping[int, Sequence[ProcessState]], network: NetworkFileSystems
) -> Finding:
    """Return that these ranks wait for the server of a network file system: any client of it may, whatever its machine."""
    ranks, first = tuple(sorted(remote)), remote[min(remote)]
    twice = any(_so_before(row, rows[rank]) for rank, row in remote.items())
    who = f"rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)} wait{'' if len(ranks) > 1 else 's'}"
    how = "" if first.state == "S" else "uninterruptible "
    why = f"{who} for a network file system ({network.waited_for(first.wait_channel)}), {how}in {first.wait_channel}"
    why += IN_TWO if twice else ""
    strength = UNINTERRUPTIBLE_TWICE if twice else UNINTERRUPTIBLE
    evidence = tuple(
        item for rank in ranks[:MOST_SHOWN] for item in _suspect(rank, remote[rank], strength, why).evidence
    )
    suspect = Suspect(kind="storage", strength=strength, why=why, ranks=ranks, evidence=evidence)
    return _finding("file_server_wait", "storage", (suspect,))


def _came_out(row: ProcessState, rows: Sequence[ProcessState]) -> bool:
    """Whether a rank that was read uninterruptible once left with a code later: what is uninterruptible cannot leave."""
    return rows[-1].exit_code is not None and not _so_before(row, rows)


def _so_before(row: ProcessState, rows: Sequence[ProcessState]) -> bool:
    """Whether the table before this row has it in the same state; two tables of one moment are one."""
    before = [other for other in rows if (other.at or 0.0) <= (row.at or 0.0) - SAME_LOOK_SECONDS]
    return bool(before) and before[-1].state == row.state


def _many(ranks: Mapping[int, ProcessState], topology: Topology) -> bool:
    """Whether these ranks are on several machines, or, where machines are unknown, several ranks."""
    nodes = {ranks[rank].node or topology.nodes.get(rank) for rank in ranks}
    return len(nodes) > 1 if None not in nodes else len(ranks) > 1


def _absent(
    table: Sequence[ProcessState], newest: Mapping[int, ProcessState], window: Window, topology: Topology
) -> Iterator[Finding]:
    """Yield ranks that have no process in a table that shows their node-mates'."""
    owners = window.once(Owners.from_records, topology)
    alive = frozenset(rank for rank, row in newest.items() if row.state not in {"Z", "X"})
    # A rank whose pid is unknown would show only by its command line, so its neighbours must show by theirs.
    stated = frozenset(rank for rank in alive if newest[rank].rank == rank and not owners.pids_of(rank))
    suspects: list[Suspect] = []
    most = max(1, len(alive) * MAX_ABSENT_SHARE)
    for rank in topology.ranks:
        if len(suspects) > most:
            return
        if rank in newest:
            continue
        node = topology.nodes.get(rank)
        findable = alive if owners.pids_of(rank) else stated
        mates = findable if node is None else findable.intersection(topology.ranks_on(node))
        if mates:
            suspects.append(_absent_suspect(rank, node, newest[min(mates)]))
    one_table = bool(topology.nodes) or len({row.source.rsplit(":", 1)[0] for row in table}) == 1
    if suspects and one_table and len(suspects) <= most:
        yield _finding("gone", "machine", tuple(suspects))


def _absent_suspect(rank: int, node: str | None, mate: ProcessState) -> Suspect:
    where = f"on {node} " if node else ""
    text = f"rank {rank} has no process {where}while its neighbours have one"
    strength = ABSENT if node else ABSENT_WITHOUT_NODES
    evidence = (Evidence(text=text, source=mate.source.rsplit(":", 1)[0], at=mate.at if mate.boot_id else None),)
    return Suspect(kind="rank", strength=strength, why=text, ranks=(rank,), node=node, evidence=evidence)
