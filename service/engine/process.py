"""The engine's process: it waits for the lease, works while it holds it, and ends with the service that began it."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import select
import signal
import time
from collections.abc import Sequence
from types import FrameType

import msgspec

from analyzers.incidents.state import EvidenceLimits
from collectors.records.prepared import prepare_types
from service import packaged_knowledge
from service.clock import now
from service.engine.driver import ClockWentBack, Driver
from service.engine.judge_child import die_with_parent
from service.engine.judge_processes import JudgeProcesses
from service.engine.numbers import Numbers
from service.remediation.policy_file import PolicyFile
from service.remediation.proposer import Proposer, ProposerCounts
from service.settings import Settings
from service.store import clock_watch
from service.store.database import TRANSIENT_ERRORS, Database
from service.store.leases import Lease, LeaseLost

LEASE = "engine"
POLL_SECONDS = 0.5  # between two reads of the log
BUSY_SECONDS = 0.1  # while batches come: those that come in the meantime share a turn
STANDBY_SECONDS = 1.0
RETRY_SECONDS = 1.0  # after the database failed
REPORT_SECONDS = 1.0
ENDING_SECONDS = 5  # for an engine whose service has ended to release its lease

_log = logging.getLogger(__name__)


class EngineLoop:
    """The loop. ``stdin`` comes from the service: its end means that the service has ended, or ends this process."""

    def __init__(self, settings: Settings, owner: str, stdin: int = 0, stdout: int = 1) -> None:
        self._database = Database(settings.url())
        self._lease = Lease(self._database, LEASE, owner)
        self._knowledge = packaged_knowledge.load(settings.knowledge)
        self._policy = PolicyFile(settings.policy)
        self._judges = JudgeProcesses(self._knowledge, settings.judge_seconds, settings.judge_bytes)
        self._limits = EvidenceLimits(
            settings.evidence_node_bytes, settings.evidence_job_bytes, settings.evidence_bytes
        )
        self._numbers, self._proposer_counts = Numbers(), ProposerCounts()
        self._stdin, self._stdout = stdin, stdout
        self._reported_at = self._followed_at = 0.0
        self._ending = False

    def run(self) -> None:
        """Work until the service or this process ends."""
        _log.info("engine_started")
        try:
            while not self._ending:
                try:
                    self._follow_clock()
                    if self._lease.take():
                        self._work()
                    else:
                        self._stand_by(STANDBY_SECONDS)
                except (LeaseLost, ClockWentBack) as error:
                    _log.warning("engine_lost reason=%s", error)
                except TRANSIENT_ERRORS as error:
                    _log.warning("engine_waits reason=%s", str(error.__cause__ or error).partition("\n")[0])
                    self._stand_by(RETRY_SECONDS)
        finally:
            self._judges.close()
            self._database.close()

    def end(self, *_: object) -> None:
        """End after the current turn."""
        self._ending = True

    def _work(self) -> None:
        """Work under the lease until it is lost; at the end of the process release it."""
        self._numbers.takeovers += 1
        try:
            driver = Driver(
                self._database, self._lease, self._knowledge, self._judges, self._numbers, limits=self._limits
            )
            proposer = Proposer(self._database, self._lease, self._knowledge, self._policy, self._proposer_counts)
            _log.info("engine_works sequence=%d incidents=%d", driver.sequence, len(driver.state.incidents))
            while not self._ending:
                self._turn(driver, proposer)
        finally:
            self._judges.close()
            self._numbers.working = False
        self._lease.release()

    def _turn(self, driver: Driver, proposer: Proposer) -> None:
        try:
            self._follow_clock()
            more = driver.turn()
            proposer.turn(driver.state, now())
        except TRANSIENT_ERRORS as error:  # the driver keeps its decisions and writes them when the database is back
            _log.warning("engine_waits reason=%s", str(error.__cause__ or error).partition("\n")[0])
            self._stand_by(RETRY_SECONDS)
            return
        self._report()
        self._wait(0.0 if more else BUSY_SECONDS if driver.busy else POLL_SECONDS, self._judges.pipes)

    def _follow_clock(self) -> None:
        if abs(time.monotonic() - self._followed_at) >= REPORT_SECONDS:
            self._followed_at = time.monotonic()
            clock_watch.follow(self._database)

    def _stand_by(self, seconds: float) -> None:
        self._numbers.working = False
        self._report()
        self._wait(seconds, ())

    def _wait(self, seconds: float, pipes: Sequence[int]) -> None:
        readable, _, _ = select.select([self._stdin, *pipes], [], [], seconds)
        if self._stdin in readable and not os.read(self._stdin, 1 << 10):
            self._ending = True

    def _report(self) -> None:
        """Write the numbers, one line of JSON; a service that does not read them does not delay the engine."""
        if time.monotonic() - self._reported_at < REPORT_SECONDS:
            return
        self._reported_at = time.monotonic()
        counts, numbers = self._proposer_counts, self._numbers
        numbers.proposals, numbers.remediations = counts.proposals, counts.remediations
        numbers.remedy_failures = counts.failures
        if select.select([], [self._stdout], [], 0)[1]:
            with contextlib.suppress(BrokenPipeError):  # the service has ended: stdin ends next
                os.write(self._stdout, msgspec.json.encode(self._numbers) + b"\n")


def run(settings: Settings, owner: str) -> None:
    """Run the engine of a service, whose process is this one's parent."""
    parent = os.getppid()
    faulthandler.enable()  # shows where an analyzer crashed its child
    process = EngineLoop(settings, owner)
    prepare_types()

    def end(_number: int, _frame: FrameType | None) -> None:
        process.end()
        signal.alarm(ENDING_SECONDS)  # even if the database does not answer

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal: the service handles it
    die_with_parent(signal.SIGTERM, parent)
    process.run()
