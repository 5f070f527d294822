"""`faulthound remediations`, `holds`, `freeze`, `breaker`, `policy`: what they print, ask, change, and how they end."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from analyzers.remediation.messages import (
    CloseBreaker,
    Proposed,
    SetFreeze,
    Verified,
)
from analyzers.remediation.types import Policy, Remediation
from service.cli.remediations import _behind
from service.clock import now
from service.remediation.repository import RemediationRepository
from tests.support import command_line
from tests.support.desk import SECONDS, Desk, desk
from tests.support.incident_rows import JOB

__all__ = ["desk"]  # a fixture

REPOSITORY = Path(__file__).resolve().parents[3]
COMMAND = [sys.executable, "-c", "from service.cli import main; main()"]


@pytest.fixture(autouse=True)
def nothing_stands_still(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave neither hold nor freeze nor an open breaker to the next test, nor what nobody knows the end of."""
    yield
    if "desk" not in request.fixturenames:
        return
    desk: Desk = request.getfixturevalue("desk")
    book = RemediationRepository(desk.database, Policy).state(now())
    if book.freeze is not None:
        desk.happens(SetFreeze(freeze=None, by="test", reason="over"))
    if book.trip is not None:
        desk.happens(CloseBreaker(by="test", reason="over"))
    for one in book.remediations.values():
        if one.status == "verifying":
            desk.happens(Verified(id=one.id, outcome="cured", why="it does steps again"))
    for id in book.holds:
        assert desk.run("holds", "expire", id, "--yes").returncode == 0


def test_remediations_are_listed(desk: Desk) -> None:
    """A table for people with what each does to whom, the service's own rows for programs, and the service's filters."""
    first, second = desk.proposed(), desk.proposed("gpu-0003")

    table = desk.run("remediations", "list").stdout.splitlines()
    rows = desk.reported("remediations", "list", "--node", "gpu-0003", "--status", "proposed")

    assert [line.split()[0] for line in table[1:3]] == [second, first]
    assert f"proposed {JOB} evict gpu-0003 97 %" in " ".join(
        table[1].split()
    )  # columns are as wide as other tests' rows
    assert second in [row["id"] for row in rows]
    assert {node for row in rows for node in row["nodes"]} == {"gpu-0003"}
    assert desk.reported("remediations", "list", "--job", "nobody's") == []
    assert desk.run("remediations", "list", "--status", "thought-of").returncode == 2


def test_a_restart_by_a_verdict_that_names_nothing_is_not_called_sure() -> None:
    """An abstention has no probability: 0 % would say that it is surely wrong."""
    behind = {"incident": "inc-1", "verdict_version": 1, "symptom": "crash", "fault_class": "", "probability": 0.0}
    assert _behind(behind) == "inc-1, version 1 of its verdict: crash, names nothing"
    assert _behind({**behind, "fault_class": "stopped", "probability": 0.97}).endswith("crash, stopped, 97 % sure")


