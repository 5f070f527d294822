"""Tokens and commands: who may say what, and what each node is asked once."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest
from sqlalchemy import select, text

from service.store import audit_log, tokens
from service.store.commands import RESULT_SECONDS, Commands
from service.store.database import Database
from service.store.models import AuditEvent, Command
from service.store.tokens import TokenRefused, Tokens


@dataclass
class Clock:
    """A clock that the test moves."""

    at: float = 1_000.0

    def __call__(self) -> float:
        return self.at


def test_a_secret_is_shown_once(database: Database) -> None:
    """A token is fh_ and 43 characters, and nothing in the database holds it: only its hash."""
    token, secret = Tokens(database).make("ops", ["read", "ingest"], node="gpu-0001", by="local")

    with database.session() as session:
        row = str(session.execute(text("SELECT * FROM tokens")).one())
        (event,) = session.scalars(select(AuditEvent)).all()

    assert (secret[:3], len(secret)) == ("fh_", 46)
    assert secret[3:] not in row
    assert secret[3:] not in str(event.details)
    assert token.hash in row
    assert (event.kind, event.actor, event.subject) == ("token_made", "local", token.id)


def test_a_token_says_who_holds_it(database: Database) -> None:
    """Checking a secret gives its name, scopes and node, whichever process made it."""
    token, secret = Tokens(database).make("agent", ["ingest"], node="gpu-0001")

    bearer = Tokens(database).check(secret)

    assert (bearer.id, bearer.name, bearer.scopes, bearer.node) == (
        token.id,
        "agent",
        frozenset({"ingest"}),
        "gpu-0001",
    )
    assert bearer.actor == f"agent ({token.id})"


@pytest.mark.parametrize("secret", ["", "fh_", "fh_" + "A" * 43, "\udc80\x00", "x" * 100_000])
def test_an_unknown_token_is_refused(database: Database, secret: str) -> None:
    """What is no token of this store is refused, whatever it is made of."""
    Tokens(database).make("ops", ["read"])

    with pytest.raises(TokenRefused, match="unknown") as refused:
        Tokens(database).check(secret)

    assert (refused.value.reason, refused.value.actor) == ("unknown", "")


def test_a_token_ends(database: Database) -> None:
    """A revoked token is refused at once in this process; an expired one from its instant on; both name their holder."""
    clock = Clock()
    mine = Tokens(database, clock)
    revoked, secret = mine.make("gone", ["read"])
    expiring, expiring_secret = mine.make("guest", ["read"], expires_at=1_010.0)
    mine.check(secret)
    mine.check(expiring_secret)

    assert mine.revoke(revoked.id)
    assert not mine.revoke(revoked.id)
    assert not mine.revoke("no such token")
    clock.at = 1_010.0

    with pytest.raises(TokenRefused) as first:
        mine.check(secret)
    with pytest.raises(TokenRefused) as second:
        mine.check(expiring_secret)
    assert (first.value.reason, first.value.actor) == ("revoked", f"gone ({revoked.id})")
    assert (second.value.reason, second.value.actor) == ("expired", f"guest ({expiring.id})")


def test_another_process_s_revocation_is_honoured(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that was just checked is remembered for no longer than CACHE_SECONDS, which is at most five."""
    elapsed = Clock(0.0)
    monkeypatch.setattr("service.store.tokens.time.monotonic", elapsed)
    mine, others = Tokens(database), Tokens(database)
    token, secret = mine.make("agent", ["ingest"])
    mine.check(secret)
    others.revoke(token.id)

    mine.check(secret)
    elapsed.at = tokens.CACHE_SECONDS + 0.01

    assert tokens.CACHE_SECONDS <= 5.0
    with pytest.raises(TokenRefused, match="revoked"):
        mine.check(secret)


