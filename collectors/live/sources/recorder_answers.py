"""A flight-recorder dump from one endpoint of a rank: bytes fetched within bounds, and parsed apart."""

from __future__ import annotations

import errno
import io
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO

from collectors.files.apart import Apart, ParsingFailed
from collectors.live.sources.listeners import refuse_strangers
from collectors.live.sources.ranks import TrainingProcess
from collectors.live.sources.recorder_endpoints import Endpoint
from collectors.live.sources.socket_requests import RequestFailed, RequestTimedOut, Spend, post, seconds_left
from collectors.records import FlightRecorderDump, Record, Unread, block

SERVER_SECONDS = 2.5  # one worker server; a healthy one answers in milliseconds
PIPE_SECONDS = 3.0  # NCCL's monitor reads its pipe once a second
SETTLED_SECONDS = 0.1  # a dump that has its end and has not grown for so long is whole
POLL_SECONDS = 0.05
READING_SECONDS = 5.0  # more than the time to ask, so that a busy machine loses no dump
DUMP_BYTES = 16 << 20  # 2,000 entries are 1 MB
STAT_SECONDS = 1.0  # between a file's clock and the process table's
# NCCL's recorder before the CPU's: a build without NCCL answers 404 to the first.
HANDLERS = ("/handler/dump_nccl_trace_json", "/handler/fr_trace_json")
ENDS = (b".", b"}")  # of a pickle, of JSON


def fetch_dump(
    endpoint: Endpoint, process: TrainingProcess, deadline: float, now: Callable[[], float], spend: Spend, apart: Apart
) -> list[Record]:
    """Return an endpoint's dump, and what of it could not be read; raise ``RequestFailed`` where it gives none."""
    if endpoint.kind == "worker server":
        return _served(endpoint, process, min(deadline, time.monotonic() + SERVER_SECONDS), now, spend, apart)
    if endpoint.kind == "pipe":
        written = {path: _written(path) for path in endpoint.dumps}
        _ask_by_pipe(endpoint.address, endpoint.user)
        body = _appeared(written, endpoint.user, min(deadline, time.monotonic() + PIPE_SECONDS), spend)
        return _read(body, f"rank {process.rank}: {endpoint}", process, now(), apart)
    body, written_at = _file(endpoint, spend)
    if process.started_at is not None and written_at < process.started_at - STAT_SECONDS:
        raise RequestFailed("it was written before this process began")
    return _read(body, f"rank {process.rank}: {endpoint}", process, written_at, apart)


def _served(
    endpoint: Endpoint, process: TrainingProcess, deadline: float, now: Callable[[], float], spend: Spend, apart: Apart
) -> list[Record]:
    """Ask both recorders that a build may have; return the first with entries, else an empty one."""
    pid = process.pid if endpoint.address.startswith("/") else None
    if pid is None:
        refuse_strangers(endpoint.address, {endpoint.user} - {None})
    best: list[Record] = []
    refused: RequestFailed | None = None
    for handler in HANDLERS:
        try:
            body = post(endpoint.address, handler, DUMP_BYTES, deadline, pid=pid, spend=spend)
            found = _read(body, f"rank {process.rank}: {endpoint}{handler}", process, now(), apart)
        except RequestTimedOut:
            raise
        except RequestFailed as error:
            refused = error
            continue
        best = best or found
        if any(isinstance(record, FlightRecorderDump) and record.count for record in found):
            return found
    if not best and refused is not None:
        raise refused
    return best


def _read(body: bytes, source: str, process: TrainingProcess, at: float, apart: Apart) -> list[Record]:
    """Return the dump in these bytes; raise ``RequestFailed`` where they are anything else."""
    try:
        found = apart.parse("recorder", body, source, process.rank, at, seconds=READING_SECONDS, source=source)
        kept = block.decode(found)
    except ParsingFailed as error:
        raise RequestFailed(str(error)) from error
    if not any(isinstance(record, FlightRecorderDump) for record in kept):
        raise RequestFailed(kept[0].reason if kept and isinstance(kept[0], Unread) else "it is no flight-recorder dump")
    return kept


def _ask_by_pipe(path: str, user: int | None) -> None:
    """Write a line into a debug pipe; without a reader this fails at once."""
    try:
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise RequestFailed("no process reads it" if error.errno == errno.ENXIO else f"{error.strerror}") from error
    try:
        status = os.fstat(pipe)
        if not stat.S_ISFIFO(status.st_mode):
            raise RequestFailed("it is not a pipe")
        _is_of(status, user)
        os.write(pipe, b"dump\n")
    except OSError as error:
        raise RequestFailed(error.strerror or str(error)) from error
    finally:
        os.close(pipe)


def _is_of(status: os.stat_result, user: int | None) -> None:
    """Raise where a file is another user's: in /tmp another job may use the name, and a link may lead anywhere."""
    if user not in {None, status.st_uid}:
        raise RequestFailed(f"it belongs to user {status.st_uid}, its process to {user}")


def _written(path: str) -> tuple[int, int]:
    """Return a file's modification time and size, which a new file does not share; zeros where there is none."""
    with suppress(OSError):
        status = os.stat(path)  # noqa: PTH116 (twenty calls a second)
        return status.st_mtime_ns, status.st_size
    return 0, 0


def _appeared(before: dict[str, tuple[int, int]], user: int | None, deadline: float, spend: Spend) -> bytes:
    """Wait for a new dump at one of these paths, until it has its end and has stopped growing."""
    last, since = before, time.monotonic()
    while True:
        seconds_left(deadline)
        time.sleep(POLL_SECONDS)
        newest = {path: _written(path) for path in before}
        if newest != last:
            last, since = newest, time.monotonic()
        elif time.monotonic() - since >= SETTLED_SECONDS:
            for path in [path for path, written in newest.items() if written not in {before[path], (0, 0)}]:
                with _regular(path, user) as file:
                    file.seek(-1, io.SEEK_END)
                    if file.read() in ENDS:
                        return _bytes_of(file, spend)


def _file(endpoint: Endpoint, spend: Spend) -> tuple[bytes, float]:
    with _regular(endpoint.address, endpoint.user) as file:
        return _bytes_of(file, spend), os.fstat(file.fileno()).st_mtime


def _regular(path: str, user: int | None) -> BinaryIO:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise RequestFailed(error.strerror or str(error)) from error
    file = os.fdopen(descriptor, "rb")
    status = os.fstat(descriptor)
    try:
        if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= DUMP_BYTES:
            raise RequestFailed(f"it is not a file of 1 to {DUMP_BYTES:,} bytes")
        _is_of(status, user)
    except RequestFailed:
        file.close()
        raise
    return file


def _bytes_of(file: BinaryIO, spend: Spend) -> bytes:
    file.seek(0)
    spend(os.fstat(file.fileno()).st_size)
    return file.read(DUMP_BYTES)
