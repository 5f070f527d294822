"""Where ranks spend their time, live: real py-spy on real ranks, as often as is paid for; and what it prints, read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.files import programs
from collectors.files.parsers.profile import MOST_STACKS, parse
from collectors.live import NothingToCollect, Request
from collectors.live.profile import RANK_EVERY_SECONDS, Profiles
from collectors.live.stacks import Stacks
from collectors.records import Profile, Unread, block
from tests.collectors.live.test_live_stacks import Ranks, needs_pyspy, needs_root, script
from tests.support.process_tree import Clock

PROGRAM = """
import time

def reads():
    time.sleep(0.03)

def waits():
    time.sleep(0.01)

print(flush=True)
while True:
    reads()
    waits()
"""
LINES = """\
thread (7): MainThread;<module> (/job/train.py:1);step (/job/train.py:40);all_reduce (/lib/torch/distributed_c10d.py:2810) 30
thread (8): pool;Thread._bootstrap (/usr/lib/python3.11/threading.py:988) 90
thread (7): MainThread;<module> (/job/train.py:1);a;b (odd name) (/job/x (1).py:3) 12
thread (7): MainThread;<module> (/job/train.py:1) x
"""


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    """Real ranks that end with the test."""
    made = Ranks()
    yield made
    made.end()


def read(data: str, pid: int = 7) -> Profile:
    """Return what is read of py-spy's output."""
    (found,) = block.decode(parse(data.encode(), "profile/7", pid))
    assert isinstance(found, Profile)
    return found


def test_the_main_thread_s_stacks_are_read_innermost_first() -> None:
    """Its frames have function, file and line; threads beside it and a line without a count are left out."""
    found = read(LINES)

    assert (found.samples, found.pid) == (42, 7)
    frames = found.stacks[0].frames
    assert [(one.function, one.file, one.line) for one in frames[:2]] == [
        ("all_reduce", "/lib/torch/distributed_c10d.py", 2810), ("step", "/job/train.py", 40)
    ]  # fmt: skip
    assert found.stacks[1].samples == 12


def test_in_another_namespace_the_name_decides() -> None:
    """Where no thread has the process's number, it is the one that Python names so; another thread of that name is not."""
    assert read(LINES, pid=99).samples == 42
    assert read(LINES + "thread (9): MainThread;<module> (/job/other.py:1) 70\n").samples == 42
    assert read("thread (7);<module> (/job/train.py:1) 5\n").samples == 5
    assert read("").samples == 0


def test_rare_stacks_are_counted_and_not_listed() -> None:
    """All samples count, and the stacks that are listed are the most frequent."""
    many = "".join(f"thread (7): MainThread;f{n} (/job/train.py:{n}) {n}\n" for n in range(1, 100))

    found = read(many)

    assert found.samples == sum(range(1, 100))
    assert [one.samples for one in found.stacks] == list(range(99, 99 - MOST_STACKS, -1))


@pytest.mark.system
@needs_pyspy
@needs_root
def test_when_asked_each_rank_gives_the_shares_of_its_time(ranks: Ranks) -> None:
    """A rank that is three quarters of its time in one function is found there in most samples."""
    first = ranks.start(0, program=PROGRAM)
    ranks.start(1, program=PROGRAM)

    found = list(Profiles(ranks.host())(Request("profile", {"job": ranks.job})))

    assert [type(one) for one in found] == [Profile, Profile]
    one = found[0]
    assert isinstance(one, Profile)
    assert (one.rank, one.pid, one.job, one.seconds) == (0, first.pid, ranks.job, 4.0)
    assert one.samples > 20
    assert one.stacks[0].frames[0].function == "reads"
    assert one.samples / 2 < one.stacks[0].samples <= one.samples
    with pytest.raises(NothingToCollect):
        Profiles(ranks.host())(Request("profile", {"job": "other"}))


@pytest.mark.system
def test_looks_are_earned_and_the_longest_waiting_comes_first(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profiler that takes 0.4 s of a processor runs as often as 0.5 % of a core pay for, on each of three ranks in turn."""
    pids = {ranks.start(rank).pid: rank for rank in range(3)}
    looked: list[int] = []

    def costly(command: list[str], _seconds: float) -> programs.Ran:
        looked.append(pids[int(command[-1])])
        return programs.Ran(output=b"", error="", code=1, cpu_seconds=0.4)

    monkeypatch.setattr("collectors.live.profile.programs.run", costly)
    host = ranks.host()
    collect = Profiles(host)
    assert isinstance(host.clock, Clock)
    for _ in range(121):
        list(collect(None))
        host.clock.seconds += 15.0

    assert len(looked) == pytest.approx(120 * 15 * 0.005 / 0.4, abs=3)
    assert all(abs(looked.count(rank) - len(looked) / 3) <= 1 for rank in range(3))


@pytest.mark.system
def test_a_young_rank_is_left_alone_and_one_without_a_stack_is_reported(tmp_path: Path, ranks: Ranks) -> None:
    """In its first minutes nothing reads it; a profiler that fails says why, for the rank that it was to read."""
    ranks.start(4)
    host = ranks.host(program=script(tmp_path / "py-spy", "echo no python here >&2; exit 1"))
    collect = Profiles(host)
    assert isinstance(host.clock, Clock)

    assert list(collect(None)) == []
    host.clock.seconds += RANK_EVERY_SECONDS - 1.0
    assert list(collect(None)) == []
    host.clock.seconds += 2.0
    (found,) = collect(None)
    assert isinstance(found, Unread)
    assert (found.rank, "no python here" in found.reason) == (4, True)


@pytest.mark.system
def test_unasked_one_profiler_runs_at_a_time(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a rank is sampled its stack is not dumped unasked, which would take as much memory again; a command is obeyed."""
    ranks.start(0)
    host, ran = ranks.host(), list[str]()
    stacks, collect = Stacks(host), Profiles(host)
    assert isinstance(host.clock, Clock)

    def busy(command: list[str], _seconds: float) -> programs.Ran:
        ran.append(command[1])
        if command[1] == "record" and len(ran) == 1:
            list(stacks(None))
            assert ran == ["record"]
            list(stacks(Request("stacks", {"job": ranks.job})))
            ran.append("answered")
        return programs.Ran(output=b"", error="none", code=1, cpu_seconds=0.0)

    monkeypatch.setattr(programs, "run", busy)
    list(stacks(None))
    list(collect(None))
    host.clock.seconds += RANK_EVERY_SECONDS + 1.0
    list(collect(None))
    list(stacks(None))

    answered = ran.index("answered")
    assert set(ran[1:answered]) == {"dump"}
    assert ran[answered + 1 :] == ["dump"]
