"""Idempotency-Key: a request that is repeated is carried out once, and answered the same.

Answers are kept for an hour in the store, for all processes and over restarts. They are for a client that lost an answer and
repeats its request. A process that dies between acting and keeping the answer leaves the key taken for a minute; then the
request is carried out again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, TypeVar

import msgspec
import structlog
from fastapi import Header
from pydantic import BaseModel
from sqlalchemy import ColumnElement, delete, update
from sqlalchemy.exc import SQLAlchemyError

from service.api.problems import Problem
from service.clock import now
from service.store.database import Database
from service.store.models import Answer as Row
from service.store.schema import clean

KEPT_SECONDS = 3_600.0
DOING_SECONDS = 60.0  # that a request may take; a key that is taken for longer is of a process that has died
Answer = TypeVar("Answer", bound=msgspec.Struct)

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key", pattern=r"^[\x21-\x7e]{1,255}$",
        description="The client's name for this request. Repeated under the same name, it is answered, not carried out, again.",
    ),
]  # fmt: skip


class Answers:
    """The answers of the last hour by caller and key."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = now) -> None:
        self._database, self._clock = database, clock

    def once(
        self,
        caller: str,
        key: str | None,
        asked: tuple[str, BaseModel],
        answer_type: type[Answer],
        make: Callable[[], Answer],
        keep: Callable[[Answer], Answer] = lambda answer: answer,
    ) -> Answer:
        """Return ``make()``, or what it returned for this caller and key before; ``keep`` returns the part to be kept."""
        if key is None:
            return make()
        name = (clean(caller, 255), key)
        known = self._begun(name, hashlib.sha256(f"{asked[0]}\n{asked[1].model_dump_json()}".encode()).hexdigest())
        if known is not None:
            return msgspec.json.decode(known, type=answer_type)
        try:
            answer = make()
        except BaseException:
            with suppress(SQLAlchemyError), self._database.transaction() as session:
                session.execute(delete(Row).where(*_is(name)))
            raise
        try:
            with self._database.transaction() as session:
                session.execute(update(Row).where(*_is(name)).values(body=msgspec.json.encode(keep(answer)).decode()))
        except SQLAlchemyError as error:  # it was done, and the caller gets the answer all the same
            structlog.get_logger().error("answer_not_kept", error=type(error).__name__)
        return answer

    def _begun(self, name: tuple[str, str], fingerprint: str) -> str | None:
        """Take the key, and return None; or return what was answered under it."""
        at = self._clock()
        with self._database.transaction() as session:
            session.execute(delete(Row).where(Row.at < at - KEPT_SECONDS))
            row = session.get(Row, name, with_for_update=True)
            if row is None:
                session.add(Row(caller=name[0], key=name[1], fingerprint=fingerprint, at=at, body=None))
                return None
            if row.fingerprint != fingerprint:
                raise Problem("invalid", f"Idempotency-Key {name[1]} was used for another request: send a new key")
            if row.body is None and at - row.at < DOING_SECONDS:
                raise Problem(
                    "conflict", f"the request {name[1]} is being carried out: send it again", retry_after_seconds=1
                )
            if row.body is None:
                row.at = at
            return row.body


def _is(name: tuple[str, str]) -> tuple[ColumnElement[bool], ...]:
    return Row.caller == name[0], Row.key == name[1]
