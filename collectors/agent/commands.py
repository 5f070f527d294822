"""Commands of the service: a closed set of verbs, each with an expiry, and none that the node denies.

    stacks, recorders, profile    the collectors that answer the verb run at once, with the command's arguments
    read {collector}           an ordinary run now
    rate {collector, every_seconds, for_seconds ≤ 600}    run at another rate for a while

The outcome of each goes back as a ``CommandResult``. The deny file lists verbs, one a line, "#" begins a comment; it is read
at each command, and where it cannot be read every command is denied.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from collectors.agent.backoff import Backoff
from collectors.agent.client import Client, Response, Unreachable
from collectors.agent.run_output import Stamp
from collectors.agent.runner import Outcome, Runner, RunRequest
from collectors.agent.segment import Entry
from collectors.agent.spool import Spool
from collectors.live import Request
from collectors.records import CommandResult, block

POLL_SECONDS = 25
LEAST_POLL_SECONDS = 0.5
ASKED_VERBS = frozenset({"stacks", "recorders", "profile"})
VERBS = ASKED_VERBS | {"read", "rate"}
RATE_MOST_SECONDS = 600.0
RATE_LEAST_EVERY_SECONDS = 0.1
PENDING_MOST = 32
ANSWER_SECONDS = 10.0  # beyond the collectors' own bounds: they may have waited for a run under way
DENY_BYTES_MAX = 1 << 16
TEXT_CHARACTERS = 2000
OK, UNAUTHORIZED = 200, 401

log = logging.getLogger("faulthound.agent")
Result = Literal["done", "nothing", "failed", "denied", "expired", "unknown"]


class Command(msgspec.Struct, frozen=True):
    """A command as the service hands it out."""

    id: str
    verb: str
    arguments: dict[str, Any] = {}
    expires_at: float | None = None  # UTC seconds of the service's clock


@dataclass(slots=True, eq=False)
class _Pending:
    """A command that some collectors are still running for."""

    command: Command
    waiting: set[str]
    deadline: float  # time.monotonic()
    outcomes: list[Outcome] = field(default_factory=list)


class CommandRefused(Exception):
    """A command that cannot be executed as it stands; the message says why."""


class Commands:
    """Executes commands and answers them; the runs are in the collectors' threads."""

    def __init__(self, runners: Mapping[str, Runner], spool: Spool, stamp: Stamp, deny_file: Path) -> None:
        self._runners, self._spool, self._stamp, self._deny_file = runners, spool, stamp, deny_file
        self._pending: set[_Pending] = set()
        self._lock = threading.Lock()

    def take(self, command: Command, clock_offset_seconds: float | None = None) -> None:
        """Execute one command, or answer why not."""
        log.info("command id=%r verb=%r", command.id, command.verb)
        service_now = self._stamp.clock.now() - (clock_offset_seconds or 0.0)
        # The Date header has whole seconds: an expiry within one is still good.
        if command.expires_at is not None and service_now > command.expires_at + 1.0:
            self._answer(command, "expired", f"it reached this node {service_now - command.expires_at:.1f} s too late")
        elif command.verb not in VERBS:
            self._answer(command, "unknown", f"{command.verb!r} is none of {', '.join(sorted(VERBS))}")
        elif why := self._denied(command.verb):
            self._answer(command, "denied", why)
        else:
            try:
                self._execute(command)
            except CommandRefused as refused:
                self._answer(command, "failed", str(refused))

    def expire(self) -> None:
        """Answer the commands whose collectors have not returned in time."""
        with self._lock:
            late = [one for one in self._pending if one.deadline <= time.monotonic()]
            self._pending.difference_update(late)
        for one in late:
            for name in sorted(one.waiting):
                one.outcomes.append(Outcome(name, "failed", "did not return in time: an earlier run may hang"))
            self._finish(one)

    def _execute(self, command: Command) -> None:
        if command.verb == "rate":
            runner = self._runner(command)
            every = _seconds(command, "every_seconds", RATE_LEAST_EVERY_SECONDS, 3600.0)
            lasting = _seconds(command, "for_seconds", 1.0, RATE_MOST_SECONDS)
            runner.run_every(every, lasting)
            self._answer(command, "done", f"{runner.collector.name} runs every {every:g} s for {lasting:g} s")
        elif command.verb == "read":
            self._run(command, [self._runner(command)], None)
        else:
            runners = [runner for runner in self._runners.values() if command.verb in runner.collector.answers]
            if not runners:
                raise CommandRefused(f"no collector that runs here answers {command.verb!r}")
            self._run(command, runners, Request(command.verb, command.arguments))

    def _runner(self, command: Command) -> Runner:
        name = command.arguments.get("collector")
        if not isinstance(name, str) or name not in self._runners:
            raise CommandRefused(f"collector is {name!r} and must be one that runs here: {', '.join(self._runners)}")
        return self._runners[name]

    def _run(self, command: Command, runners: list[Runner], request: Request | None) -> None:
        names = {runner.collector.name for runner in runners}
        limit_seconds = max(runner.collector.limit_seconds for runner in runners)
        pending = _Pending(command, names, time.monotonic() + ANSWER_SECONDS + limit_seconds)
        with self._lock:
            if len(self._pending) >= PENDING_MOST:
                raise CommandRefused(f"{PENDING_MOST} commands are under way: send it again when they are done")
            self._pending.add(pending)

        def done(outcome: Outcome) -> None:
            self._returned(pending, outcome)

        for runner in runners:
            if not runner.ask(RunRequest(request, done)):
                done(Outcome(runner.collector.name, "failed", "too many requests wait for it"))

    def _returned(self, pending: _Pending, outcome: Outcome) -> None:
        with self._lock:
            if pending not in self._pending:
                return  # it has expired, and was answered
            pending.outcomes.append(outcome)
            pending.waiting.discard(outcome.name)
            if pending.waiting:
                return
            self._pending.discard(pending)
        self._finish(pending)

    def _finish(self, pending: _Pending) -> None:
        outcomes = sorted(pending.outcomes, key=lambda outcome: outcome.name)
        records, kinds = sum(outcome.records for outcome in outcomes), {outcome.kind for outcome in outcomes}
        result: Result = "failed" if kinds & {"failed", "overran"} else "nothing"
        if records or "done" in kinds:
            result = "done"
        text = "; ".join(f"{one.name}: {one.text or one.kind}" for one in outcomes if one.text or one.kind != "done")
        self._answer(pending.command, result, text, records)

    def _denied(self, verb: str) -> str:
        try:
            with self._deny_file.open(encoding="utf-8") as file:
                lines = file.read(DENY_BYTES_MAX).splitlines()
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as error:
            return f"{self._deny_file} cannot be read, so nothing is allowed: {error}"
        denied = {line.partition("#")[0].strip() for line in lines}
        return f"{self._deny_file} on this node denies it" if verb in denied else ""

    def _answer(self, command: Command, result: Result, text: str, records: int = 0) -> None:
        record = CommandResult(
            source="agent",
            command=command.id,
            verb=command.verb,
            outcome=result,
            text=text[:TEXT_CHARACTERS],
            records=records,
        )
        self._spool.add(Entry(records=[block.encode([self._stamp.record(record)])]), urgent=True)