def test_a_remediation_is_shown(desk: Desk) -> None:
    """What it does with which effect, why, its incident, its course, and what keeps it from acting now."""
    id = desk.proposed(why="rank 3 \x1b[2Jnever entered")
    desk.run("holds", "add", "--node", "gpu-0002", "--for", "4h", "--reason", "its HBM is tested")

    shown = desk.run("remediations", "show", id).stdout

    assert shown.startswith(f"{id}: proposed\n  Drain gpu-0002 and restart {JOB} (attempt 1) on the other 3 nodes.\n")
    assert "why: rank 3 \\x1b[2Jnever entered" in shown
    assert f"inc-{id[4:]}, version 2 of its verdict: hang, stopped, 97 % sure" in shown
    assert "expected loss: 3.2 GPU hours" in shown
    assert re.search(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC  proposed by engine, propose", shown)
    assert "cannot act now: node gpu-0002 is held by" in shown
    assert desk.reported("remediations", "show", id)["id"] == id


def test_who_stopped_it_is_asked_before_it_is_approved(desk: Desk) -> None:
    """Where the proposal is shown, as JSON, and where it is approved."""
    first = "First: who stopped the process? A person, a debugger or a scheduler may have."
    id, other = desk.proposed(first=first), desk.proposed(node="gpu-0003")

    assert f"\n  {first}\n" in desk.run("remediations", "show", id).stdout
    assert desk.reported("remediations", "show", id)["first"] == first
    assert first in desk.run("remediations", "approve", id, "--dry-run").stderr
    assert first not in desk.run("remediations", "reject", id, "--reason", "ann did", "--dry-run").stderr
    assert "First:" not in desk.run("remediations", "show", other).stdout


def test_who_is_not_there_is_said(desk: Desk) -> None:
    """An id that nobody knows is refused, of a remediation and of a hold, and nobody is asked anything about it."""
    unknown = desk.run("remediations", "approve", "rem-ffffffffffff", "--yes")
    hold = desk.run("holds", "expire", "hold-ffffffffffff", "--yes")

    assert (unknown.returncode, "rem-ffffffffffff" in unknown.stderr) == (5, True)
    assert (hold.returncode, "faulthound holds list" in hold.stderr) == (2, True)
    assert command_line.faulthound("remediations", "list", "--service", "http://127.0.0.1:1").returncode == 4


def test_a_decision_is_made(desk: Desk) -> None:
    """Approve, reject and cancel come to the service with the reason, and what they lead to is said."""
    approved, rejected, cancelled = (
        desk.proposed(),
        desk.proposed("gpu-0003", job="b"),
        desk.proposed("gpu-0004", job="c"),
    )

    done = desk.run("remediations", "approve", approved, "--reason", "seen it", "--yes")
    reported = desk.reported("remediations", "reject", rejected, "--reason", "we test it", "--yes")
    desk.reported("remediations", "cancel", cancelled, "--reason", "it runs", "--yes")

    assert f"{approved} is approved: seen it; a scheduler may claim it" in done.stderr
    assert (reported["status"], reported["because"]) == ("rejected", "we test it")
    assert [desk.status(id) for id in (approved, rejected, cancelled)] == ["approved", "rejected", "cancelled"]
    again = desk.run("remediations", "approve", rejected, "--yes")
    assert (again.returncode, "is rejected (we test it)" in again.stderr) == (5, True)


def test_what_cannot_be_decided_is_not_asked_about(desk: Desk) -> None:
    """Without --yes too a decision that comes too late, or too early, is refused with the state that the remediation has."""
    ended, early = desk.proposed(), desk.proposed("gpu-0003", job="b")
    desk.reported("remediations", "cancel", ended, "--reason", "it runs", "--yes")

    refused = desk.run("remediations", "approve", ended), desk.run("remediations", "undo", early, "--reason", "no")

    assert [done.returncode for done in refused] == [5, 5]
    assert ["--yes" in done.stderr for done in refused] == [False, False]
    assert f"{ended} is cancelled (it runs)" in refused[0].stderr


@pytest.mark.parametrize("verb", ["approve", "reject", "cancel"])
def test_nobody_is_asked_without_a_terminal(desk: Desk, verb: str) -> None:
    """Without --yes and without a terminal a decision is refused with 5, its effect is named, and nothing changes."""
    id = desk.proposed()
    before = desk.changes()
    reason = () if verb == "approve" else ("--reason", "why not")

    done = desk.run("remediations", verb, id, *reason)

    assert done.returncode == 5
    assert "gpu-0002" in done.stderr
    assert "add --yes" in done.stderr
    assert (desk.status(id), desk.changes()) == ("proposed", before)


def on_terminal(
    desk: Desk, answer: str, *arguments: str, meanwhile: Callable[[], None] = lambda: None
) -> tuple[int, str]:
    """Run a command at a terminal, answer its question, and return its exit code and what stood on the terminal."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *arguments, "--service", desk.url],
        cwd=REPOSITORY, stdin=slave, stderr=slave, stdout=subprocess.DEVNULL, env={**os.environ, "TERM": "dumb"},
    )  # fmt: skip
    os.close(slave)
    try:
        shown = read_until(master, "[y/N]")
        meanwhile()
        os.write(master, answer.encode())
        code = process.wait(timeout=SECONDS)
        return code, shown + read_until(master, None)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def read_until(master: int, end: str | None) -> str:
    """Return what a terminal shows up to a text, or up to its end."""
    shown, deadline = "", time.monotonic() + SECONDS
    with suppress(OSError):  # the other side has closed
        while time.monotonic() < deadline and (end is None or end not in shown):
            if select.select([master], [], [], 0.2)[0]:
                shown += os.read(master, 4_096).decode()
    assert end is None or end in shown, shown
    return shown


@pytest.mark.system
def test_a_terminal_is_asked(desk: Desk) -> None:
    """The question names object and effect; no is no, with 5 and no change, and yes is yes."""
    id = desk.proposed()

    refused, shown = on_terminal(desk, "n\n", "remediations", "approve", id)
    between = desk.status(id)
    agreed, _ = on_terminal(desk, "y\n", "remediations", "approve", id)

    assert f"Drain gpu-0002 and restart {JOB} (attempt 1) on the other 3 nodes? [y/N]" in shown
    assert (refused, "nothing was changed" in shown, between) == (5, True, "proposed")
    assert (agreed, desk.status(id)) == (0, "approved")


def test_what_changed_while_somebody_thought_is_refused(desk: Desk) -> None:
    """A yes is for what was shown: when the plan is renewed by a newer verdict meanwhile, it is refused and says so."""
    id = desk.proposed()

    def renewed() -> None:
        found = RemediationRepository(desk.database, Policy).state(now(), id).remediations[id]
        plan = Remediation(**{name: getattr(found, name) for name in found.__struct_fields__} | {"verdict_version": 3})
        desk.happens(Proposed(incident=plan.incident, plan=plan))

    code, shown = on_terminal(desk, "y\n", "remediations", "approve", id, meanwhile=renewed)

    assert code == 5
    assert f"nothing was changed: look again with `faulthound remediations show {id}`" in shown.replace("\r\n", "")
    assert desk.status(id) == "proposed"


def test_what_was_done_is_undone(desk: Desk) -> None:
    """An undo names the node that comes back and is handed to a scheduler; what did nothing has nothing to undo."""
    done, idle = desk.proposed(), desk.proposed("gpu-0003", job="b")
    desk.run("remediations", "approve", done, "--yes")
    desk.executed(done)

    asked = desk.run("remediations", "undo", done, "--reason", "it is healthy", "--yes")
    refused = desk.run("remediations", "undo", idle, "--reason", "why not", "--yes")

    assert asked.returncode == 0, asked.stderr
    assert refused.returncode == 5
    shown = desk.run("remediations", "show", done).stdout
    assert "gpu-0002: drained, it was idle" in shown
    assert ": it is healthy" in shown
    assert desk.found(done)["task"] == "undo"


@pytest.mark.parametrize(
    "arguments",
    [
        ("remediations", "reject", "rem-0123456789ab"),
        ("remediations", "cancel", "rem-0123456789ab"),
        ("remediations", "undo", "rem-0123456789ab"),
        ("holds", "add", "--node", "gpu-0001", "--for", "1h"),
        ("freeze", "on"),
        ("freeze", "off"),
        ("breaker", "close"),
    ],
    ids=" ".join,
)
def test_what_stops_or_destroys_needs_a_reason(desk: Desk, arguments: tuple[str, ...]) -> None:
    """Without --reason it is bad usage, whatever else is said, and the service hears nothing."""
    before = desk.changes()

    assert desk.run(*arguments, "--yes").returncode == 2
    assert desk.changes() == before


@pytest.mark.system
def test_a_dry_run_changes_nothing(desk: Desk) -> None:
    """Every verb that changes something says under --dry-run what would be, asks nobody, and leaves no trace."""
    waiting, done = desk.proposed(job="b"), desk.proposed("gpu-0003")
    desk.run("remediations", "approve", done, "--yes")
    desk.executed(done)
    before = desk.changes()
    tried = [
        desk.run(*arguments, "--dry-run")
        for arguments in (
            ("remediations", "approve", waiting),
            ("remediations", "reject", waiting, "--reason", "x"),
            ("remediations", "cancel", waiting, "--reason", "x"),
            ("remediations", "undo", done, "--reason", "x"),
            ("holds", "add", "--node", "gpu-0002", "--for", "1h", "--reason", "x"),
            ("freeze", "on", "--reason", "x"),
        )
    ]

    assert [one.returncode for one in tried] == [0] * 6, [one.stderr for one in tried]
    assert all("would" in one.stderr for one in tried)
    assert f"{waiting} would be approved" in tried[0].stderr
    assert f"would be kept from acting: {waiting}, proposed: evict gpu-0002 of b" in tried[4].stderr
    assert (desk.status(waiting), desk.changes()) == ("proposed", before)
    assert desk.reported("holds", "list") == []
    assert desk.reported("freeze", "show")["frozen"] is False


@pytest.mark.system
def test_nodes_are_held(desk: Desk) -> None:
    """A hostlist is a hold a node, a job one of its own; they are listed, and ended by who agrees to that."""
    made = desk.reported("holds", "add", "--node", "gpu-[0002-0003]", "--for", "4h", "--reason", "HBM test")
    desk.run("holds", "add", "--job", JOB, "--for", "30m", "--reason", "a copy")

    listed = desk.run("holds", "list").stdout
    silent = desk.run("holds", "expire", made[0]["id"])
    ended = desk.run("holds", "expire", made[0]["id"], "--yes")

    assert [one["node"] for one in made] == ["gpu-0002", "gpu-0003"]
    assert 4 * 3_600 - 60 < made[0]["until"] - now() < 4 * 3_600 + 60
    assert len(listed.splitlines()) == 4
    assert f"job {JOB}" in listed
    assert (silent.returncode, "End the hold of" in silent.stderr, "HBM test" in silent.stderr) == (5, True, True)
    assert (ended.returncode, len(desk.reported("holds", "list"))) == (0, 2)


@pytest.mark.system
def test_a_misspelt_hold_is_noticed(desk: Desk) -> None:
    """A node that nobody has seen is held only after a yes, and is said to be unknown; what is known is not."""
    said = {}
    asked = desk.run("holds", "add", "--node", "gpu-9413", "--for", "1h", "--reason", "x")
    assert (asked.returncode, desk.reported("holds", "list")) == (5, [])
    assert "no agent has reported node gpu-9413" in asked.stderr
    assert "add --yes" in asked.stderr
    for option, name in (("--node", "gpu-9413"), ("--job", "lama"), ("--job", JOB)):
        done = desk.run("holds", "add", option, name, "--for", "1h", "--reason", "x", "--yes")
        assert done.returncode == 0, done.stderr
        said[name] = "no agent has reported" in done.stderr

    assert said == {"gpu-9413": True, "lama": True, JOB: False}


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (("--for", "1h"), "give --node or --job"),
        (("--for", "1h", "--node", "gpu-1", "--job", "x"), "give --node or --job"),
        (("--for", "an hour", "--node", "gpu-1"), "write 30m, 4h or 7d"),
        (("--for", "1h", "--node", "gpu-[1-"), "write gpu-0413"),
        (("--for", "1h", "--node", "gpu-[1-9999]"), "1 to 256 fit"),
    ],
)
def test_a_hold_that_is_none_never_leaves_the_machine(desk: Desk, arguments: tuple[str, ...], advice: str) -> None:
    """What no hold can be made of is bad usage, with what to write instead."""
    before = desk.changes()

    done = desk.run("holds", "add", "--reason", "x", *arguments)

    assert (done.returncode, advice in done.stderr) == (2, True), done.stderr
    assert desk.changes() == before


@pytest.mark.system
def test_the_emergency_brake(desk: Desk) -> None:
    """`freeze on` asks nobody; what is approved then says why it waits; `freeze off` names what it lets go and asks."""
    id = desk.proposed()

    on = desk.run("freeze", "on", "--reason", "power work")
    approved = desk.run("remediations", "approve", id, "--yes")
    again = desk.run("freeze", "on", "--reason", "twice")
    silent = desk.run("freeze", "off", "--reason", "over")
    off = desk.run("freeze", "off", "--reason", "over", "--yes")

    assert (on.returncode, "frozen by" in on.stderr, "power work" in on.stderr) == (0, True, True)
    assert "it cannot act now: everything is frozen by" in approved.stderr
    assert (again.returncode, "frozen already" in again.stderr) == (5, True)
    assert (silent.returncode, f"waits for it: {id}, approved: evict gpu-0002" in silent.stderr) == (5, True)
    assert (off.returncode, desk.run("freeze", "show").stdout) == (0, "not frozen\n")


def test_the_breaker_is_closed_by_a_person(desk: Desk) -> None:
    """The second node within the hour opens it under this policy; it is shown with its count, and closed by who agrees."""
    for node in ("gpu-0002", "gpu-0003"):
        if desk.reported("breaker", "show")["open"]:
            break  # a node that another test's remediation took out within the hour counts too
        id = desk.proposed(node)
        desk.run("remediations", "approve", id, "--yes")
        desk.executed(id)
        desk.happens(Verified(id=id, outcome="cured", why="it does steps again"))

    shown = desk.run("breaker", "show").stdout.splitlines()
    silent = desk.run("breaker", "close", "--reason", "seen")
    rehearsed = desk.run("breaker", "close", "--reason", "seen", "--dry-run")
    closed = desk.run("breaker", "close", "--reason", "a switch died", "--yes")

    assert shown[0].startswith("the breaker is open since ")
    assert "2 open the breaker" in shown[1]
    assert (silent.returncode, rehearsed.returncode, "would: Close the breaker" in rehearsed.stderr) == (5, 0, True)
    assert (closed.returncode, "the breaker is closed" in closed.stderr) == (0, True)
    assert desk.reported("breaker", "show")["open"] is False


def test_the_policy_in_force_is_shown(desk: Desk) -> None:
    """Each rule in order with what it fits, and of one that would act by itself what still locks it."""
    shown = desk.run("policy", "show").stdout

    automatic, rest = (
        next(line for line in shown.splitlines() if line.startswith(name)) for name in ("gone", "the rest")
    )
    assert "automatic  fault_class=process_gone  ≥ 99 %" in automatic
    assert "0 closed incidents were seen in shadow mode, 20 are needed" in automatic
    assert "everything" in rest
    assert "At most 100 nodes an hour" in shown
    assert [rule["name"] for rule in desk.reported("policy", "show")["rules"]] == ["gone", "the rest"]
