"""The flight recorders of the training processes, requested by a command; ordinary runs only note which could be asked.

All ranks are asked at once, each in a thread of its own, and all within ``ASKING_SECONDS``. A stopped rank does not answer,
and that is reported. The dumps are parsed one after the other, in a process apart.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Literal

import msgspec

from collectors.live import NothingToCollect, Request, Yielded, collector
from collectors.live.sources.host import Host
from collectors.live.sources.job_files import owner
from collectors.live.sources.ranks import TrainingProcess
from collectors.live.sources.recorder_answers import fetch_dump
from collectors.live.sources.recorder_endpoints import endpoints_of
from collectors.live.sources.socket_requests import Budget, RequestFailed, RequestTimedOut
from collectors.records import FlightRecorderDump, Record, Unread

ASKING_SECONDS = 5.0  # all ranks together, from the question to the last dump
READING_SECONDS = 1.0  # left of these for reading the last dump
ALL_BYTES = 64 << 20  # of all ranks' dumps at one time
MOST_RANKS = 256  # of a node
REMEMBERED_SECONDS = 600.0  # a rank that has ended left its dump file behind

_Answers = queue.SimpleQueue[tuple[int, list[Record]]]


@collector("recorder", gives="flight-recorder dumps", every_seconds=60, limit_seconds=10, answers=("recorders",))
class Recorders:
    """Asks the flight recorders of the training processes of a node."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.seen: dict[int, tuple[float, TrainingProcess, int | None]] = {}  # by pid: last seen at, process, user
        self.busy: dict[int, threading.Thread] = {}  # by pid: questions that outlived their run
        self.budget = Budget(ALL_BYTES)

    def __call__(self, request: Request | None) -> Iterator[Yielded]:
        """Yield a dump of every rank that answers, and why there is none of the others."""
        processes = self._processes()
        if request is None:
            raise NothingToCollect(self._endpoint_counts(processes))
        chosen = [process for process in processes if request.covers(process.rank, process.job, process.role)]
        if not chosen:
            raise NothingToCollect("none of the requested ranks trains on this node")
        yield from self._ask(chosen[:MOST_RANKS])
        for process in chosen[MOST_RANKS:]:
            yield _unread(process, f"not asked: only {MOST_RANKS} ranks of a node are", "limit")

    def _processes(self) -> list[TrainingProcess]:
        now = self.host.clock.monotonic()
        self.seen.update({each.pid: (now, each, owner(self.host, each.pid)) for each in self.host.training()})
        self.seen = {pid: known for pid, known in self.seen.items() if now - known[0] < REMEMBERED_SECONDS}
        if not self.seen:
            raise NothingToCollect("no training process on this node")
        newest: dict[tuple[str | None, str | None, int], TrainingProcess] = {}
        for _, process, _ in sorted(self.seen.values(), key=lambda known: known[0]):
            newest[process.job, process.role, process.rank] = process  # in a job with roles each counts from rank 0
        return sorted(newest.values(), key=lambda process: process.rank)

    def _endpoint_counts(self, processes: list[TrainingProcess]) -> str:
        ways = Counter(found[0].kind if (found := endpoints_of(self.host, process)) else "" for process in processes)
        without = ways.pop("", 0)
        counted = ", ".join(f"{count} by {kind}" for kind, count in ways.most_common())
        return f"not asked; of {len(processes)} ranks could be asked: {counted or 'none'}" + (
            f"; {without} have neither a worker server nor a pipe nor a dump file" if without else ""
        )

    def _ask(self, processes: list[TrainingProcess]) -> Iterator[Record]:
        deadline = time.monotonic() + ASKING_SECONDS
        answers: _Answers = queue.SimpleQueue()
        waiting = {process.pid: process for process in processes}
        self.busy = {pid: thread for pid, thread in self.busy.items() if thread.is_alive()}
        for process in processes:
            if process.pid in self.busy:
                answers.put((process.pid, [_unread(process, "the last question to it is still without an answer")]))
                continue
            thread = threading.Thread(
                target=self._answer, args=(process, deadline - READING_SECONDS, answers), daemon=True
            )
            thread.start()
            self.busy[process.pid] = thread
        while waiting:
            try:
                pid, found = answers.get(timeout=max(deadline - time.monotonic(), 0.0))
            except queue.Empty:
                break
            waiting.pop(pid, None)
            yield from found
        for process in waiting.values():
            yield _unread(process, f"no answer within {ASKING_SECONDS:.0f} s", "limit")

    def _answer(self, process: TrainingProcess, deadline: float, answers: _Answers) -> None:
        try:
            found = list(self._request(process, deadline))
        except Exception as error:  # noqa: BLE001 (a thread's failure is its rank's answer)
            found = [_unread(process, f"asking it failed: {type(error).__name__}: {error}", "damaged")]
        answers.put((process.pid, found))

    def _request(self, process: TrainingProcess, deadline: float) -> Iterator[Record]:
        """Try the endpoints until one gives a dump; report how each failed otherwise."""
        tried, timed_out = list[str](), False
        for endpoint in endpoints_of(self.host, process, self.seen[process.pid][2]):
            if timed_out and endpoint.kind != "dump file":
                continue  # a process that does not answer does not write either
            try:
                with self.budget.reserve() as spend:
                    dumps = fetch_dump(endpoint, process, deadline, self.host.clock.now, spend, self.host.apart)
            except RequestFailed as error:
                timed_out |= isinstance(error, RequestTimedOut)
                tried.append(f"{endpoint}: {error}")
            else:
                yield from (_placed(record, process) for record in dumps)
                return
        reason = "; ".join(tried) or "it has neither a worker server nor a debug pipe nor a dump file"
        yield _unread(process, reason, "limit" if timed_out else "refused")


def _placed(record: Record, process: TrainingProcess) -> Record:
    pid = {"pid": process.pid} if isinstance(record, FlightRecorderDump) else {}
    return msgspec.structs.replace(record, **process.of_records, **pid)


def _unread(process: TrainingProcess, reason: str, outcome: Literal["limit", "refused", "damaged"] = "limit") -> Record:
    return _placed(Unread(source=f"recorder of rank {process.rank}", reason=reason[:2000], outcome=outcome), process)
