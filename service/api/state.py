"""What the routes work with: one object of each kind, made by the application's lifespan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import Request

if TYPE_CHECKING:
    from analyzers.knowledge.convictions import Weights
    from analyzers.knowledge.role_rules import RoleRules
    from service.api.answers import Answers
    from service.api.audit import Audit
    from service.api.connections import Connections
    from service.api.intake import Intake
    from service.api.long_polls import LongPolls
    from service.api.metrics import Metrics
    from service.api.node_fitness import Fitness
    from service.api.open_access import OpenAccess
    from service.api.streams import Streams
    from service.engine.supervision import EngineProcess
    from service.remediation.policy_file import PolicyFile
    from service.remediation.repository import RemediationRepository
    from service.roles.readings import RoleReadingLog
    from service.roles.repository import RoleDirectories
    from service.roles.watching import RoleWatch
    from service.settings import Settings
    from service.store.appender import Appender
    from service.store.clock_watch import ClockWatch
    from service.store.commands import Commands
    from service.store.database import Database
    from service.store.follower import Follower
    from service.store.log import Log
    from service.store.tokens import Tokens
    from service.store.window.steps import StepTail
    from service.store.window.tail import Tail


@dataclass(slots=True)
class Service:
    """The running service."""

    settings: Settings
    database: Database
    log: Log
    appender: Appender
    follower: Follower
    tail: Tail
    steps: StepTail
    tokens: Tokens
    commands: Commands
    clock: ClockWatch
    audit: Audit
    intake: Intake
    waiting: LongPolls
    streams: Streams
    fitness: Fitness
    answers: Answers
    metrics: Metrics
    open_access: OpenAccess
    connections: Connections
    policy: PolicyFile
    roles: RoleDirectories
    role_watch: RoleWatch
    role_readings: RoleReadingLog
    remedies: RemediationRepository
    weights: Callable[[], Weights]  # of evidence about nodes; read at the first call
    role_rules: Callable[[], RoleRules]  # what the names of roles mean; read at the first call
    engine: EngineProcess | None = None  # None: this service runs none

    def end_waits(self) -> None:
        """End all waits: the service is stopping. Called in the event loop."""
        self.waiting.end_waits()
        self.streams.end_waits()
        self.role_watch.end_waits()


def service_of(request: Request) -> Service:
    """Return the service that a request came to."""
    service: Service = request.app.state.service
    return service
