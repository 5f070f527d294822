"""NCCL RAS asked over its TCP port: communicators, operation counts, lost processes.

RAS answers for the whole job, and every request visits all of its processes. So only the node of rank 0 asks periodically;
a command makes every node ask. JSON is requested first (NCCL 2.28.7), then text.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from collectors.files.apart import ParsingFailed
from collectors.live import NothingToCollect, Request, Yielded, collector
from collectors.live.sources.host import Host
from collectors.live.sources.job_files import owner
from collectors.live.sources.listeners import ForeignListener, refuse_strangers
from collectors.live.sources.ranks import TrainingProcess
from collectors.live.sources.socket_requests import RequestFailed, RequestTimedOut, connected, line, until_end
from collectors.records import Record, Unread, block

DEFAULT_ADDRESS = "127.0.0.1:28028"
LABEL = "NCCL_RAS_ADDR"
PROTOCOL = 2  # a server of another version answers too
GATHERING_SECONDS = 5  # for which RAS may wait for the job's processes
ANSWER_SECONDS = 9.0  # for its whole answer
ANSWER_BYTES = 16 << 20
LINE_BYTES = 1024
MOST_ADDRESSES = 8
_LOOPBACK = re.compile(r"(?:localhost|127\.\d+\.\d+\.\d+|\[::1\]|):(\d{1,5})\Z")


@dataclass(slots=True)
class _Job:
    """The processes of this node that share one RAS address."""

    address: str
    processes: list[TrainingProcess]

    @property
    def of_records(self) -> dict[str, Any]:
        """Return job and attempt where these processes are of one."""
        known = {(process.job, process.attempt) for process in self.processes}
        job, attempt = known.pop() if len(known) == 1 else (None, None)
        return {"job": job, "attempt": attempt}


@collector("ras", gives="NCCL RAS reports", every_seconds=30, limit_seconds=30, answers=("recorders",))
class Ras:
    """Asks the RAS of each job on the node."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def __call__(self, request: Request | None) -> Iterator[Yielded]:
        """Yield the communicators and the lost processes that RAS reports for each job."""
        jobs = list(self._jobs(everywhere=request is not None))
        failures: list[RequestFailed] = []
        for job in jobs[:MOST_ADDRESSES]:
            try:
                yield from self._reported(job)
            except ForeignListener as error:
                yield Unread(source=f"ras {job.address}", reason=str(error), outcome="refused", **job.of_records)
            except RequestFailed as error:
                failures.append(RequestFailed(f"{job.address}: {error}"))
        refused = [error for error in failures if str(error).endswith("Connection refused")]
        if failures != refused:
            raise next(error for error in failures if error not in refused)
        if jobs and len(refused) == len(jobs):
            reason = "the job has no NCCL, or none of 2.24 or later with NCCL_RAS_ENABLE=1"
            raise NothingToCollect(f"{refused[0]}: {reason}")

    def _jobs(self, *, everywhere: bool) -> Iterator[_Job]:
        processes = self.host.training()
        if not processes:
            raise NothingToCollect("no training process on this node")
        option = self.host.option("ras", "address", "")
        found: dict[str, _Job] = {}
        for process in processes:
            address = option or _local(process.labels.get(LABEL, "")) or DEFAULT_ADDRESS
            found.setdefault(address, _Job(address, [])).processes.append(process)
        everywhere = everywhere or self.host.option("ras", "everywhere", False)
        asking = [job for job in found.values() if everywhere or any(each.rank == 0 for each in job.processes)]
        if not asking:
            raise NothingToCollect("rank 0 trains on another node, whose agent asks: RAS answers for the whole job")
        yield from asking

    def _reported(self, job: _Job) -> Iterator[Record]:
        refuse_strangers(job.address, {owner(self.host, process.pid) for process in job.processes} - {None})
        data, cut = _ask(job.address, time.monotonic() + ANSWER_SECONDS)
        source = f"ras {job.address}"
        try:
            found = block.decode(self.host.apart.parse("ras", data, source, self.host.clock.now(), source=source))
        except ParsingFailed as error:
            found = [Unread(source=source, reason=str(error), outcome="limit")]
        for record in found:
            yield msgspec.structs.replace(record, **job.of_records)
        if cut:
            reason = f"the answer is longer than {ANSWER_BYTES:,} bytes: the communicators after them were not read"
            yield Unread(source=source, reason=reason, outcome="limit", **job.of_records)


def _local(address: str) -> str:
    """Return the address in a job's variable where it is on this node; only the configuration may name others."""
    found = _LOOPBACK.match(address)
    return f"127.0.0.1:{found[1]}" if found and "::1" not in address else address if found else ""


def _ask(address: str, deadline: float) -> tuple[bytes, bool]:
    """Return RAS's answer, and whether it was cut."""
    try:
        data, cut = _conversation(address, deadline, ("SET FORMAT json", "VERBOSE STATUS"))
    except _CommandUnsupported:  # an older NCCL, which sends only text and may have closed the connection
        data, cut = _conversation(address, deadline, ("VERBOSE STATUS",))
    if not data.strip():
        raise RequestFailed("it closed the connection without a report")
    return data, cut


class _CommandUnsupported(Exception):
    """RAS did not take a command before the last."""


def _conversation(address: str, deadline: float, commands: tuple[str, ...]) -> tuple[bytes, bool]:
    with connected(address, deadline) as connection:
        connection.sendall(f"CLIENT PROTOCOL {PROTOCOL}\n".encode())
        hello = line(connection, LINE_BYTES, deadline)
        if not hello.upper().startswith("SERVER PROTOCOL "):
            raise RequestFailed(f"it is not RAS: it answers {hello[:60]!r}")
        for command in (f"TIMEOUT {GATHERING_SECONDS}", *commands[:-1]):
            connection.sendall(f"{command}\n".encode())
            try:
                answer = line(connection, LINE_BYTES, deadline)
            except (RequestTimedOut, TimeoutError):
                raise
            except (RequestFailed, OSError) as error:
                raise _CommandUnsupported(command) from error
            if answer.upper() != "OK":
                raise _CommandUnsupported(command)
        connection.sendall(f"{commands[-1]}\n".encode())
        return until_end(connection, ANSWER_BYTES, deadline)
