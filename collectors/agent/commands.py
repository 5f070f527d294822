"""What the service asks of this node: a closed set of verbs, each with an expiry, none that the node denies.

    stacks, recorders          the collectors that answer the verb run at once, with the command's arguments
    read {collector}           an ordinary run now
    rate {collector, every_seconds, for_seconds ≤ 600}    run at another rate for a while

The outcome of each goes back as a ``CommandResult``. The deny file lists verbs, one a line, "#" begins a comment; it is read
at each command, and where it cannot be read everything is denied.
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
from collectors.agent.client import Answer, Client, Unreachable
from collectors.agent.gathering import Stamp
from collectors.agent.runner import Outcome, Question, Runner
from collectors.agent.segment import Entry
from collectors.agent.spool import Spool
from collectors.live import Asked
from collectors.records import CommandResult, block

POLL_SECONDS = 25
LEAST_POLL_SECONDS = 0.5
ASKED_VERBS = frozenset({"stacks", "recorders"})
VERBS = ASKED_VERBS | {"read", "rate"}
RATE_MOST_SECONDS = 600.0
RATE_LEAST_EVERY_SECONDS = 0.1
UNDER_WAY_MOST = 32
ANSWER_SECONDS = 10.0  # beyond the collectors' own bounds: they may have had to wait for a run that was going on
DENY_BYTES_MAX = 1 << 16
TEXT_CHARACTERS = 2000
OK, UNAUTHORIZED = 200, 401

log = logging.getLogger("faulthound.agent")
How = Literal["done", "nothing", "failed", "denied", "expired", "unknown"]


class Command(msgspec.Struct, frozen=True):
    """A command as the service hands it out."""

    id: str
    verb: str
    arguments: dict[str, Any] = {}
    expires_at: float | None = None  # UTC seconds of the service's clock


@dataclass(slots=True, eq=False)
class _UnderWay:
    """A command that some collectors are still running for."""

    command: Command
    waiting: set[str]
    deadline: float  # time.monotonic()
    outcomes: list[Outcome] = field(default_factory=list)


class CommandRefused(Exception):
    """A command that cannot be done as it stands; the message says why."""


class Commands:
    """Takes commands and answers them; the poll is a thread, the runs are the collectors' own."""

    def __init__(self, runners: Mapping[str, Runner], spool: Spool, stamp: Stamp, deny_file: Path) -> None:
        self._runners, self._spool, self._stamp, self._deny_file = runners, spool, stamp, deny_file
        self._under_way: set[_UnderWay] = set()
        self._lock = threading.Lock()

    def take(self, command: Command, clock_offset_seconds: float | None = None) -> None:
        """Do one command, or say why not."""
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
                self._do(command)
            except CommandRefused as refused:
                self._answer(command, "failed", str(refused))

    def look(self) -> None:
        """Answer for the commands whose collectors do not come back."""
        with self._lock:
            late = [one for one in self._under_way if one.deadline <= time.monotonic()]
            self._under_way.difference_update(late)
        for one in late:
            for name in sorted(one.waiting):
                one.outcomes.append(Outcome(name, "failed", "did not come back in time: an earlier run may hang"))
            self._finish(one)

    def _do(self, command: Command) -> None:
        if command.verb == "rate":
            runner = self._runner(command)
            every = _seconds(command, "every_seconds", RATE_LEAST_EVERY_SECONDS, 3600.0)
            lasting = _seconds(command, "for_seconds", 1.0, RATE_MOST_SECONDS)
            runner.run_every(every, lasting)
            self._answer(command, "done", f"{runner.collector.name} runs every {every:g} s for {lasting:g} s")
        elif command.verb == "read":
            self._ask(command, [self._runner(command)], None)
        else:
            runners = [runner for runner in self._runners.values() if command.verb in runner.collector.answers]
            if not runners:
                raise CommandRefused(f"no collector that runs here answers {command.verb!r}")
            self._ask(command, runners, Asked(command.verb, command.arguments))

    def _runner(self, command: Command) -> Runner:
        name = command.arguments.get("collector")
        if not isinstance(name, str) or name not in self._runners:
            raise CommandRefused(f"collector is {name!r} and must be one that runs here: {', '.join(self._runners)}")
        return self._runners[name]

    def _ask(self, command: Command, runners: list[Runner], asked: Asked | None) -> None:
        bound = max(runner.collector.limit_seconds for runner in runners)
        under_way = _UnderWay(
            command, {runner.collector.name for runner in runners}, time.monotonic() + ANSWER_SECONDS + bound
        )
        with self._lock:
            if len(self._under_way) >= UNDER_WAY_MOST:
                raise CommandRefused(f"{UNDER_WAY_MOST} commands are under way: ask again when they are done")
            self._under_way.add(under_way)

        def done(outcome: Outcome) -> None:
            self._came_back(under_way, outcome)

        for runner in runners:
            if not runner.ask(Question(asked, done)):
                done(Outcome(runner.collector.name, "failed", "too many questions wait for it"))

    def _came_back(self, under_way: _UnderWay, outcome: Outcome) -> None:
        with self._lock:
            if under_way not in self._under_way:
                return  # it was answered for already
            under_way.outcomes.append(outcome)
            under_way.waiting.discard(outcome.name)
            if under_way.waiting:
                return
            self._under_way.discard(under_way)
        self._finish(under_way)

    def _finish(self, under_way: _UnderWay) -> None:
        outcomes = sorted(under_way.outcomes, key=lambda outcome: outcome.name)
        records = sum(outcome.records for outcome in outcomes)
        kinds = {outcome.kind for outcome in outcomes}
        how: How = "nothing"
        if records or "done" in kinds:
            how = "done"
        elif kinds & {"failed", "overran"}:
            how = "failed"
        text = "; ".join(f"{one.name}: {one.text or one.kind}" for one in outcomes if one.text or one.kind != "done")
        self._answer(under_way.command, how, text, records)

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

    def _answer(self, command: Command, how: How, text: str, records: int = 0) -> None:
        result = CommandResult(
            source="agent",
            command=command.id,
            verb=command.verb,
            outcome=how,
            text=text[:TEXT_CHARACTERS],
            records=records,
        )
        self._spool.add(Entry(records=[block.encode([self._stamp.record(result)])]), urgent=True)