def _seconds(command: Command, name: str, least: float, most: float) -> float:
    value = command.arguments.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise CommandRefused(f"{name} is {value!r} and must be a number from {least:g} to {most:g}")
    return float(value)


class CommandPoll:
    """Waits at the service for commands; one thread."""

    def __init__(self, commands: Commands, client: Client, node: str) -> None:
        self._commands, self._client = commands, client
        self._path = f"/v1/nodes/{quote(node, safe='')}/commands/take?wait_seconds={POLL_SECONDS}"
        self._waits = Backoff(1.0, 60.0, node)
        self._stopped = threading.Event()
        self._logged = ""

    def start(self) -> None:
        """Begin to wait."""
        threading.Thread(target=self._loop, name="commands", daemon=True).start()

    def stop(self) -> None:
        """Take no more commands."""
        self._stopped.set()

    def _loop(self) -> None:
        while not self._stopped.is_set():
            try:
                self._poll()
            except Unreachable as error:
                self._wait(str(error), unreached=True)
            except Exception as error:
                log.exception("commands_failed")
                self._wait(f"{type(error).__name__} while asking for commands")

    def _poll(self) -> None:
        asked_at = time.monotonic()
        answer = self._client.call("POST", self._path, seconds=POLL_SECONDS + 10.0)
        if answer.status == OK:
            self._waits.reset()
            self._logged = ""
            self._take(answer)
            # A service that answers at once must not be asked in a tight loop.
            self._stopped.wait(max(0.0, LEAST_POLL_SECONDS - (time.monotonic() - asked_at)))
        elif answer.status != UNAUTHORIZED or not self._client.renew_token():
            self._wait(answer.detail(), answer.retry_after_seconds)

    def _take(self, answer: Response) -> None:
        commands = answer.json().get("commands")
        for form in commands if isinstance(commands, list) else ():
            if self._stopped.is_set():
                return
            try:
                command = msgspec.convert(form, Command)
            except msgspec.ValidationError as error:
                log.warning("command_unreadable reason=%r", str(error))
                continue
            self._commands.take(command, answer.clock_offset_seconds)

    def _wait(self, trouble: str, retry_after_seconds: float | None = None, *, unreached: bool = False) -> None:
        if trouble != self._logged:
            log.warning("commands trouble=%r", trouble)
            self._logged = trouble
        doubling = self._waits.next(unreached=unreached)
        self._stopped.wait(doubling if retry_after_seconds is None else retry_after_seconds)
