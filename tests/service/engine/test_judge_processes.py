"""Judgements in children: the same bytes as in this process, and whatever an analyzer does to its process, a verdict."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from analyzers import diagnosis
from analyzers.diagnosis import Registered
from analyzers.incidents import judgement
from analyzers.incidents.messages import Judge, Judged
from analyzers.knowledge import Knowledge
from analyzers.model.incident import Cut
from analyzers.model.verdict import to_json
from collectors.records import FlightRecorderDump, Record
from service.engine.judge_processes import JudgeFailure, JudgeProcesses
from tests.support.hand_made import call, calls, dump, group

KNOWLEDGE = Knowledge()
WAIT_SECONDS = 120.0
MEGABYTE = 1 << 20


def hung() -> tuple[Record, ...]:
    """Return the dumps of four ranks of which the last never entered the fifth all-reduce."""
    world = group("0", 0, 1, 2, 3, description="default_pg")
    waiting = [dump(rank, [*calls(1, 2, 3, 4), call(5, 0)], [world]) for rank in range(3)]
    dumps: list[FlightRecorderDump] = [*waiting, dump(3, calls(1, 2, 3, 4), [world])]
    return tuple(dumps)


def asked(incident: str = "inc-1", through: int = 4) -> Judge:
    """Return a judgement of that job."""
    return Judge(incident=incident, cut=Cut(after=0, through=through, at=100.0, looks=2), records=hung(), attempt=None)


def ended(judges: JudgeProcesses, count: int = 1) -> tuple[list[Judged], list[JudgeFailure]]:
    """Wait until so many judgements have ended; return them and what failed meanwhile."""
    done: list[Judged] = []
    failed: list[JudgeFailure] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(done) < count:
        assert time.monotonic() < deadline, f"{len(done)} of {count} judgements ended; failed: {failed}"
        for one in judges.turn():
            (done if isinstance(one, Judged) else failed).append(one)  # type: ignore[arg-type]
        time.sleep(0.01)
    return done, failed


def crash() -> None:
    """End this process as a bug in a library does."""
    faulthandler.disable()  # it would fill the test's output
    os.kill(os.getpid(), signal.SIGSEGV)


@pytest.fixture
def judges() -> Iterator[JudgeProcesses]:
    """Return judges that have two seconds for each judgement, and 512 MB."""
    judges = JudgeProcesses(KNOWLEDGE, 2.0, 512 * MEGABYTE)
    yield judges
    judges.close()


@pytest.fixture
def with_analyzer(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], Any]], None]:
    """Return a function that adds an analyzer, which only does something to its process."""

    def add(name: str, does: Callable[[], Any]) -> None:
        def analyze(*_: Any) -> Iterator[Any]:
            does()
            return iter(())

        monkeypatch.setitem(diagnosis.registry(), name, Registered(frozenset({"flight_recorder"}), lambda: analyze))

    return add


def test_a_child_judges_as_this_process_does(judges: JudgeProcesses) -> None:
    """The verdict that comes out of a child is, byte for byte, the one that a replay makes here."""
    judges.ask(asked())

    (judged,), failed = ended(judges)

    assert failed == []
    assert to_json(judged.verdict) == to_json(judgement.judge_cut(asked(), KNOWLEDGE).verdict)
    assert [one.ranks for one in judged.verdict.culprits] == [(3,)]
    assert judged.cut == asked().cut


@pytest.mark.system
@pytest.mark.parametrize(
    ("does", "why"),
    [
        (crash, "SIGSEGV"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL (out of memory?)"),
        (lambda: os._exit(3), "exit code 3"),
        (lambda: time.sleep(60), "had not ended after 2 s"),
    ],
    ids=["crashes", "is killed", "exits", "sleeps"],
)
def test_an_analyzer_that_ends_its_process_is_left_out(
    judges: JudgeProcesses, with_analyzer: Any, does: Callable[[], object], why: str
) -> None:
    """It is named as a failure and in the cut, the others' verdict stands, and a replay of that cut gives the same bytes."""
    with_analyzer("a_bad_one", does)
    judges.ask(asked())

    (judged,), failed = ended(judges)

    assert [(one.analyzer, why in one.why) for one in failed] == [("a_bad_one", True)]
    assert judged.cut.unfinished == ("a_bad_one",)
    assert [one.ranks for one in judged.verdict.culprits] == [(3,)]
    again = judgement.judge_cut(_recut(judged), KNOWLEDGE)
    assert to_json(again.verdict) == to_json(judged.verdict)
    assert any("a_bad_one" in one.what for one in judged.verdict.missing)


