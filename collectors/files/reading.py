"""Paths in, records out: opened, recognised, read; for a file without a record, why.

All reading of foreign files happens in forked children with bounded memory and time (``collectors.files.sandbox``). The
order of the records is that of the files, whichever child was first.
"""

from __future__ import annotations

import gc
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

import msgspec

from collectors.files.documents import ADVICE, DOCUMENT, is_document
from collectors.files.framing import limit_memory
from collectors.files.opening import Found, find, open_found, trouble, unread
from collectors.files.path_owner import Whose, torchrun_run, whose
from collectors.files.path_roles import Seat, seats
from collectors.files.sandbox import Pool, Skip, Watch
from collectors.files.streams import Limits, Opened
from collectors.formats import Damaged, Format, Input, recognise
from collectors.formats.prose.advice import is_advice
from collectors.formats.text_lines import is_text
from collectors.records import LogEvent, Record, StackDump, Steps, Unread, block

UNKNOWN = "no reader knows this content: `faulthound formats` lists what is read"
Progress = Callable[[int, int], None]
"""Called with the megabytes read and those there are."""

MEGABYTE = 1_000_000
CHUNK_FILES = 64
CHUNK_BYTES = 16 << 20
BLOCK_RECORDS = 512
MAX_WORKERS = 8
ALONE_FILES, ALONE_BYTES = 48, 2 << 20  # below both, a second child costs more than it saves
BYTES_PER_FILE_BYTE = 24  # a pickle's values take this many times its size, measured on dumps
MAX_CHILD_BYTES = 2 << 30
BESIDE_FILES, BESIDE_MEMBERS = 32, 32  # whose heads are looked at for a stamp
_LOGS = (".log", ".out", ".err", ".txt")


