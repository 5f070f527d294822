"""The agent: the threads of the collectors, of the shipper and of the commands, and the loop that supervises them.

runners (a thread each) ──► spool ──► shipper ──► service
▲                         ▲                      │
└── requests ─── commands ┴── CommandResult      │
▲────────── long poll ───────┘
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TextIO

import msgspec

from collectors.agent import agent_version, status
from collectors.agent.client import Client
from collectors.agent.commands import CommandPoll, Commands
from collectors.agent.notify import Notify, watch_the_interpreter
from collectors.agent.run_output import Stamp
from collectors.agent.runner import Runner
from collectors.agent.segment import Entry
from collectors.agent.settings import Misconfigured, Settings
from collectors.agent.ship import Shipper
from collectors.agent.spool import Spool
from collectors.agent.state import replace
from collectors.agent.worker import Worker
from collectors.files import private
from collectors.live import Collector, Run, registry
from collectors.live.sources.host import Host
from collectors.records import block
from collectors.records.prepared import prepare_types

ROUND_SECONDS = 1.0
STATUS_SECONDS = 10.0
COVERAGE_SECONDS = 60.0
FIRST_COVERAGE_SECONDS = 10.0  # an operator who starts an agent waits to see its node
LEAVING_SECONDS = 3.0
NICENESS = 10
FIRST_TO_BE_KILLED = "500"  # of 1000: where memory runs out, the agent goes before the job
THREAD_STACK_BYTES = 1 << 20

log = logging.getLogger("faulthound.agent")


class AlreadyRunning(Exception):
    """Another agent has the state folder; the message names it."""


class Agent:
    """All parts of a running agent."""

    def __init__(self, settings: Settings, collectors: Mapping[str, Collector] | None = None) -> None:
        """Lock the state folder and make the parts; nothing runs yet."""
        self._settings = settings
        self._lock = _locked(settings.state)  # until the process ends: a thread that hangs may still write
        self._host = Host(node=settings.node, roots=settings.roots, options=settings.options)
        self._clock = self._host.clock
        self._started_at = self._clock.now()
        self._stamp = Stamp(self._host)
        bytes_max, seal_seconds = settings.spool_bytes, settings.ship_seconds
        self._spool = Spool(settings.state, settings.node, self._clock, bytes_max=bytes_max, seal_seconds=seal_seconds)
        self._host.cursors.update(self._spool.state.cursors)
        self.runners = {
            name: self._runner(collector) for name, collector in chosen(settings, collectors or registry()).items()
        }
        self._commands = Commands(self.runners, self._spool, self._stamp, settings.deny_file)
        self._client = Client(settings, self._clock)
        self._shipper = Shipper(self._spool, self._client, self._clock, settings.node)
        self._poll = CommandPoll(self._commands, self._client, settings.node)
        self._notify = Notify(os.environ)
        self._stopping = False

    def _runner(self, collector: Collector) -> Runner:
        every_seconds = interval(self._settings, collector)
        return Runner(collector, run_of(collector), self._host, self._stamp, self._spool, every_seconds)

    def run(self) -> None:
        """Run until a signal, then seal, ship for some seconds, and leave."""
        node, service = self._settings.node, self._settings.service
        log.info("agent_started node=%s service=%s collectors=%s", node, service, ",".join(self.runners))
        if self._client.sends_token_in_clear():
            log.warning("token_in_clear service=%s: use https, or anyone on the way can read it", service)
        for runner in self.runners.values():
            runner.start()
        self._shipper.start()
        self._poll.start()
        self._notify.ready()
        self._supervise()
        self._leave()

    def on_signal(self, *_signal: object) -> None:
        """Let ``run`` end at its next round; a handler may not take the lock that ``run`` may hold."""
        self._stopping = True

    def _supervise(self) -> None:
        self._coverage_at, self._status_at = time.monotonic() + FIRST_COVERAGE_SECONDS, 0.0
        while not self._stopping:
            self._notify.alive()
            if self._spool.wake.wait(min(ROUND_SECONDS, self._spool.due_in())):
                time.sleep(min(ROUND_SECONDS, self._spool.due_in()))  # an urgent record waits for its companions
            try:
                self._round()
            except Exception:
                # Whatever failed, the collectors, the shipper and the next round go on.
                log.exception("round_failed")
                time.sleep(ROUND_SECONDS)

    def _round(self) -> None:
        self._spool.seal()
        for runner in self.runners.values():
            runner.check_limit()
        self._commands.expire()
        if (now := time.monotonic()) >= self._coverage_at:
            self._coverage_at += COVERAGE_SECONDS
            self._add_coverage()
        if now >= self._status_at:
            self._status_at = now + STATUS_SECONDS
            self._write_status()

    def _leave(self) -> None:
        log.info("agent_stopping")
        self._notify.stopping()
        for runner in self.runners.values():
            runner.stop()
        self._poll.stop()
        self._add_coverage()
        self._spool.seal(now=True)
        self._shipper.finish(LEAVING_SECONDS)
        self._write_status(stopped=True)
        self._host.apart.close()

    def _add_coverage(self) -> None:
        coverage = status.coverage_of(self.runners.values(), self._spool, self._started_at)
        self._spool.add(Entry(records=[block.encode([self._stamp.record(coverage)])]))

    def _write_status(self, *, stopped: bool = False) -> None:
        current = status.Status(
            pid=os.getpid(),
            node=self._settings.node,
            version=agent_version(),
            service=self._settings.service,
            started_at=self._started_at,
            written_at=self._clock.now(),
            stopped=stopped,
            collectors=tuple(runner.since_start() for runner in self.runners.values()),
        )
        with contextlib.suppress(OSError):  # the spool reports the same trouble
            current.add_shipping(self._spool, self._shipper.shipped)
            replace(self._settings.state / status.FILE, msgspec.json.encode(current), durable=False)


def chosen(settings: Settings, collectors: Mapping[str, Collector]) -> dict[str, Collector]:
    """Return the collectors that the settings ask for."""
    wanted = settings.collectors or tuple(collectors)
    return {name: collector for name, collector in collectors.items() if name in wanted and name not in settings.skip}


def run_of(collector: Collector) -> Callable[[Host], Run]:
    """Return what makes a collector's run: the collector, or a process of its own around it."""
    return (lambda host: Worker(collector, host)) if collector.own_process else collector.make


