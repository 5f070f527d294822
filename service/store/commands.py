"""What agents are asked to do: each command goes to one node, is handed out once, and ends with an outcome or expires.

    asked ──take──▶ taken ──result──▶ done · nothing · failed · denied · unknown
      └──── not taken, or without a result, in time ───────▶ expired

A late result replaces "expired": the agent did carry it out.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from service.clock import now
from service.store import audit_log
from service.store.database import Database
from service.store.models import Command
from service.store.schema import clean

VERBS = ("stacks", "recorders", "profile", "read", "rate")
# Past its expiry a taken command's result is waited for so long: py-spy on 8 processes takes a while.
RESULT_SECONDS = 120.0


class Commands:
    """The commands of a store."""

    def __init__(self, database: Database, clock: Callable[[], float] = now) -> None:
        self._database, self._clock = database, clock

    def ask(
        self, asked: Iterable[tuple[str, dict[str, Any]]], verb: str, asked_by: str, seconds: float
    ) -> list[Command]:
        """Ask these (node, arguments) to do something within ``seconds``; one command a node."""
        with self._database.transaction() as session:
            return add(session, asked, verb, asked_by, seconds, self._clock())

    def get(self, id: str) -> Command | None:
        """Return a command, or None."""
        with self._database.session() as session:
            return session.get(Command, id)

    def find(self, ids: Sequence[str]) -> Sequence[Command]:
        """Return those of these commands that there are, by node."""
        with self._database.session() as session:
            return session.scalars(select(Command).where(Command.id.in_(ids)).order_by(Command.node)).all()

    def waiting(self) -> set[str]:
        """Return the nodes that have a command to take: one query a second serves all long polls of a process."""
        with self._database.session() as session:
            return set(session.scalars(select(Command.node).where(*_untaken(self._clock())).distinct()))

    def untaken(self, node: str) -> Sequence[Command]:
        """Return the commands that wait for a node, the oldest first; they go on waiting."""
        waiting = select(Command).where(Command.node == node, *_untaken(self._clock()))
        with self._database.session() as session:
            return session.scalars(waiting.order_by(Command.asked_at, Command.id)).all()

    def take(self, node: str) -> list[Command]:
        """Return the commands for a node, the oldest first; each is returned once."""
        at = self._clock()
        with self._database.session() as session:  # nearly always there is none, and a read does not block the log
            if session.scalar(select(Command.id).where(Command.node == node, *_untaken(at)).limit(1)) is None:
                return []
        with self._database.transaction() as session:
            taken = session.scalars(
                update(Command).where(Command.node == node, *_untaken(at)).values(taken_at=at).returning(Command)
            ).all()
            return sorted(taken, key=lambda command: (command.asked_at, command.id))

    def finish(self, session: Session, node: str, id: str, outcome: str, text: str, at: float) -> None:
        """Write a command's outcome as its node reports it; the first one counts."""
        session.execute(
            update(Command)
            .where(
                Command.id == clean(id, 32),
                Command.node == node,
                or_(Command.outcome.is_(None), Command.outcome == "expired"),
            )
            .values(outcome=clean(outcome, 32), text=clean(text, 2_000), ended_at=at)
        )

    def expire(self) -> None:
        """Expire the commands that were not taken in time, and those without a result."""
        at = self._clock()
        late = or_(Command.taken_at.is_(None) & (Command.expires_at <= at), Command.expires_at <= at - RESULT_SECONDS)
        with self._database.session() as session:
            if session.scalar(select(Command.id).where(Command.outcome.is_(None), late).limit(1)) is None:
                return
        with self._database.transaction() as session:
            ended = {"outcome": "expired", "ended_at": at, "text": "no agent took it, or none answered, in time"}
            session.execute(update(Command).where(Command.outcome.is_(None), late).values(ended))


def add(
    session: Session, asked: Iterable[tuple[str, dict[str, Any]]], verb: str, asked_by: str, seconds: float, at: float
) -> list[Command]:
    """Add commands to the caller's transaction: one for each (node, arguments), to be taken within ``seconds``."""
    if verb not in VERBS:
        raise ValueError(f"{verb!r} is no command: the verbs are {', '.join(VERBS)}")
    commands = [
        Command(
            id=secrets.token_hex(16), node=node, verb=verb, arguments=arguments, asked_at=at, text="",
            expires_at=at + seconds, asked_by=asked_by, taken_at=None, outcome=None, ended_at=None,
        )
        for node, arguments in asked
    ]  # fmt: skip
    session.add_all(commands)
    for command in commands:
        details = {"verb": verb, "arguments": command.arguments, "command": command.id}
        audit_log.record(session, at, "command_asked", asked_by, command.node, details)
    return commands


def _untaken(at: float) -> tuple[Any, ...]:
    return Command.expires_at > at, Command.taken_at.is_(None), Command.outcome.is_(None)
