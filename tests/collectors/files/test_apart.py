"""Bytes of strangers are parsed in another process: one that hangs, dies or fills its memory costs one call."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from collectors.files import patience
from collectors.files.apart import Apart, ParsingFailed, ParsingLate, _Killer

pytestmark = pytest.mark.system


@pytest.fixture
def parsed_here() -> None:
    """Parse in a process, unlike the tests beside this one."""


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[Apart]:
    """The processes of one agent, which find the parsers of the tests."""
    monkeypatch.setenv("FAULTHOUND_TOKEN", "fh_secret")
    one = Apart()
    yield one
    one.close()


def children() -> list[psutil.Process]:
    """Return the processes that parse."""
    found = psutil.Process().children()
    return [one for one in found if any("pars" in part for part in one.cmdline())]


def test_one_process_answers_one_question_after_the_other(apart: Apart) -> None:
    """What a parser gives comes back, with what it refused, from one process that does not have the token."""
    first = apart.parse("inspector", b"{}\nnoise\n", 10)
    (child,) = children()
    with pytest.raises(ParsingFailed, match="a ring has a header"):
        apart.parse("ring", b"short", None, 0, 0)
    second = apart.parse("inspector", b"", 10)

    assert (first[1], second[1]) == ([["2 lines are no operation of NCCL Inspector", "damaged"]], [])
    assert [one.pid for one in children()] == [child.pid]
    assert b"fh_secret" not in Path(f"/proc/{child.pid}/environ").read_bytes()


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start processes that have the parser ``faults`` of the tests."""
    monkeypatch.setattr("collectors.files.apart.child_command", _with_faults)


def _with_faults(_module: str) -> list[str]:
    return [sys.executable, "-P", str(Path(__file__).parents[2] / "support/parsing_faults.py")]


@pytest.mark.usefixtures("faults")
def test_a_parser_that_hangs_costs_its_call_and_delays_no_other(apart: Apart) -> None:
    """A pattern that never ends is killed at its bound; another call meanwhile has a process of its own, which then stays."""
    hung = threading.Thread(target=_expect, args=(apart, "hang", r"not parsed within \d+ s"))
    hung.start()
    time.sleep(0.2)
    began_at = time.monotonic()
    assert apart.parse("faults", "ok", seconds=60.0) == "ok"
    assert hung.is_alive() or time.monotonic() - began_at > 2.0
    hung.join()

    assert apart.parse("faults", "ok") == "ok"
    assert len(children()) == 1


def _expect(apart: Apart, fault: str, reason: str) -> None:
    with pytest.raises(ParsingFailed, match=reason):
        apart.parse("faults", fault, seconds=3.0)


@pytest.mark.usefixtures("faults")
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("die", "ended with signal 11"),
        ("exit", "ended with exit code 7"),
        ("memory", "more memory than it may"),
        ("raise", "ZeroDivisionError: on purpose"),
        ("flood", "more than 33,554,432 bytes"),
    ],
)
def test_a_parser_that_fails_says_how(apart: Apart, fault: str, reason: str) -> None:
    """A crash, an exit, a full memory, an exception and an answer without end each cost the call, and the next one works."""
    with pytest.raises(ParsingFailed, match=reason):
        apart.parse("faults", fault)

    assert apart.parse("faults", "ok") == "ok"


@pytest.mark.usefixtures("faults")
def test_a_process_that_has_grown_is_replaced(apart: Apart) -> None:
    """A call that needed much memory is answered, and its process gives the memory back by ending."""
    assert apart.parse("faults", "grow") == "grown"
    before = [one.pid for one in children()]
    assert apart.parse("faults", "ok") == "ok"

    assert [one.pid for one in children()] != before


def test_many_threads_share_few_processes(apart: Apart) -> None:
    """Calls of many threads at once are all answered by at most four processes, of which one is left."""
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(apart.parse("inspector", b"x\n" * 2000, 10)[1][0][0]))
        for _ in range(24)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == ["2,000 lines are no operation of NCCL Inspector"] * 24
    assert len(children()) == 1


@pytest.mark.usefixtures("faults")
def test_a_source_that_hangs_again_and_again_is_left_alone(apart: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its second kill in a row a source costs no process for a while; another one, and it after its time, are parsed."""
    monkeypatch.setattr("collectors.files.apart.FIRST_PAUSE_SECONDS", 1.0)
    for _ in range(2):
        with pytest.raises(ParsingFailed, match="signal 11"):
            apart.parse("faults", "die", source="ras :1")

    with pytest.raises(ParsingFailed, match="killed 2 times in a row"):
        apart.parse("faults", "ok", source="ras :1")
    assert apart.parse("faults", "ok", source="ras :2") == "ok"
    time.sleep(1.0)
    assert apart.parse("faults", "ok", source="ras :1") == "ok"
    with pytest.raises(ParsingFailed, match="signal 11"):
        apart.parse("faults", "die", source="ras :1")
    assert apart.parse("faults", "ok", source="ras :1") == "ok"
    assert (apart.kills("faults"), apart.kills("ras")) == (3, 0)


@pytest.mark.usefixtures("faults")
def test_a_busy_machine_is_no_fault_of_a_source(apart: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is not given its turn may take longer; past that its source is tried again at once, and no line is lost."""
    monkeypatch.setattr(patience, "turn", lambda _pid: ("R", 0.1))

    apart.parse("faults", "ok")
    assert apart.parse("faults", "slow", seconds=0.3, source="train.log") == "ok"
    for _ in range(3):
        with pytest.raises(ParsingLate, match=r"not parsed within 0\.6 s: the node is busy, its process got 0\.0 s"):
            apart.parse("faults", "sleep", seconds=0.1, source="train.log")
    assert apart.parse("faults", "ok", source="train.log") == "ok"
    assert apart.kills("faults") == 3


@pytest.mark.usefixtures("faults")
def test_a_parser_that_sleeps_has_hung(apart: Apart) -> None:
    """Only a process that would run is waited for: one that waits for nothing that is sent is killed at its bound."""
    apart.parse("faults", "ok")

    with pytest.raises(ParsingFailed, match=r"not parsed within 0\.3 s") as failed:
        apart.parse("faults", "sleep", seconds=0.3)
    assert not isinstance(failed.value, ParsingLate)


def test_pauses_grow_to_minutes() -> None:
    """Each kill in a row doubles the pause, up to ten minutes."""
    killer, pauses = _Killer(), []
    for _ in range(40):
        killer.killed(0.0)
        pauses.append(killer.paused_until)

    assert pauses[:7] == [0.0, 30.0, 60.0, 120.0, 240.0, 480.0, 600.0]
    assert set(pauses[7:]) == {600.0}
