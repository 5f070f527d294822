"""``check``: is this node's evidence on its way? Nagios exit codes, one line, within five seconds, nothing changed."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import msgspec

from collectors.agent.agent import STATUS_FILE
from collectors.agent.client import Client, Unreachable
from collectors.agent.coverage import Status
from collectors.agent.settings import Misconfigured, Settings
from collectors.live.sources.clock import Clock, NodeClock

OK, WARNING, CRITICAL, UNKNOWN = range(4)
WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
SERVICE_SECONDS = 4.0
CALL_SECONDS = 2.0
FRESH_SECONDS = 35.0  # the status file is written every 10 s
CLOCK_OFFSET_SECONDS = 2.0  # of which one is the Date header's
TOKEN_REFUSED = frozenset({401, 403})


@dataclass(slots=True)
class Findings:
    """What is wrong, worst first when told."""

    wrong: list[tuple[int, str]] = field(default_factory=list)

    def add(self, level: int, text: str) -> None:
        """Note one thing that is wrong."""
        self.wrong.append((level, text))

    def line(self, node: str) -> tuple[int, str]:
        """Return the exit code and the one line."""
        if not self.wrong:
            return OK, f"OK: {node}: the agent runs and the service takes its records"
        worst = max(level for level, _ in self.wrong)
        texts = [text for _, text in sorted(self.wrong, key=lambda one: -one[0])]
        return worst, f"{WORDS[worst]}: {node}: {'; '.join(texts)}"


def check(settings: Settings) -> tuple[int, str]:
    """Look at the running agent, its folder and the service; return the exit code and what to print."""
    clock, findings = NodeClock(), Findings()
    thread = threading.Thread(target=_service, args=(settings, clock, findings), daemon=True)
    thread.start()
    _agent(settings, clock.now(), findings)
    thread.join(SERVICE_SECONDS)
    if thread.is_alive():
        findings.add(CRITICAL, f"{settings.service} does not answer within {SERVICE_SECONDS:g} s")
    return findings.line(settings.node)


def read_status(settings: Settings) -> Status | None:
    """Return what the running agent last wrote; None where there is nothing to read.

    Raise ``Misconfigured`` where this user may not look: that says nothing about the agent.
    """
    try:
        return msgspec.json.decode((settings.state / STATUS_FILE).read_bytes(), type=Status)
    except PermissionError:
        raise Misconfigured(
            f"the state folder {settings.state} is another user's: ask as root or as the agent's user, or give --state"
        ) from None
    except (OSError, msgspec.DecodeError):
        return None


def is_alive(status: Status, now: float) -> bool:
    """Return whether the agent that wrote the status still runs."""
    return not status.stopped and now - status.written_at < FRESH_SECONDS


def _agent(settings: Settings, now: float, findings: Findings) -> None:
    status = read_status(settings)
    if status is None or status.stopped:
        there = "" if settings.state.is_dir() else ", which does not exist"
        findings.add(CRITICAL, f"no agent runs on {settings.state}{there}: start faulthound-agent run, or give --state")
        return
    if not is_alive(status, now):
        since = f"since {now - status.written_at:.0f} s"
        findings.add(
            CRITICAL, f"no word from the agent on {settings.state} {since}: it is gone, or its disk takes nothing"
        )
        return
    if status.spool_trouble:
        findings.add(CRITICAL, status.spool_trouble)
    if status.service_trouble:
        findings.add(WARNING, f"the newest batch was not taken ({status.service_trouble})")
    for count, what in (
        (status.dropped_batches, "batches were dropped at the spool's bound"),
        (status.refused_batches, "batches were refused and lie in refused/"),
    ):
        if count:
            findings.add(WARNING, f"{count} {what}")
    for collector in status.collectors:
        if collector.error and (collector.failures or collector.overran):
            findings.add(WARNING, f"collector {collector.name}: {collector.error}")


def _service(settings: Settings, clock: Clock, findings: Findings) -> None:
    try:
        client = Client(settings, clock)
    except Misconfigured as error:
        findings.add(CRITICAL, str(error))
        return
    try:
        health = client.call("GET", "/healthz", seconds=CALL_SECONDS)
        # A batch of no bytes is no batch: a service that knows the token refuses the body, one that does not the token.
        token = client.call("POST", "/v1/records", body=b"", headers=_headers(settings), seconds=CALL_SECONDS)
    except Unreachable as error:
        findings.add(CRITICAL, f"{settings.service} cannot be reached ({error})")
        return
    finally:
        client.close()
    if health.status >= 400:
        findings.add(CRITICAL, f"{settings.service}/healthz says {health.detail()}")
    if token.status in TOKEN_REFUSED:
        findings.add(CRITICAL, f"the service does not accept the token ({token.detail()})")
    offset = health.clock_offset_seconds
    if offset is not None and abs(offset) > CLOCK_OFFSET_SECONDS:
        findings.add(WARNING, f"this node's clock is {offset:+.0f} s from the service's")


def _headers(settings: Settings) -> dict[str, str]:
    return {
        "Content-Type": "application/vnd.faulthound.block",
        "Faulthound-Node": settings.node,
        "Faulthound-Batch": "check",
    }