def interval(settings: Settings, collector: Collector) -> float:
    """Return a collector's interval: its own, or that of its section in the settings."""
    seconds = settings.options.get(collector.name, {}).get("every_seconds", collector.every_seconds)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0.05 <= seconds <= 86_400:
        raise Misconfigured(f"collector.{collector.name}: every_seconds is {seconds!r} and must be from 0.05 to 86,400")
    return float(seconds)


def _locked(folder: Path) -> TextIO:
    """Return the open lock of the state folder; the kernel releases it however the agent ends."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        private.check_folder(folder)
        lock = open(folder / "agent.lock", "a+", encoding="ascii", opener=private.opened)  # noqa: SIM115
    except OSError as error:
        raise Misconfigured(
            f"state folder {folder} cannot be used: {error.strerror or error}: name another with --state"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        pid = lock.read(32).strip() or "unknown"
        lock.close()
        raise AlreadyRunning(
            f"the agent with process id {pid} runs on {folder}: stop it, or name another --state"
        ) from None
    lock.seek(0)
    lock.truncate()
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def serve(settings: Settings, collectors: Mapping[str, Collector] | None = None) -> None:
    """Run the agent in this process until SIGTERM or Ctrl-C."""
    threading.stack_size(THREAD_STACK_BYTES)
    agent = Agent(settings, collectors)
    prepare_types()
    _yield_to_the_job()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, agent.on_signal)
    watch_the_interpreter()
    agent.run()
    # What still hangs is left behind: a thread of a pool would be waited for.
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)


def _yield_to_the_job() -> None:
    """Take processor time and memory after the job, child processes included."""
    os.environ.pop("FAULTHOUND_TOKEN", None)  # child processes do not need it
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_BE_KILLED, encoding="ascii")
