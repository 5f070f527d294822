"""A run becomes flight-recorder dumps, as the records that the reader would make of their files."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from collectors.records import FlightRecorderDump, Group, Members
from simulation.execution import NEVER, Job, Trace
from simulation.ledger import DIMENSIONS, Ledger, LedgerLine, first_numbers, own_strings, write_ledger
from simulation.programs import DESCRIPTIONS

EPOCH_NS = 1_763_000_000_000_000_000
WATCHDOG_NS = 100_000_000  # how late the watchdog may notice that an operation ended
TIMEOUT_MS = 600_000
LIBRARY_VERSION = "2.27.3"
_SHARED = {  # column → (line field, array type)
    "group": ("dimension", "i"),
    "collective_seq": ("collective", "q"),
    "p2p_seq": ("p2p", "q"),
    "op_id": ("op_id", "q"),
    "operation": ("name", "i"),
    "is_p2p": ("is_p2p", "b"),
    "input_sizes": ("sizes_in", "i"),
    "output_sizes": ("sizes_out", "i"),
    "dtypes": ("dtype", "i"),
}


@dataclass(frozen=True, slots=True)
class Recording:
    """How the job's recorder was set and when each rank was dumped, nanoseconds after the run's start."""

    dumped_at_ns: tuple[int, ...]
    version: str = "2.10"
    timing: bool = False
    active_only: bool = False
    ring: int = 200
    stale: int = 0  # entries of a captured graph that linger
    without: frozenset[int] = frozenset()  # ranks that left no dump
    first_number: int = 5000  # sequence numbers at the start of the run; 0: the job has just begun


def dumps(trace: Trace, recording: Recording) -> Iterator[FlightRecorderDump]:
    """Yield each rank's dump."""
    job = trace.job
    ledgers: dict[int, Ledger] = {}
    members = [Members.of(ranks) for ranks in job.groups.members]
    for rank in range(job.shape.world):
        if rank in recording.without:
            continue
        program = job.programs[rank]
        ledger = ledgers.get(id(program))
        if ledger is None:
            ledger = write_ledger(program, recording.version, recording.first_number, recording.stale)
            ledgers[id(program)] = ledger
        yield _dump(trace, recording, ledger, rank, members)


def _dump(trace: Trace, recording: Recording, ledger: Ledger, rank: int, members: list[Members]) -> FlightRecorderDump:
    at_ns = recording.dumped_at_ns[rank]
    ends = shown_ends(trace, rank, at_ns)
    written = _written(trace, ledger, rank, at_ns)
    first = max(0, written - recording.ring)
    lines = ledger.lines[first:written]
    if recording.active_only:
        places = [i for i, line in enumerate(lines, first) if _unfinished(line, ends)]
        lines = [ledger.lines[i] for i in places]
        shared = _shared(trace.job, rank, lines, [ledger.before + i for i in places])
    else:
        if (first, written) not in ledger.columns:
            numbers = range(ledger.before + first, ledger.before + written)
            ledger.columns[first, written] = _shared(trace.job, rank, lines, numbers)
        shared = ledger.columns[first, written]
    return FlightRecorderDump(
        source=f"_dump_{rank}",
        at=(EPOCH_NS + at_ns) / 1e9,
        rank=rank,
        version=recording.version,
        library_version=LIBRARY_VERSION,
        groups=_groups(trace.job, rank, members),
        strings=own_strings(trace.job, rank) + ledger.strings,
        count=len(lines),
        columns=shared | _states(trace, recording, rank, lines, ends) | _places(trace.job, rank, lines),
        pg_status=_status(trace, recording, ledger, rank, ends, written),
    )


def _unfinished(line: LedgerLine, ends: list[int]) -> bool:
    return not line.watched or line.position < 0 or ends[line.position] == NEVER


def shown_ends(trace: Trace, rank: int, at_ns: int) -> list[int]:
    """Return when the rank's watchdog saw each operation end, NEVER where it had not by then."""
    lag = 1 + rank * 104_729_000 % WATCHDOG_NS
    lost_from = trace.lost_from.get(rank, len(trace.done[rank]))
    shown = [end + lag if end != NEVER and end + lag <= at_ns else NEVER for end in trace.done[rank][:lost_from]]
    return shown + [NEVER] * (len(trace.done[rank]) - lost_from)