def _recut(judged: Judged) -> Judge:
    return Judge(incident=judged.incident, cut=judged.cut, records=hung(), attempt=None)


def test_an_analyzer_that_raises_is_told_of(judges: JudgeProcesses, with_analyzer: Any) -> None:
    """An exception costs the analyzer's own claims; the judgement needs no second try."""
    with_analyzer("a_bad_one", lambda: 1 // 0)
    judges.ask(asked())

    (judged,), failed = ended(judges)

    assert [(one.analyzer, "ZeroDivisionError" in one.why) for one in failed] == [("a_bad_one", True)]
    assert judged.cut.unfinished == ()
    assert [one.ranks for one in judged.verdict.culprits] == [(3,)]


def test_an_analyzer_that_eats_memory_is_stopped(judges: JudgeProcesses, with_analyzer: Any) -> None:
    """Two gigabytes are more than the 512 MB that a judgement may take: the analyzer fails, and the machine does not."""
    with_analyzer("a_bad_one", lambda: bytearray(2_048 * MEGABYTE))
    judges.ask(asked())

    (judged,), failed = ended(judges)

    assert [(one.analyzer, "MemoryError" in one.why) for one in failed] == [("a_bad_one", True)]
    assert [one.ranks for one in judged.verdict.culprits] == [(3,)]


def test_what_cannot_be_judged_at_all_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not even the window can be built, the verdict abstains, names nobody and says what failed."""
    monkeypatch.setattr(judgement, "infer", lambda _window: os._exit(9))
    judges = JudgeProcesses(KNOWLEDGE, 2.0, 512 * MEGABYTE)
    judges.ask(asked())

    (judged,), failed = ended(judges)

    assert judged.verdict.abstained
    assert judged.verdict.action.kind == "none"
    assert "exit code 9" in judged.verdict.missing[0].what
    assert [one.analyzer for one in failed] == ["", ""]


@pytest.mark.system
def test_two_run_at_a_time_and_the_newest_of_an_incident_counts(judges: JudgeProcesses, with_analyzer: Any) -> None:
    """Of five incidents all are judged, never more than two at once; a newer cut takes the place of one that waits."""
    with_analyzer("a_slow_one", lambda: time.sleep(0.2))
    for number in range(5):
        judges.ask(asked(f"inc-{number}"))
    judges.ask(asked("inc-4", through=9))
    running = len(judges.pipes)

    done, _failed = ended(judges, 5)

    assert running == 2
    assert {judged.incident: judged.cut.through for judged in done} == {
        "inc-0": 4, "inc-1": 4, "inc-2": 4, "inc-3": 4, "inc-4": 9,
    }  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_costs_no_judgement(
    judges: JudgeProcesses, with_analyzer: Any, number: signal.Signals
) -> None:
    """Ctrl-C at a terminal, or a unit that is stopped, reaches a judgement too: no analyzer is blamed for it."""
    with_analyzer("a_slow_one", lambda: os.kill(os.getpid(), number))
    judges.ask(asked())

    (judged,), failed = ended(judges)

    assert failed == []
    assert judged.cut.unfinished == ()


def test_closing_leaves_no_process(judges: JudgeProcesses, with_analyzer: Any) -> None:
    """Judges that are closed in the middle of a judgement have no child left, dead or alive."""
    with_analyzer("a_slow_one", lambda: time.sleep(60))
    before = set(psutil.Process().children())
    judges.ask(asked())
    time.sleep(0.2)

    judges.close()

    assert set(psutil.Process().children()) <= before


@pytest.mark.system
def test_a_child_dies_with_its_engine(repository: Path) -> None:
    """A judgement whose engine is killed is gone at once: it would hold the engine's connections open."""
    program = (
        "import time\n"
        "from analyzers.incidents import judgement\n"
        "from tests.service.engine.test_judge_processes import KNOWLEDGE, JudgeProcesses, asked\n"
        "judgement.infer = lambda _window: time.sleep(60)\n"
        "judges = JudgeProcesses(KNOWLEDGE, 60.0, 1 << 29)\n"
        "judges.ask(asked())\n"
        "print(judges._children[0].pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    engine = subprocess.Popen([sys.executable, "-c", program], cwd=repository, stdout=subprocess.PIPE, text=True)
    assert engine.stdout is not None
    child = psutil.Process(int(engine.stdout.readline()))
    time.sleep(0.3)
    assert child.is_running()

    engine.kill()
    engine.wait()

    psutil.wait_procs([child], timeout=60)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    engine.stdout.close()
