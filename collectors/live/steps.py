"""The job's own logs, as they grow: steps, exceptions, timeouts and exits.

The logs are the files into which the training processes and their launcher write their output, themselves or through a pipe
(``| tee log``), and those that the configuration names.
A line's rank is that of its prefix, or of the one process that writes the file.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from collectors.files.apart import ParsingFailed, ParsingLate
from collectors.files.path_owner import whose
from collectors.live import Cursor, NothingToCollect, Readings, Request, Yielded, collector
from collectors.live.sources.bars import Bars, steps_of
from collectors.live.sources.earlier_lines import EarlierLines
from collectors.live.sources.first_looks import FirstLook
from collectors.live.sources.host import Host
from collectors.live.sources.job_files import inner_pid, launcher
from collectors.live.sources.log_records import of_phase, of_reports
from collectors.live.sources.opened_logs import OpenedLogs
from collectors.live.sources.piped_output import PipedOutput
from collectors.live.sources.ranks import TrainingProcess
from collectors.live.sources.tailing import Chunk, Tails, astray, key_of, left_out, not_sent, zone_seconds
from collectors.live.sources.unfinished import unfinished
from collectors.records import COUNTED, LogEvent, Record, Steps, StragglerReports, Unread, block, column_bytes

FILE_BYTES = 1 << 19  # of one log in one run: a log of 100 MB/s costs what one of 100 kB/s does
RUN_BYTES = 1 << 20
BEHIND_BYTES = 16 << 20  # a burst up to this, such as every rank's traceback in one file, is read whole, a part a run
MOST_EVENTS = 500  # of one log in one run
MOST_COUNTS = 1024  # kept, of series whose lines give no step number
MOST_PROCESSES = 4096  # kept, so that the last lines of ended processes have a rank
QUIET_SECONDS = 2.0  # a log without new bytes for so long holds whole tracebacks
UNREAD = (
    "no training process here writes its output into a file, itself or through a pipe, and no paths are given: write it into a"
    " file (`> FILE`, or `| tee FILE` as the job's user), name its logs in `paths` of [collector.steps], or start the job with"
    " the probe"
)


@dataclass(frozen=True, slots=True)
class _Owner:
    """The rank of the one process that writes a log, or the processes of the job that do."""

    rank: int | None = None
    processes: tuple[TrainingProcess, ...] = ()

    @property
    def one(self) -> TrainingProcess | None:
        """Return any of the processes where they are all of one job and attempt."""
        jobs = {(process.job, process.attempt) for process in self.processes}
        return self.processes[0] if len(jobs) == 1 else None

    @property
    def whose(self) -> str:
        """Name its first process: what is counted goes on for as long as that is the same."""
        first = min(self.processes, key=lambda one: (one.rank, one.pid), default=None)
        return "" if first is None else f"{first.pid} {first.started_at}"

    @property
    def first_rank(self) -> int:
        """Return its one rank, or the first of those that write it; it has processes."""
        return min(process.rank for process in self.processes) if self.rank is None else self.rank

    @property
    def several_jobs(self) -> bool:
        """Whether processes of several jobs write it."""
        return len({process.job for process in self.processes}) > 1


@dataclass(frozen=True, slots=True)
class _Log:
    """What new lines hold, as ``collectors.files.parsers.steps`` gives it."""

    events: bytes
    steps: bytes
    stragglers: bytes
    places: list[tuple[int | None, int | None, str | None]]
    newest: float | None
    many_nodes: bool
    phase: tuple[str, float | None] | None = None
    bars: Sequence[tuple[str, int, int]] = ()


@collector("steps", gives="training steps, exceptions and exits from the job's logs", every_seconds=5, limit_seconds=30)
class JobLogs:
    """Tails the job's logs; after a restart it continues where the last run stopped."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.pipes = PipedOutput(host)
        self.earlier, self.logs = EarlierLines(host), OpenedLogs(host.roots.proc, host.clock)
        self.tails = Tails(FILE_BYTES, RUN_BYTES, BEHIND_BYTES, bars=True)
        self.bars = Bars()
        self.processes: dict[int, TrainingProcess] = {}  # by pid, the ended ones too
        self.inner: dict[int, int] = {}  # pid → pid in its container, kept because an ended process does not show it
        self.owners: dict[str, _Owner] = {}  # by key of the file
        self.wrote: dict[str, _Owner] = {}  # whose the lines of the last run were, by key
        self.read_at = 0.0  # UTC seconds: when the last run began
        self.counts: dict[str, tuple[str, int]] = {}  # of steps whose lines give no number: series → whose, how many
        self.shifts: dict[str, float] = {}  # seconds to add to a log's stamps, by key
        self.unsent: deque[Yielded] = deque()  # of a part that was read, what a run did not hand over within its bound

    def __call__(self, _asked: Request | None) -> Iterator[Yielded]:
        """Yield the records of the lines since the last run."""
        if self.unsent:  # the positions are those of what was read: the newest cursor is still among these
            yield from self._sent()
        else:
            self._resume(self.host.cursor("steps"))
        for process in (*(look.process for look in self._gone()), *self.host.training()):
            if self.processes.pop(process.pid, None) != process:
                self.inner[process.pid] = inner_pid(self.host, process.pid)
            self.processes[process.pid] = process
        while len(self.processes) > MOST_PROCESSES:
            del self.inner[oldest := next(iter(self.processes))], self.processes[oldest]
        files, read_at = self._files(), self.host.clock.now()
        self.earlier.look()
        if not files and not self.tails.files:
            raise NothingToCollect(UNREAD)
        all_read = True
        for lines in self.tails.read(files):
            chunk, earlier = self.earlier.split(lines, self.owners.get(lines.key, _Owner()).processes, self.tails)
            owner = self._writer(chunk, earlier=earlier)
            try:
                self.unsent.extend([] if owner is None else list(self._records(chunk, owner)))
            except ParsingFailed as error:  # lines that break a parser must not stop the following ones
                reason = f"reading it failed: {error}"
                self.unsent.append(
                    self._placed(Unread(source=chunk.path, reason=reason, outcome="damaged"), owner or _Owner())
                )
            self.unsent.append(Cursor(self._cursor()))
            yield from self._sent()
            all_read &= not (lines.behind or self.tails.positions[lines.key].held)
        self.read_at = read_at
        self.wrote = {key: self.wrote.get(key, owner) for key, owner in self.owners.items()}
        if (cursor := self._cursor()) != self.host.cursor("steps"):
            yield Cursor(cursor)  # a file was truncated, and has no new line
        self.earlier.forget(self.tails)
        for kept in (self.owners, self.wrote, self.shifts):
            for key in kept.keys() - self.tails.files.keys():
                del kept[key]
        if files and all_read:  # on a busy node long after other collectors: until then a missing step proves nothing
            yield Readings("log", [""], ["files"], [[len(files)]], "<i8", at=read_at)

    def _sent(self) -> Iterator[Yielded]:
        """Yield what waits, each once: a part that took the parser long ends the run at its first record."""
        while self.unsent:
            yield self.unsent.popleft()

    def _files(self) -> dict[str, tuple[str, str]]:
        found: dict[str, tuple[str, str]] = {}
        writers: dict[str, list[TrainingProcess]] = {}
        launchers: dict[str, list[TrainingProcess]] = {}
        started = [(process, launcher(self.host, process.pid)) for process in self.host.training()]
        passing = {pid for process, above in started for pid in (process.pid, above) if pid}
        for process, above in started:
            for pid, heads in ((process.pid, writers), (above, launchers)):
                own = self.logs.of(process.pid) if heads is writers else ()
                for key, name, path in (*self._outputs(pid, passing), *own):
                    found.setdefault(key, (name, path))
                    heads.setdefault(key, []).append(process)
        self.pipes.settle()
        living = set(found)
        for look in self._gone():
            for key, name in look.outputs if living.isdisjoint(key for key, _ in look.outputs) else ():
                found.setdefault(key, (name, str(self.host.roots.files / name.lstrip("/"))))
                writers.setdefault(key, []).append(look.process)
        for key in found:
            seats = {(process.role, process.rank) for process in writers.get(key, ())}
            processes = tuple(writers.get(key) or launchers.get(key) or ())
            self.owners[key] = _Owner(seats.pop()[1] if len(seats) == 1 and key not in launchers else None, processes)
        found.update(self._configured(found))
        return found

    def _gone(self) -> list[FirstLook]:
        """Return the processes that were seen once, and have ended before this run."""
        return self.host.first_looks.gone(self.host.training(), self.host.clock.monotonic())

    def _outputs(self, pid: int | None, passing: set[int]) -> Iterator[tuple[str, str, str]]:
        for number in (1, 2) if pid else ():
            path = self.host.roots.proc / str(pid) / "fd" / str(number)
            with suppress(OSError):  # it has ended since
                if (key := key_of(str(path))) is not None:
                    yield key, str(path.readlink()), str(path)
                else:
                    yield from self.pipes.files(pid, number, passing) if pid else ()

    def _configured(self, known: Iterable[str]) -> Iterator[tuple[str, tuple[str, str]]]:
        here = {process.rank for process in self.processes.values()}
        for pattern in self.host.option("steps", "paths", ()):
            for path in sorted(map(str, self.host.roots.files.glob(str(pattern).lstrip("/")))):
                named = whose(path)
                elsewhere = (named.node and named.node != self.host.node) or (
                    here and named.rank is not None and named.rank not in here
                )
                key = None if elsewhere or astray(path) else key_of(path)  # one of another node is for its agent
                if key is not None and key not in known:
                    here_now = self.host.training() or tuple(self.processes.values())  # earlier jobs' have ended
                    all_or_one = (each for each in here_now if named.rank in {None, each.rank})
                    self.owners[key] = _Owner(named.rank, tuple(all_or_one))
                    yield key, (path, path)

    def _writer(self, chunk: Chunk, *, earlier: bool) -> _Owner | None:
        """Return whose lines these are: until processes that a launcher has just restarted print, of those before them.

        ``earlier``: they are of a run before, None where no agent saw that.
        """
        owner, before = self.owners.get(chunk.key, _Owner()), self.wrote.get(chunk.key)
        if earlier:
            return None if before is None or before.whose == owner.whose else before
        if before is not None and before.one is not None and owner.one is not None:
            started_at = min((process.started_at or 0.0 for process in owner.processes), default=0.0)
            same_job = before.one.job == owner.one.job and before.one.attempt != owner.one.attempt
            if same_job and (chunk.held_before or started_at > self.read_at):
                return before
        self.wrote[chunk.key] = owner
        return owner

    def _records(self, chunk: Chunk, owner: _Owner) -> Iterator[Record]:
        chunk = self._whole(chunk)
        if chunk.left_out_bytes:
            yield self._placed(left_out(chunk, BEHIND_BYTES), owner)
        args = chunk.path, owner.rank, self.host.node, chunk.written_at
        try:
            log = _Log(**self.host.apart.parse("steps", chunk.data, *args, source=chunk.path))
        except ParsingLate:
            self.tails.hold(chunk, 0)  # nothing is wrong with these lines: the next run reads them
            return
        events, elsewhere, over = self._events(log, chunk, owner)
        if elsewhere or over:
            yield self._placed(not_sent(chunk, elsewhere, over, MOST_EVENTS), owner)
        shift = self._shift(chunk, log.newest)
        places = iter(log.places)
        for steps in block.decode(log.steps):
            if isinstance(steps, Steps):
                rank = steps.rank if steps.rank is not None else self._rank_of(*next(places), owner, log)
                of_rank = msgspec.structs.replace(steps, rank=rank)
                if not self._is_unowned(of_rank, owner):
                    yield from self._steps(of_rank, shift, chunk, owner)
        for reports in block.decode(log.stragglers):
            if isinstance(reports, StragglerReports) and owner.processes and not owner.several_jobs:
                yield self._placed(of_reports(reports, chunk, owner.first_rank, shift), owner)
        if (number := self.bars.step(chunk.key, owner.whose, log.bars)) is not None and not owner.several_jobs:
            yield self._placed(steps_of(number, chunk.path, owner.rank, chunk.written_at), owner)
        if log.phase is not None and owner.rank is not None:
            began_at = chunk.written_at if log.phase[1] is None else log.phase[1] + shift
            yield self._placed(of_phase(chunk, owner.rank, log.phase[0], min(began_at, chunk.written_at)), owner)
        for event in events:
            at = chunk.written_at if event.at is None else event.at + shift
            yield self._placed(msgspec.structs.replace(event, at=at), owner)

    def _steps(self, steps: Steps, shift: float, chunk: Chunk, owner: _Owner) -> Iterator[Record]:
        """Yield the steps by UTC; the time of writing stands for the newest one's where its line has no stamp."""
        at = array("d", steps.columns["at"])
        for index, stamp in enumerate(at):
            at[index] = stamp + shift
        if math.isnan(at[-1]):
            at[-1] = chunk.written_at
        numbers = self._numbered(steps, chunk, owner)
        columns = {**steps.columns, "at": column_bytes(at), "step": column_bytes(numbers)}
        told_by = steps.told_by + (COUNTED if min(array("q", steps.columns["step"])) < 0 else "")
        placed = msgspec.structs.replace(
            steps, step=numbers[-1], told_by=told_by, columns=columns, at=chunk.written_at, node=None
        )
        yield self._placed(placed, owner)

    def _numbered(self, steps: Steps, chunk: Chunk, owner: _Owner) -> array[int]:
        """Return the steps' numbers: lines that give none are counted, from one, for as long as the same processes write."""
        numbers = array("q", steps.columns["step"])
        if min(numbers) >= 0:
            return numbers
        series = f"{chunk.key} {steps.told_by} {'' if steps.rank is None else steps.rank}"
        whose = owner.whose
        before, count = self.counts.pop(series, ("", 0))
        if whose != before if whose else chunk.first_line == 1:
            count = 0
        for index, number in enumerate(numbers):
            count = numbers[index] = number if number >= 0 else count + 1
        self.counts[series] = whose or before, count
        return numbers

    def _resume(self, cursor: Any) -> None:
        """Go on from a cursor, whatever a failed run had read beyond it."""
        self.tails.resume(cursor)
        self.bars.resume(cursor.get("bars") if isinstance(cursor, Mapping) else None)
        kept = cursor.get("counts") if isinstance(cursor, Mapping) else None
        self.counts = {str(series): (str(whose), int(count)) for series, (whose, count) in (kept or {}).items()}

    def _cursor(self) -> dict[str, Any]:
        newest = {
            series: list(count) for series, count in list(self.counts.items())[-MOST_COUNTS:]
            if series.partition(" ")[0] in self.tails.positions
        }  # fmt: skip
        bars = self.bars.cursor(self.tails.positions)
        return {**self.tails.cursor(), **({"counts": newest} if newest else {}), **({"bars": bars} if bars else {})}

    def _shift(self, chunk: Chunk, newest: float | None) -> float:
        """Return the seconds to add to a log's stamps, learned from lines just written and kept for the others."""
        if chunk.key in self.shifts and (learned := zone_seconds(chunk, newest)) is not None:
            self.shifts[chunk.key] = learned
        return self.shifts.setdefault(chunk.key, 0.0)  # a first reading may hold yesterday's lines

    def _whole(self, chunk: Chunk) -> Chunk:
        """Leave a traceback or report that is still being printed, or was cut at a bound, for the next run, once."""
        if not chunk.behind and self.host.clock.now() - chunk.written_at > QUIET_SECONDS:
            return chunk
        offset = unfinished(chunk.data, held_before=chunk.held_before)
        if offset is None:
            return chunk
        self.tails.hold(chunk, offset)
        return replace(chunk, data=chunk.data[:offset])

    def _events(self, log: _Log, chunk: Chunk, owner: _Owner) -> tuple[list[LogEvent], int, int]:
        """Return the events, and how many are not sent: those of other nodes or jobs, and those beyond the bound.

        A launcher's line about a process elsewhere would accuse this node, unless the process's rank is known. A line without a
        rank in a file that several jobs write would accuse each of them, and may be another program's.
        """
        found, elsewhere = [], 0
        for one in block.decode(log.events):
            if not isinstance(one, LogEvent):
                continue
            event = msgspec.structs.replace(one, rank=self._rank(one, owner, log))
            if (event.rank is None and self._is_elsewhere(event, owner)) or self._is_unowned(event, owner):
                elsewhere += 1
                continue
            line = int(event.source.rpartition(":")[2]) + chunk.first_line - 1
            found.append(msgspec.structs.replace(event, source=f"{chunk.path}:{line}", node=None))
        return found[:MOST_EVENTS], elsewhere, max(0, len(found) - MOST_EVENTS)

    def _is_elsewhere(self, event: LogEvent, owner: _Owner) -> bool:
        """Whether an event is of a process on another node: several nodes' ranks and a launcher may share one file."""
        if event.node not in {None, self.host.node}:
            return True
        return event.pid is not None and bool(owner.processes)

    def _rank_of(
        self, task: int | None, local_rank: int | None, node: str | None, owner: _Owner, log: _Log
    ) -> int | None:
        """Return the rank of steps whose lines name none.

        A task number is a rank where a process of that rank writes the file: srun started one a rank.
        """
        if local_rank is None:
            ranks = {process.rank for process in owner.processes}
            return task if task in ranks else owner.rank
        if owner.rank is not None:
            return owner.rank
        own = node in {None, self.host.node} and not log.many_nodes
        return self._rank_of_local(local_rank, owner) if own else None

    def _rank_of_local(self, local_rank: int, owner: _Owner) -> int | None:
        processes = owner.processes or tuple(self.processes.values())
        return next((process.rank for process in processes if process.local_rank == local_rank), None)

    def _rank(self, event: LogEvent, owner: _Owner, log: _Log) -> int | None:
        """Return the event's rank, by the pid or the local rank that its line names where it names no rank."""
        if event.rank is not None:
            return event.rank
        if event.pid is not None:
            jobs = {(process.job, process.attempt) for process in owner.processes}
            for process in reversed(self.processes.values()):  # ended ones too: most lines are about those
                own = not jobs or (process.job, process.attempt) in jobs
                if own and event.pid in {process.pid, self.inner.get(process.pid)}:
                    return process.rank
            return None
        if event.local_rank is None or log.many_nodes:
            return None
        return self._rank_of_local(event.local_rank, owner)

    def _placed(self, record: Record, owner: _Owner) -> Record:
        """Fill in the record's job as far as its rank, or the file's only job, determines it."""
        having = self._having(record, owner)
        process = next(iter(having), None) or owner.one
        if process is None:
            return record
        one = len({each.role for each in having}) == 1  # a file of several roles' ranks of one number
        role = process.role if one and process.rank == record.rank else None
        return msgspec.structs.replace(record, job=process.job, attempt=process.attempt, role=role)

    def _having(self, record: Record, owner: _Owner) -> list[TrainingProcess]:
        """Return the processes of a record's rank, by its pid where that is theirs; none where they are of several jobs."""
        having = [each for each in owner.processes if each.rank == record.rank]
        pid = getattr(record, "pid", None)
        own = [each for each in having if pid is not None and pid in {each.pid, self.inner.get(each.pid)}]
        having = own or having
        return having if len({each.job for each in having}) == 1 else []

    def _is_unowned(self, record: Record, owner: _Owner) -> bool:
        """Whether several jobs write the file and nothing shows whose the line is: it may be another program's, too."""
        return owner.several_jobs and not self._having(record, owner)
