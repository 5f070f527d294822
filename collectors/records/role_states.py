"""Roles of a reinforcement-learning job: what one instance of a role does, and what it waits for."""

from __future__ import annotations

from typing import Literal

from collectors.records.record import Count, Instant, Integer, Name, Real, Record

MOST_DIGITS = 9
RoleStanding = Literal["serving", "left", "fenced"]


class RoleState(Record, frozen=True, kw_only=True, tag="role_state"):
    """One reading of one instance of a role, ``rollout 3``; ``role`` and ``phase`` are those of every record.

    A source states what it has: the directory of roles, an engine's metrics, a log. None: it does not say. A source that
    states ``phase`` speaks of waits too: without ``waiting_for`` the instance waits for nothing.
    """

    instance: Name = ""  # which one of its role; not always a number
    pid: Integer | None = None
    epoch: Count | None = None  # that it registered under; a replacement has a higher one
    phase_since: Instant | None = None  # UTC seconds, as all instants here
    weights: Integer | None = None  # the version that it has
    waiting_for: Name | None = None  # a role, "reward 0" (an instance), "queue:NAME", or "host:port"
    waiting_since: Instant | None = None
    requests_running: Count | None = None
    requests_waiting: Count | None = None
    tokens_total: Count | None = None  # generated since it started
    last_token_at: Instant | None = None
    queue_depth: Count | None = None  # of the queue that it holds
    steps_total: Count | None = None  # finished since it started: steps of a trainer, calls of an environment, samples
    last_step_at: Instant | None = None
    worked_seconds: Real | None = None  # since it started, in which it waited for no other
    renewed_at: Instant | None = None  # its last heartbeat that was heard
    lease_seconds: Real | None = None  # it renews within a third of it
    answers: bool | None = None  # whether its health endpoint does
    state: RoleStanding | None = None  # the directory's word
    hardware: Name | None = None  # of its node, in the word that the job's owner has declared: only equals are as fast

    @property
    def number(self) -> int | None:
        """Return the rank of the instance: the record's own, else the instance's name where that is a number."""
        if self.rank is not None or not self.instance.isdecimal() or len(self.instance) > MOST_DIGITS:
            return self.rank
        return int(self.instance)