def test_a_guesser_fills_no_memory(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of tokens is bounded, and a good token is still found after a flood of bad ones."""
    monkeypatch.setattr(tokens, "CACHE_TOKENS", 50)
    mine = Tokens(database)
    _, secret = mine.make("agent", ["ingest"])

    for number in range(200):
        with pytest.raises(TokenRefused):
            mine.check(f"fh_{number}")

    assert len(mine._seen) <= 50
    assert mine.check(secret).name == "agent"


def test_when_a_token_was_last_used(database: Database) -> None:
    """The last use is written by the upkeep, goes forward only, and unused tokens keep none."""
    clock = Clock()
    mine = Tokens(database, clock)
    _, secret = mine.make("used", ["read"])
    mine.make("idle", ["read"])
    mine.check(secret)
    clock.at = 1_030.0
    mine.check(secret)
    mine.write_used()
    clock.at = 1_010.0
    mine.check(secret)
    mine.write_used()
    mine.write_used()

    assert {token.name: token.last_used_at for token in mine.all()} == {"used": 1_030.0, "idle": None}


def test_whether_there_is_a_token(database: Database) -> None:
    """A store counts as closed once a token is valid now: ended ones do not count, nor others' scopes."""
    clock = Clock()
    mine = Tokens(database, clock)
    assert not mine.any()
    mine.make("ops", ["read"], expires_at=1_100.0)

    assert mine.any()
    assert not mine.any("admin")
    clock.at = 1_100.0
    assert not mine.any()
    mine.make("admin", ["admin"])
    assert mine.any("admin")


def test_events_tell_the_newest_first(database: Database) -> None:
    """The audit log is read back newest first, a page at a time, and by kind; hostile texts are cut to fit."""
    with database.transaction() as session:
        for number in range(10):
            audit_log.record(
                session, float(number), f"kind_{number % 2}", "a\x00b" * 200, "s" * 900, {"text": "t" * 9_000}
            )

    with database.session() as session:
        first = audit_log.newest(session, 4)
        second = audit_log.newest(session, 4, before=first[-1].sequence)
        odd = audit_log.newest(session, 100, kind="kind_1")

    assert [event.at for event in (*first, *second)] == [9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0]
    assert len(odd) == 5
    assert len(first[0].details["text"]) == audit_log.LONGEST_DETAIL


def test_a_command_is_handed_out_once(database: Database) -> None:
    """Of many that ask at the same time for one node's commands, exactly one gets each."""
    mine = Commands(database)
    mine.ask([("gpu-0001", {"native": True}), ("gpu-0002", {})], "stacks", "ops", 60.0)
    taken: list[Command] = []

    def take() -> None:
        taken.extend(Commands(database).take("gpu-0001"))

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [(one.node, one.verb, one.arguments) for one in taken] == [("gpu-0001", "stacks", {"native": True})]
    assert mine.waiting() == {"gpu-0002"}


def test_commands_come_in_the_order_they_were_asked(database: Database) -> None:
    """A node gets its commands oldest first."""
    clock = Clock()
    mine = Commands(database, clock)
    for verb in ("stacks", "recorders", "stacks"):
        mine.ask([("gpu-0001", {})], verb, "ops", 60.0)
        clock.at += 1.0

    assert [one.asked_at for one in mine.take("gpu-0001")] == [1_000.0, 1_001.0, 1_002.0]


def test_only_the_closed_set_of_verbs_is_asked(database: Database) -> None:
    """A verb that no agent knows is refused by name, and nothing is stored."""
    with pytest.raises(ValueError, match=r"'reboot' is no command.*stacks"):
        Commands(database).ask([("gpu-0001", {})], "reboot", "ops", 60.0)

    assert Commands(database).waiting() == set()


def test_a_command_expires(database: Database) -> None:
    """One that nobody took ends at its expiry; one that was taken has RESULT_SECONDS more; a late result still counts."""
    clock = Clock()
    mine = Commands(database, clock)
    (untaken,) = mine.ask([("gpu-0001", {})], "stacks", "ops", 60.0)
    (taken,) = mine.ask([("gpu-0002", {})], "stacks", "ops", 60.0)
    mine.take("gpu-0002")
    outcomes = []
    for at in (1_059.0, 1_060.0, 1_060.0 + RESULT_SECONDS):
        clock.at = at
        mine.expire()
        outcomes.append([one.outcome for one in mine.find([untaken.id, taken.id])])
    assert mine.take("gpu-0001") == []
    with database.transaction() as session:
        mine.finish(session, "gpu-0002", taken.id, "done", "8 stacks", clock.at)
        mine.finish(session, "gpu-0002", taken.id, "failed", "again", clock.at + 1)

    assert outcomes == [[None, None], ["expired", None], ["expired", "expired"]]
    found = mine.get(taken.id)
    assert found is not None
    assert (found.outcome, found.text) == ("done", "8 stacks")
    assert mine.get("nothing") is None
