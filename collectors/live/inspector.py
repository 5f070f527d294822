"""The output of NCCL Inspector: operations from its log files as they grow, means from its Prometheus files.

A training process's own log is the one that it has open, whatever path its container uses: of a folder that all nodes share
each agent reads its node's part. Where there are too many operations to send, those whose sequence number a power of two
divides are kept: the same ones on every rank.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from collectors.files.apart import ParsingFailed
from collectors.live import Cursor, NothingToCollect, Readings, Request, Yielded, collector
from collectors.live.sources.host import Host
from collectors.live.sources.job_files import open_files, seen_by
from collectors.live.sources.ranks import TrainingProcess
from collectors.live.sources.tailing import Chunk, Tails, key_of
from collectors.records import Record, Unread, block

FILE_BYTES = 2 << 20  # of one process's log in one run: some 5,000 operations
RUN_BYTES = 16 << 20
BEHIND_BYTES = 2 << 20  # beyond so many unread bytes only the newest are read
MOST_OPERATIONS = 250  # sent of one process in one run
MOST_FOLDERS = 64
MOST_SERIES_FILES = 64  # of one folder
MOST_NAMES = 65_536  # read in one folder
SERIES_BYTES = 1 << 20  # of one file
MOST_CELLS = 100_000  # of one file: series times metrics; a node's plugin writes some thousand
SERIES_SECONDS = 300.0  # a file that is older is of a job that has ended; the plugin writes every 30 s at least
LABEL = "NCCL_INSPECTOR_DUMP_DIR"
DEFAULT_FOLDER = "nccl-inspector"  # -<Slurm's job id> or -unknown-jobid, in the process's folder
SUFFIXES = (".log", ".jsonl", ".json")


@collector("inspector", gives="collective timings by NCCL Inspector", every_seconds=30, limit_seconds=30)
class Inspector:
    """Tails the plugin's logs and reads its Prometheus files."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.tails = Tails(FILE_BYTES, RUN_BYTES, BEHIND_BYTES)
        self.owners: dict[str, TrainingProcess] = {}  # by key of the file
        self.markers: dict[str, Any] = {}  # by key of the file: whose the next lines are, as its parser gave it

    def __call__(self, _asked: Request | None) -> Iterator[Yielded]:
        """Yield the operations and means since the last run."""
        self._resume(self.host.cursor("inspector"))
        files = self._logs()
        folders = self._folders()
        if not files and not self.tails.files and not folders:
            raise NothingToCollect("no training process here runs NCCL Inspector, and no folders are given")
        for chunk in self.tails.read(files):
            yield from self._timings(chunk)
            yield Cursor(self._cursor())
        if (cursor := self._cursor()) != self.host.cursor("inspector"):
            yield Cursor(cursor)  # a file was truncated, and has no new line
        for key in self.owners.keys() - self.tails.files.keys():
            del self.owners[key]
        yield from self._means(folders)

    def _resume(self, cursor: Any) -> None:
        """Go on from a cursor, whatever a failed run had read beyond it."""
        self.tails.resume(cursor)
        kept = cursor.get("markers") if isinstance(cursor, Mapping) else None
        self.markers = dict(kept) if isinstance(kept, Mapping) else {}

    def _cursor(self) -> dict[str, Any]:
        markers = {key: marker for key, marker in self.markers.items() if key in self.tails.positions}
        return {**self.tails.cursor(), **({"markers": markers} if markers else {})}

    def _logs(self) -> dict[str, tuple[str, str]]:
        """Return the plugin's logs that the training processes have open: key → name, path."""
        found: dict[str, tuple[str, str]] = {}
        for process in self.host.training():
            folder = process.labels.get(LABEL, "").strip("./") or DEFAULT_FOLDER
            wanted = partial(_is_log, folder)
            for name, path in open_files(self.host, process.pid, wanted).items():
                if (key := key_of(path)) is not None:
                    found[key] = name, path
                    self.owners[key] = process
        return found

    def _folders(self) -> list[Path]:
        option = self.host.option("inspector", "folders", ())
        named = [self.host.roots.files / str(folder).lstrip("/") for folder in option]
        labelled = ((process, process.labels.get(LABEL)) for process in self.host.training())
        named += [seen_by(self.host, process, label) for process, label in labelled if label]
        distinct: dict[str, Path] = {}
        for folder in named:
            with suppress(OSError):
                status = folder.stat()
                distinct.setdefault(f"{status.st_dev}:{status.st_ino}", folder)
        return list(distinct.values())[:MOST_FOLDERS]

    def _timings(self, chunk: Chunk) -> Iterator[Record]:
        owner = self.owners.get(chunk.key)
        of = {"source": chunk.path, **(owner.of_records if owner else {})}
        marker = self.markers.pop(chunk.key, None) if chunk.first_line > 1 and not chunk.left_out_bytes else None
        args = chunk.data, MOST_OPERATIONS, marker
        try:
            operations, missed, marker = self.host.apart.parse("inspector", *args, source=chunk.path)
        except ParsingFailed as error:
            yield Unread(**of, reason=str(error), outcome="limit", at=chunk.written_at)
            return
        for each in block.decode(operations):
            yield msgspec.structs.replace(each, **of)
        if chunk.left_out_bytes:
            reason = f"{chunk.left_out_bytes:,} bytes were not read: more than {BEHIND_BYTES:,} came since the last run"
            yield Unread(**of, reason=reason, outcome="limit", at=chunk.written_at)
        if marker is not None:
            self.markers[chunk.key] = marker
        for reason, outcome in missed:
            yield Unread(**of, reason=reason, outcome=outcome, at=chunk.written_at)

    def _means(self, folders: list[Path]) -> Iterator[Readings | Unread]:
        """Yield this node's means; a folder that nodes share also holds those of the others."""
        here = {name.partition(".")[0] for name in (self.host.node, os.uname().nodename)}
        for folder in folders:
            for path in _series_files(folder):
                if not (data := self._fresh(path)):
                    continue
                try:
                    tables = self.host.apart.parse("inspector_series", data, MOST_CELLS, source=str(path))
                except ParsingFailed as error:
                    yield Unread(source=str(path), reason=str(error), outcome="limit")
                    continue
                for node, devices, metrics, rows in tables:
                    if node is None or node.partition(".")[0] in here:
                        yield Readings("nccl", devices, metrics, rows)

    def _fresh(self, path: Path) -> bytes:
        with suppress(OSError):
            # The job names the folder: a name in it may be a link to any file, or a pipe without a writer.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                if stat.S_ISREG(status.st_mode) and self.host.clock.now() - status.st_mtime < SERIES_SECONDS:
                    return file.read(SERIES_BYTES)
        return b""


def _series_files(folder: Path) -> list[Path]:
    """Return the Prometheus files of a folder, of which a bounded number of names is read."""
    with suppress(OSError), os.scandir(folder) as entries:
        named = sorted(entry.name for entry in islice(entries, MOST_NAMES) if entry.name.endswith(".prom"))
        return [folder / name for name in named[:MOST_SERIES_FILES]]
    return []


def _is_log(folder: str, name: str) -> bool:
    return folder in name and name.endswith(SUFFIXES)
