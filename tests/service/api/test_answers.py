"""Idempotency-Key: a request is done once and answered the same, also by another process and after a restart."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest
from pydantic import BaseModel
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError, OperationalError

from service.api.answers import DOING_SECONDS, KEPT_SECONDS, Answers
from service.api.problems import Problem
from service.store.database import Database
from service.store.models import Answer as Row
from tests.support.served import served

AT = 1_795_230_847.0


class Wish(BaseModel):
    """A request."""

    text: str = "a"


class Reported(msgspec.Struct):
    """An answer."""

    number: int


class Desk:
    """Something that is done a number of times, on a clock that stands where the test puts it."""

    def __init__(self, database: Database) -> None:
        self.at, self.done = AT, 0
        self.answers = Answers(database, clock=lambda: self.at)

    def do(self) -> Reported:
        """Do it once more."""
        self.done += 1
        return Reported(number=self.done)

    def ask(self, key: str | None = "k", text: str = "a", caller: str = "me") -> Reported:
        """Ask for it."""
        return self.answers.once(caller, key, ("things", Wish(text=text)), Reported, self.do)


@pytest.mark.system
def test_a_key_acts_once_in_every_process(database: Database) -> None:
    """A second process of the same store gives the first one's answer; other callers and keys, and no key, act anew."""
    one, other = Desk(database), Desk(database)

    assert [one.ask(), one.ask(), other.ask()] == [Reported(number=1)] * 3
    assert other.done == 0
    assert [one.ask(key="l"), one.ask(caller="you"), one.ask(None), one.ask(None)] == [
        Reported(number=number) for number in (2, 3, 4, 5)
    ]


def test_a_key_is_of_one_request(database: Database) -> None:
    """The same key with other words is refused, and nothing is done."""
    desk = Desk(database)
    desk.ask()

    with pytest.raises(Problem) as refused:
        desk.ask(text="b")
    assert (refused.value.status_code, desk.done) == (422, 1)


def test_a_key_is_free_again_after_an_hour(database: Database) -> None:
    """After its time the same key acts again, and the old answer is gone from the table."""
    desk = Desk(database)
    desk.ask()
    desk.at += KEPT_SECONDS + 1

    assert desk.ask(text="b") == Reported(number=2)
    with database.session() as session:
        assert session.scalar(select(func.count()).select_from(Row)) == 1


def test_a_failure_frees_the_key(database: Database) -> None:
    """A request that came to nothing may be sent again under its key."""
    desk = Desk(database)

    def fail() -> Reported:
        raise Problem("conflict", "not now")

    with pytest.raises(Problem):
        desk.answers.once("me", "k", ("things", Wish()), Reported, fail)
    assert desk.ask() == Reported(number=1)


def test_a_request_that_is_being_done_is_not_done_again(database: Database) -> None:
    """While a request is on its way the same key is a conflict; after a minute its process is taken for dead."""
    desk = Desk(database)

    def ask_again() -> Reported:
        with pytest.raises(Problem) as refused:
            desk.ask()
        assert refused.value.status_code == 409
        desk.at += DOING_SECONDS + 1
        assert desk.ask() == Reported(number=1)
        return Reported(number=7)

    assert desk.answers.once("me", "k", ("things", Wish()), Reported, ask_again) == Reported(number=7)


def test_only_what_may_be_kept_is_kept(database: Database) -> None:
    """The second answer, and the table, have what ``keep`` left of the first."""
    answers = Answers(database)

    def ask() -> Reported:
        return answers.once(
            "me", "k", ("x", Wish()), Reported, lambda: Reported(number=42), lambda _: Reported(number=0)
        )

    assert [ask(), ask()] == [Reported(number=42), Reported(number=0)]
    with database.session() as session:
        assert session.scalars(select(Row.body)).all() == ['{"number":0}']


def test_many_at_once_act_once(database: Database) -> None:
    """Of eight that ask at the same moment one acts; the others get its answer or have to ask again."""
    desk = Desk(database)
    reported: list[object] = []

    def ask() -> None:
        try:
            reported.append(desk.ask())
        except (Problem, IntegrityError, OperationalError) as error:
            reported.append(type(error))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert desk.done == 1
    assert len(reported) == 8
    assert set(map(str, reported)) <= {str(Reported(number=1)), str(Problem), str(IntegrityError)}


def test_a_restart_forgets_no_answer(tmp_path: Path) -> None:
    """A pin that was made before the service was started again is not made twice."""
    wish, key = {"since": 1.0, "until": 2.0, "reason": "kept"}, {"Idempotency-Key": "pin-1"}
    with served(tmp_path) as client:
        first = client.post("/v1/pins", json=wish, headers=key).json()
    with served(tmp_path) as client:
        again = client.post("/v1/pins", json=wish, headers=key)

        assert (again.status_code, again.json()) == (201, first)
        assert len(client.get("/v1/pins").json()["items"]) == 1
