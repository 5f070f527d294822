"""``check``: does this node's evidence reach the service? Nagios exit codes, within five seconds, nothing changed."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

import msgspec

from collectors.agent.client import Client, Unreachable
from collectors.agent.settings import Misconfigured, Settings
from collectors.agent.status import read_status
from collectors.live.sources.clock import Clock, NodeClock
from collectors.records import block

OK, WARNING, CRITICAL, UNKNOWN = range(4)
WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
SERVICE_SECONDS = 4.0
CALL_SECONDS = 2.0
CLOCK_OFFSET_SECONDS = 2.0  # of which one is the Date header's
TOKEN_REFUSED = frozenset({401, 403})
INGEST_NEEDED = "it needs the scope ingest, in the file that token_file or FAULTHOUND_TOKEN_FILE names"


@dataclass(slots=True)
class Problems:
    """What was found wrong, each with its level."""

    node: str
    found: list[tuple[int, str]] = field(default_factory=list)

    def add(self, level: int, text: str) -> None:
        """Note one problem."""
        self.found.append((level, text))

    @property
    def level(self) -> int:
        """Return the worst level, which is the exit code."""
        return max((level for level, _ in self.found), default=OK)

    def text(self) -> str:
        """Return all of it in one line, the worst first."""
        texts = [text for _, text in sorted(self.found, key=lambda one: -one[0])]
        detail = "; ".join(texts) or "the agent runs and the service takes its records"
        return f"{WORDS[self.level]}: {self.node}: {detail}"

    def json(self) -> str:
        """Return the same as a JSON object."""
        problems = [{"level": WORDS[level], "text": text} for level, text in self.found]
        form = {"state": WORDS[self.level], "code": self.level, "node": self.node, "problems": problems}
        return msgspec.json.encode(form).decode()


def check(settings: Settings) -> Problems:
    """Check the running agent, its folder and the service."""
    clock = NodeClock()
    settings = _as_it_runs(settings, clock.now())
    problems = Problems(settings.node)
    thread = threading.Thread(target=_check_service, args=(settings, clock, problems), daemon=True)
    thread.start()
    _check_agent(settings, clock.now(), problems)
    thread.join(SERVICE_SECONDS)
    if thread.is_alive():
        problems.add(CRITICAL, f"{settings.service} does not answer within {SERVICE_SECONDS:g} s")
    return problems


def _as_it_runs(settings: Settings, now: float) -> Settings:
    """Return the settings, with the service and the node of the agent that runs where nothing names them here."""
    status = read_status(settings)
    if status is None or not status.is_alive(now):
        return settings
    node = status.node if settings.node == Settings().node else settings.node
    return replace(settings, service=settings.service or status.service, node=node)


def _check_agent(settings: Settings, now: float, problems: Problems) -> None:
    status, state = read_status(settings), settings.state
    if status is None or status.stopped:
        there = "" if state.is_dir() else ", which does not exist"
        problems.add(CRITICAL, f"no agent runs on {state}{there}: start faulthound-agent run, or give --state")
        return
    if not status.is_alive(now):
        since = f"{now - status.written_at:.0f} s"
        text = f"the agent on {state} has written no status for {since}: it has ended, or its disk takes nothing"
        problems.add(CRITICAL, text)
        return
    if status.spool_trouble:
        problems.add(CRITICAL, status.spool_trouble)
    if status.service_trouble:
        problems.add(WARNING, f"the service did not accept the newest batch ({status.service_trouble})")
    if status.dropped_batches:
        problems.add(WARNING, f"{status.dropped_batches} batches were dropped at the spool's bound")
    if status.refused_batches:
        problems.add(WARNING, f"{status.refused_batches} batches were refused and lie in {state}/refused")
    for collector in status.collectors:
        if collector.error and (collector.failures or collector.overran):
            problems.add(WARNING, f"collector {collector.name}: {collector.error}")


def _check_service(settings: Settings, clock: Clock, problems: Problems) -> None:
    try:
        client = Client(settings, clock)
    except Misconfigured as error:
        problems.add(CRITICAL, str(error))
        return
    headers = {"Content-Type": block.MEDIA_TYPE, "Faulthound-Node": settings.node, "Faulthound-Batch": "check"}
    try:
        health = client.call("GET", "/healthz", seconds=CALL_SECONDS)
        # An empty body is no batch: the service refuses the body where it accepts the token, and else the token.
        token = client.call("POST", "/v1/records", body=b"", headers=headers, seconds=CALL_SECONDS)
    except Unreachable as error:
        problems.add(CRITICAL, f"the service cannot be reached: {error}")
        return
    finally:
        client.close()
    if health.status >= 400:
        problems.add(CRITICAL, f"{settings.service}/healthz answers {health.detail()}")
    if token.status in TOKEN_REFUSED:
        problems.add(CRITICAL, f"the service does not accept the token ({token.detail()}): {INGEST_NEEDED}")
    offset = health.clock_offset_seconds
    if offset is not None and abs(offset) > CLOCK_OFFSET_SECONDS:
        problems.add(WARNING, f"this node's clock is {offset:+.0f} s from the service's")