def _seconds(command: Command, name: str, least: float, most: float) -> float:
    value = command.arguments.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise CommandRefused(f"{name} is {value!r} and must be a number from {least:g} to {most:g}")
    return float(value)


class Poll:
    """Waits at the service for commands; one thread."""

    def __init__(self, commands: Commands, client: Client, node: str) -> None:
        self._commands, self._client = commands, client
        self._path = f"/v1/nodes/{quote(node, safe='')}/commands?wait_seconds={POLL_SECONDS}"
        self._waits = Backoff(1.0, 60.0, node)
        self._stopped = threading.Event()
        self._said = ""

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
                self._wait(str(error))
            except Exception as error:
                log.exception("commands_failed")
                self._wait(f"{type(error).__name__} while asking for commands")

    def _poll(self) -> None:
        asked_at = time.monotonic()
        answer = self._client.call("GET", self._path, seconds=POLL_SECONDS + 10.0)
        if answer.status == OK:
            self._waits.reset()
            self._said = ""
            self._take(answer)
            # A service that does not hold the question must not be asked in a tight loop.
            self._stopped.wait(max(0.0, LEAST_POLL_SECONDS - (time.monotonic() - asked_at)))
        elif answer.status == UNAUTHORIZED and self._client.renew_token():
            return
        else:
            self._wait(answer.detail(), answer.retry_after_seconds)

    def _take(self, answer: Answer) -> None:
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

    def _wait(self, trouble: str, retry_after_seconds: float | None = None) -> None:
        if trouble != self._said:
            log.warning("commands trouble=%r", trouble)
            self._said = trouble
        doubling = self._waits.next()
        self._stopped.wait(doubling if retry_after_seconds is None else retry_after_seconds)