def read_paths(
    paths: Iterable[str | os.PathLike[str]],
    *,
    limits: Limits | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Iterator[Record]:
    """Yield the records of every file at and below the paths, in their order; never raise for what a file holds."""
    limits = limits or Limits()
    found, over = _within(find(paths, limits), limits)
    workers = workers or _workers(found)
    chunks = _chunks(found, workers)
    total, done = _bytes(found), 0
    owned = _Owned.of(item.source for item in found if isinstance(item, Found))
    beside = Beside(found, limits)

    def finished(chunk: int) -> None:
        nonlocal done
        done += _bytes(chunks[chunk])
        moved(0)

    def moved(more: int) -> None:
        if progress:
            progress(-(-min(done + more, total) // MEGABYTE), -(-total // MEGABYTE))

    def work(chunk: int, skip: Skip, watch: Watch) -> Iterator[bytes]:
        return _blocks(_records(chunks[chunk], skip, watch, limits, owned, beside))

    def lost(chunk: int, source: str, reason: str) -> bytes:
        named = [item for item in chunks[chunk] if isinstance(item, Found)]
        return block.encode(
            [
                unread(item.source, f"{reason}, and so the files beside it" if source else reason, "limit")
                for item in named
            ]
        )

    pool = Pool(work, len(chunks), min(workers, len(chunks)), lost, finished, moved)
    for blocks in pool.results():
        for data in blocks:
            yield from _decoded(data)
    yield from over


def _bytes(items: Iterable[Found | Unread]) -> int:
    return sum(item.size_bytes for item in items if isinstance(item, Found))


def _within(items: Iterator[Found | Unread], limits: Limits) -> tuple[list[Found | Unread], list[Unread]]:
    """Return what the walk found, up to the limit of bytes, and a record about the rest."""
    kept: list[Found | Unread] = []
    total = left_out = 0
    for item in items:
        total += item.size_bytes if isinstance(item, Found) else 0
        if total <= limits.total_bytes or isinstance(item, Unread):
            kept.append(item)
        else:
            left_out += 1
    if not left_out:
        return kept, []
    reason = f"{left_out:,} files were left out: only {limits.total_bytes:,} bytes are read at once; name fewer"
    return kept, [Unread(reason=reason, outcome="limit")]


def _workers(found: list[Found | Unread]) -> int:
    sizes = [item.size_bytes for item in found if isinstance(item, Found)]
    if len(sizes) < ALONE_FILES and sum(sizes) < ALONE_BYTES:
        return 1
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(available, MAX_WORKERS)


def _chunks(found: list[Found | Unread], workers: int) -> list[list[Found | Unread]]:
    """Cut the files into chunks: some for every worker, none too large to lose."""
    most = max(1, min(CHUNK_FILES, len(found) // (workers * 8)))
    chunks: list[list[Found | Unread]] = []
    size = CHUNK_BYTES
    for item in found:
        size += item.size_bytes if isinstance(item, Found) else 0
        if size >= CHUNK_BYTES or len(chunks[-1]) >= most:
            chunks.append([])
            size = 0
        chunks[-1].append(item)
    return chunks


def _records(
    items: list[Found | Unread], skip: Skip, watch: Watch, limits: Limits, owned: _Owned, beside: Beside
) -> Iterator[Record]:
    """Read the files of a chunk."""
    habit, read_bytes = LastFormat(maps_libraries=True), 0

    def moved(offset: int) -> None:  # of a packed file more comes out than it has
        watch.moved(read_bytes + min(offset, size_bytes))

    for item in items:
        if isinstance(item, Unread):
            yield item
            continue
        size_bytes = item.size_bytes
        seconds = limits.seconds_per_file + item.size_bytes / (1 << 20)
        if item.source in skip:
            yield unread(item.source, skip[item.source], "limit")
            continue
        watch.begin(item.source, seconds)
        limit_memory(min(limits.child_bytes + BYTES_PER_FILE_BYTE * item.size_bytes, MAX_CHILD_BYTES))
        within: _Owned | None = None
        for opened in open_found(item, limits):
            if within is None:
                within = owned if opened.source == item.source else owned.within(item, limits)
            if isinstance(opened, Unread):
                yield opened
            elif opened.source in skip:
                yield unread(opened.source, skip[opened.source], "limit")
            else:
                watch.begin(opened.source, seconds)
                if isinstance(opened.stream, Opened):
                    opened.stream.bounded.moved = moved
                seat = within.seats.get(opened.source)
                alone = torchrun_run(opened.source) in within.only_runs
                local_rank = whose(opened.source).local_rank if alone else None
                number = seat.number if seat is not None else None
                if (
                    within.several
                    and opened.source.endswith(".txt")
                    and is_advice(opened.head.decode(errors="replace"))
                ):
                    yield unread(opened.source, ADVICE)
                    continue
                yield from read_input(replace(opened, local_rank=local_rank, number=number), habit, seat, beside)
        read_bytes += size_bytes
        watch.moved(read_bytes)


class Beside:
    """The newest instant with a year in the heads of texts. It is looked for when a text without a year is met, and once."""

    def __init__(self, items: Iterable[Found | Unread], limits: Limits) -> None:
        files = [item for item in items if isinstance(item, Found)]
        self._files = sorted(files, key=lambda item: not item.source.endswith(_LOGS))[:BESIDE_FILES]
        self._limits = limits
        self._at: float | None = None
        self._is_known = False

    def at(self) -> float | None:
        """Return that instant; None where none of the texts has one."""
        if not self._is_known:
            self._at = max(self._stamps(), default=None)
            self._is_known = True
        return self._at

    def _stamps(self) -> Iterator[float]:
        from collectors.formats import years

        for item in self._files:
            for opened in islice(open_found(item, self._limits), BESIDE_MEMBERS):
                if isinstance(opened, Input) and is_text(opened.head, opened.source):
                    at = years.stamped_at(opened.head, opened.at)
                    yield from () if at is None else (at,)


@dataclass(frozen=True, slots=True)
class _Owned:
    """What the paths that are read together say of each file.

    ``only_runs``: folders of a torchrun that have no other beside them; with several, a local rank is of any node.
    """

    seats: Mapping[str, Seat]
    only_runs: frozenset[str]
    several: bool

    @classmethod
    def of(cls, sources: Iterable[str]) -> _Owned:
        """Compare the paths."""
        sources = list(sources)
        found, runs = seats(sources), defaultdict(set)
        for source in sources:
            if (run := torchrun_run(source)) is not None:
                runs[found[source].role if source in found else ""].add(run)
        return cls(
            found, frozenset(run for of_role in runs.values() if len(of_role) == 1 for run in of_role), len(sources) > 1
        )

    def within(self, archive: Found, limits: Limits) -> _Owned:
        """Compare the paths in an archive as those of a folder. Unpacking it for them takes a hundredth of reading it.

        What is read beside the archive may be another node's run, packed too: then a local rank is of any node.
        """
        found = _Owned.of(opened.source for opened in open_found(archive, limits))
        if not found.several:
            return self
        return replace(found, only_runs=frozenset()) if self.several else found


@dataclass(slots=True)
class LastFormat:
    """The format of the last file: the next one in a folder is likely the same.

    ``maps_libraries``: a reader may load a library of its own, and this process's limit of memory grows by what that maps.
    """

    likely: Format | None = None
    maps_libraries: bool = False


def read_input(
    input: Input, habit: LastFormat | None = None, seat: Seat | None = None, beside: Beside | None = None
) -> Iterator[Record]:
    """Yield the records of one opened input; a reader that fails is named, and what it gave before stands."""
    habit = habit or LastFormat()
    owner = whose(input.source)
    name = "recognition"
    try:
        format = habit.likely = recognise(input.head, input.source, habit.likely)
        by_line = format is None or format.by_line
        if by_line and is_document(input.source):
            yield unread(input.source, DOCUMENT)
            return
        if format is None and not is_text(input.head, input.source):
            yield unread(input.source, UNKNOWN)
            return
        name = f"the {format.name} reader" if format is not None else "the reader of text"
        if format is not None and format.maps_bytes:
            if not habit.maps_libraries:
                yield unread(input.source, f"{format.name} is read from files only", "refused")
                return
            limit_memory(MAX_CHILD_BYTES + format.maps_bytes)
        nothing = True
        for record in _read(format, _dated(input, beside) if by_line else input):
            nothing = False
            yield _owned(record, owner, seat)
        if format is None and nothing:
            yield unread(input.source, UNKNOWN)
    except Damaged as error:
        yield unread(input.source, str(error), "damaged")
    except MemoryError:
        gc.collect()
        yield unread(
            input.source,
            "reading it needs more memory than a file may: read it elsewhere with `faulthound read FILE`",
            "limit",
        )
    except Exception as error:  # noqa: BLE001 - one of the two catch-alls: a failing reader costs its own file
        yield unread(input.source, f"{name} failed: {type(error).__name__}: {str(error)[:500]}", "damaged")
    if ended := trouble(input):
        yield ended


def _dated(input: Input, beside: Beside | None) -> Input:
    """Return a text with the latest instant of its stamps without a year: by its own stamps, or by those read beside it."""
    from collectors.formats import years

    at = years.stamped_at(input.head, input.at)
    if at is None and beside is not None:
        at = beside.at()
    return replace(input, latest_at=years.latest_at(at, input.at))


def _read(format: Format | None, input: Input) -> Iterator[Record]:
    """Read by the format's own reader; a text by the reader of every line's kind."""
    if format is not None and not format.by_line:
        return format.read(input)
    from collectors.formats import text_evidence

    return text_evidence.read(input, of_machine=format is not None and format.name == "kernel_log")


def _owned(record: Record, owner: Whose, seat: Seat | None = None) -> Record:
    """Add what only the path knows: the attempt, torchrun's local rank, and the role."""
    if seat is not None and isinstance(record, StackDump) and record.rank is None:
        record = msgspec.structs.replace(record, rank=seat.number)
    if seat is not None and record.role is None and (record.rank is not None or isinstance(record, LogEvent | Steps)):
        record = msgspec.structs.replace(record, role=seat.role)
    if owner.attempt is not None and record.attempt is None:
        record = msgspec.structs.replace(record, attempt=owner.attempt)
    if owner.local_rank is not None and isinstance(record, LogEvent) and record.local_rank is None:
        record = msgspec.structs.replace(record, local_rank=owner.local_rank)
    return record


def _blocks(records: Iterator[Record]) -> Iterator[bytes]:
    batch: list[Record] = []
    for record in records:
        batch.append(record)
        if len(batch) >= BLOCK_RECORDS:
            yield _encoded(batch)
            batch = []
    if batch:
        yield _encoded(batch)


def _encoded(batch: list[Record]) -> bytes:
    try:
        return block.encode(batch)
    except (ValueError, TypeError, OverflowError):
        return block.encode([_encodable(record) for record in batch])


def _encodable(record: Record) -> Record:
    """Return the record, or why no block can hold it: half a surrogate pair, an integer beyond 64 bits."""
    try:
        block.encode([record])
    except (ValueError, TypeError, OverflowError) as error:
        reason = f"a {type(record).__name__} cannot be written: {type(error).__name__}: {str(error)[:200]}"
        return unread(record.source, reason, "damaged")
    return record


def _decoded(data: bytes) -> Iterator[Record]:
    decoded = block.decode_counting(data)
    yield from decoded.records
    yield from (Unread(reason=reason, outcome="damaged") for reason in decoded.left_out())
