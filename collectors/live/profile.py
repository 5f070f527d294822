"""Where each rank spends its time: py-spy samples its main thread for some seconds, without a pause.

A sample costs half a millisecond of a processor. One rank after the other is sampled for ten seconds, each of eight every two
minutes, as far as a share of a core that accumulates pays for it. A command samples all of them at once, more densely.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import msgspec

from collectors.files import programs
from collectors.files.apart import ParsingFailed
from collectors.live import NothingToCollect, Request, Yielded, collector
from collectors.live.sources.host import Host
from collectors.live.sources.proc_stat import callable_by_number, still_runs
from collectors.live.sources.ranks import TrainingProcess
from collectors.live.stacks import UNASKED, program
from collectors.records import Profile, Record, Unread, block

RANK_EVERY_SECONDS = 120.0
SHARE_OF_A_CORE = 0.005
SAVED_SECONDS = 0.2  # of CPU time that may accumulate
SECONDS, SAMPLES_A_SECOND = 10, 8
ASKED_SECONDS, ASKED_SAMPLES_A_SECOND = 4, 40
STARTING_SECONDS = 15.0  # of py-spy, on a busy machine: it waits for a processor
MOST_RANKS = 16  # at once


@collector(
    "profile",
    gives="in which functions each rank spends its time",
    every_seconds=15.0,
    limit_seconds=45.0,
    answers=("profile",),
)
class Profiles:
    """Samples the ranks of this node."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._program: str = host.option("stacks", "program", "") or program() or ""
        self._share = host.option("profile", "share_of_a_core", SHARE_OF_A_CORE)
        self._sampled_at: dict[tuple[int, int], float] = {}  # (pid, start) → monotonic instant
        self._earned_at: float | None = None
        self._earned_seconds = 0.0

    def __call__(self, request: Request | None) -> Iterable[Yielded]:
        """Yield a profile of each rank."""
        if not self._program:
            raise NothingToCollect(
                "py-spy is not installed: pip install py-spy, or set the option `program` of `stacks`"
            )
        proc = self._host.roots.proc
        ranks = [one for one in self._host.training() if callable_by_number(proc, one.pid)]
        if request is not None:
            ranks = [one for one in ranks if request.covers(one.rank, one.job, one.role)]
        if not ranks:
            raise NothingToCollect("no training process runs here")
        if request is None:
            ranks = self._due(ranks)
        return self._sampled(ranks[:MOST_RANKS], dense=request is not None)

    def _due(self, ranks: list[TrainingProcess]) -> list[TrainingProcess]:
        """Return the rank that has waited longest, where one is due and paid for. Young ones may start undisturbed."""
        now = self._host.clock.monotonic()
        if self._earned_at is not None:
            self._earned_seconds = min(SAVED_SECONDS, self._earned_seconds + self._share * (now - self._earned_at))
        self._earned_at = now
        by_key = {(one.pid, one.start_ticks): one for one in ranks}
        self._sampled_at = {key: self._sampled_at.get(key, now) for key in by_key}
        key = min(self._sampled_at, key=lambda key: self._sampled_at[key])
        if self._earned_seconds <= 0.0 or now - self._sampled_at[key] < RANK_EVERY_SECONDS:
            return []
        self._sampled_at[key] = now
        return [by_key[key]]

    def _sampled(self, ranks: list[TrainingProcess], *, dense: bool) -> Iterator[Record]:
        seconds, rate = (ASKED_SECONDS, ASKED_SAMPLES_A_SECOND) if dense else (SECONDS, SAMPLES_A_SECOND)

        def sample(rank: TrainingProcess) -> tuple[Record, float]:
            return self._sample(rank, seconds, rate)

        with nullcontext() if dense else UNASKED, ThreadPoolExecutor(MOST_RANKS) as threads:
            for record, cpu_seconds in threads.map(sample, ranks):
                self._earned_seconds -= 0.0 if dense else cpu_seconds
                yield record

    def _sample(self, rank: TrainingProcess, seconds: int, rate: int) -> tuple[Record, float]:
        """Return the profile of a rank, or why there is none, and what it cost."""
        source = f"profile/{rank.pid}"
        command = [
            self._program, "record", "--nonblocking", "--idle", "--threads", "--function", "--full-filenames", "--format", "raw",
            "--output", "/dev/stdout", "--duration", str(seconds), "--rate", str(rate), "--pid", str(rank.pid),
        ]  # fmt: skip
        try:
            ran = programs.run(command, seconds + STARTING_SECONDS)
        except OSError as error:
            return self._none(rank, source, f"{self._program} cannot be started: {error.strerror}"), 0.0
        at = self._host.clock.now()
        if ran.code != 0 or not still_runs(str(self._host.roots.proc), rank):
            return self._none(rank, source, ran.error[:300] or "py-spy did not end in time"), ran.cpu_seconds
        try:
            (found,) = block.decode(self._host.apart.parse("profile", ran.output, source, rank.pid, source=source))
        except ParsingFailed as error:
            return self._none(rank, source, str(error)), ran.cpu_seconds
        more = (
            {"at": at, "boot_id": self._host.boot_id, "seconds": float(seconds)} if isinstance(found, Profile) else {}
        )
        return msgspec.structs.replace(found, **rank.of_records, **more), ran.cpu_seconds

    def _none(self, rank: TrainingProcess, source: str, problem: str) -> Unread:
        reason = f"no profile of rank {rank.rank}, process {rank.pid}: {problem}"
        return Unread(source=source, reason=reason, outcome="empty", **rank.of_records)