def _written(trace: Trace, ledger: Ledger, rank: int, at_ns: int) -> int:
    """Count the lines that the host had recorded by an instant; it records in program order."""
    created = trace.created[rank]
    never = at_ns + 1
    return bisect_right(
        ledger.lines,
        at_ns,
        key=lambda line: (
            0 if line.position < 0 else (created[line.position] if created[line.position] != NEVER else never)
        ),
    )


def _shared(job: Job, rank: int, lines: list[LedgerLine], record_ids: range | list[int]) -> dict[str, bytes]:
    """Fill the columns that are the same on every rank of a program."""
    place_of = {dimension: place for place, dimension in enumerate(_own_dimensions(job, rank))}
    columns = {
        name: array(code, [getattr(line, field) for line in lines]).tobytes() for name, (field, code) in _SHARED.items()
    }
    columns["pg_id"] = array("q", [place_of[line.dimension] for line in lines]).tobytes()
    columns["record_id"] = array("q", record_ids).tobytes()
    columns["timeout_ms"] = array("q", [TIMEOUT_MS] * len(lines)).tobytes()
    columns["frames"] = array("i", [-1] * len(lines)).tobytes()
    return columns


def _states(
    trace: Trace, recording: Recording, rank: int, lines: list[LedgerLine], ends: list[int]
) -> dict[str, bytes]:
    created, ready, at_ns = trace.created[rank], trace.ready[rank], recording.dumped_at_ns[rank]
    lost_from = trace.lost_from.get(rank, len(ends))
    seen = [line.watched and line.position >= 0 for line in lines]
    created_ns, started_ns, completed_ns = [], [], []
    for line, counts in zip(lines, seen, strict=True):
        index = line.position
        created_ns.append(EPOCH_NS + (created[index] if index >= 0 else -1_800_000_000_000))
        begun = counts and recording.timing and index < lost_from and NEVER < ready[index] <= at_ns
        started_ns.append(EPOCH_NS + ready[index] if begun else NEVER)
        completed_ns.append(EPOCH_NS + ends[index] if counts and ends[index] != NEVER else NEVER)
    completed = [at != NEVER for at in completed_ns]
    states = [2 if done else int(start != NEVER) for done, start in zip(completed, started_ns, strict=True)]
    return {
        "state": bytes(states),
        "retired": bytes(completed),
        "created_ns": array("q", created_ns).tobytes(),
        "started_ns": array("q", started_ns).tobytes(),
        "completed_ns": array("q", completed_ns).tobytes(),
    }


def _places(job: Job, rank: int, lines: list[LedgerLine]) -> dict[str, bytes]:
    """Give each line its group's rank-local number, which is also its key in the status."""
    own = [number for number, dimension in enumerate(DIMENSIONS) if dimension in job.groups.of[rank]]
    place = {number: index for index, number in enumerate(own)}
    return {"pg_id": array("q", [place.get(line.dimension, -1) for line in lines]).tobytes()}


def _own_dimensions(job: Job, rank: int) -> list[int]:
    """Return the dimensions that a rank has a group in; their order gives each its rank-local number."""
    return [place for place, dimension in enumerate(DIMENSIONS) if dimension in job.groups.of[rank]]


def _groups(job: Job, rank: int, members: list[Members]) -> tuple[Group, ...]:
    descriptions = DESCRIPTIONS[job.shape.style]
    own = job.groups.of[rank]
    return tuple(Group(job.groups.name(own[d]), descriptions[d], members[own[d]]) for d in DIMENSIONS if d in own)


def _status(
    trace: Trace, recording: Recording, ledger: Ledger, rank: int, ends: list[int], written: int
) -> dict[str, bytes]:
    """Sum up each group: the number of its last work enqueued, started, completed; keys are the rank's own."""
    collective, p2p = first_numbers(trace.job.programs[rank].stage, recording.first_number)
    enqueued = [max(pair) for pair in zip(collective, p2p, strict=True)]
    completed = enqueued[:]
    for line in ledger.lines[recording.stale : written]:
        if line.watched:
            number = line.p2p if line.is_p2p else line.collective
            enqueued[line.dimension] = number
            if ends[line.position] != NEVER:
                completed[line.dimension] = number
    own = _own_dimensions(trace.job, rank)
    columns = {
        "pg_id": list(range(len(own))),
        "enqueued": [enqueued[i] for i in own],
        "started": [completed[i] if recording.timing else -1 for i in own],
        "completed": [completed[i] for i in own],
    }
    return {name: array("q", values).tobytes() for name, values in columns.items()}
