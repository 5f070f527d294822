"""Idempotency-Key: the same question asked twice is acted on once and answered the same.

Answers are kept for an hour in this process. They are for a client that lost an answer and asks again, and not a promise
for ever: a command expires within minutes, and what a token or a pin was made for is in the audit log.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Annotated, TypeVar, cast

from fastapi import Header
from pydantic import BaseModel

from service.api.problems import Problem

KEPT_SECONDS = 3_600.0
MOST_KEPT = 10_000
Answer = TypeVar("Answer")

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key", pattern=r"^[\x21-\x7e]{1,255}$",
        description="A name of your own for this request: sent again with the same name, it is answered, not done, again.",
    ),
]  # fmt: skip


@dataclass(slots=True)
class _Kept:
    fingerprint: str
    at: float  # monotonic
    answer: object | None = None  # None: it is being made


class Answers:
    """The answers of the last hour by caller and key."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()

    def once(
        self,
        caller: str,
        key: str | None,
        asked: tuple[str, BaseModel],
        make: Callable[[], Answer],
        keep: Callable[[Answer], Answer] = lambda answer: answer,
    ) -> Answer:
        """Return ``make()``, or what it returned for this caller and key before; ``keep`` says what may be kept of it."""
        if key is None:
            return make()
        fingerprint = hashlib.sha256(f"{asked[0]}\n{asked[1].model_dump_json()}".encode()).hexdigest()
        known = self._begun(caller, key, fingerprint)
        if known is not None:
            return cast("Answer", known.answer)
        try:
            answer = make()
        except BaseException:
            with self._lock:
                self._kept.pop((caller, key), None)
            raise
        with self._lock:
            self._kept[caller, key] = _Kept(fingerprint, self._clock(), keep(answer))
        return answer

    def _begun(self, caller: str, key: str, fingerprint: str) -> _Kept | None:
        with self._lock:
            self._forget()
            known = self._kept.get((caller, key))
            if known is None:
                self._kept[caller, key] = _Kept(fingerprint, self._clock())
                return None
            if known.fingerprint != fingerprint:
                raise Problem("invalid", f"Idempotency-Key {key} was used for another request: choose a new one")
            if known.answer is None:
                raise Problem("conflict", f"the request {key} is being done: ask again", retry_after_seconds=1)
            return known

    def _forget(self) -> None:
        while self._kept:
            oldest = next(iter(self._kept.values()))
            if len(self._kept) <= MOST_KEPT and self._clock() - oldest.at < KEPT_SECONDS:
                return
            self._kept.popitem(last=False)
