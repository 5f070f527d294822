"""Whatever a collector does, it does to itself: the others lose no tick, and what it did is counted and reported."""

from __future__ import annotations

import itertools
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collectors.agent.packing import Sealed, seal
from collectors.agent.run_output import Stamp
from collectors.agent.runner import Runner, RunRequest
from collectors.agent.segment import Entry
from collectors.live import Collector, Cursor, NothingToCollect, Readings, Request, Run
from collectors.live.sources.host import Host, Roots
from collectors.records import DeviceState, KernelEvent, LogEvent, Samples, Steps, block

EVERY_SECONDS = 0.2


class Kept:
    """Keeps entries in the order of their coming."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.urgent: list[bool] = []

    def add(self, entry: Entry, *, urgent: bool = False) -> None:
        self.entries.append(entry)
        self.urgent.append(urgent)

    def sealed(self) -> Sealed:
        return seal(list(self.entries), "gpu-0001")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A node with a boot id of its own."""
    boot_id = tmp_path / "proc/sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text("boot-1\n")
    return Host("gpu-0001", Roots(proc=tmp_path / "proc"))


def runner_of(
    function: Callable[[Request | None], Any], host: Host, kept: Kept, *, limit_seconds: float = 0.5
) -> Runner:
    """A runner of a collector that calls this function."""

    def make(_host: Host) -> Run:
        return function

    collector = Collector(function.__name__.strip("_"), "a test", EVERY_SECONDS, limit_seconds, make)
    return Runner(collector, make, host, Stamp(host), kept, EVERY_SECONDS)


def healthy(_asked: Request | None) -> Iterator[Readings]:
    """Yields one reading."""
    yield Readings("healthy", [""], ["beats_total"], [[1]], "<i8")


def hang(_asked: Request | None) -> Iterator[Readings]:
    """Yields and never returns."""
    yield Readings("before_the_hang", [""], ["x"], [[1.0]])
    threading.Event().wait()


def raising(_asked: Request | None) -> Iterator[Readings]:
    """Yields and raises."""
    yield Readings("before_the_failure", [""], ["x"], [[1.0]])
    raise RuntimeError("the driver says no")


def leaving(_asked: Request | None) -> Iterator[Readings]:
    """Tries to end the process."""
    raise SystemExit(3)


def greedy(_asked: Request | None) -> Iterator[Readings]:
    """Runs out of memory."""
    raise MemoryError


def endless(_asked: Request | None) -> Iterator[LogEvent]:
    """Yields without end."""
    while True:
        yield LogEvent(event="x", text="y" * 100_000)


def busy(_asked: Request | None) -> Iterator[LogEvent]:
    """Keeps the interpreter to itself."""
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        pass
    return iter(())


def garbage(_asked: Request | None) -> list[Any]:
    """Yields what is no record."""
    return ["a text is no record"]


def unencodable(_asked: Request | None) -> list[LogEvent]:
    """Yields a record that no block can hold."""
    return [LogEvent(event="x", text=object())]  # type: ignore[arg-type]


def misshapen(_asked: Request | None) -> list[Readings]:
    """Yields readings of another shape."""
    return [Readings("x", ["a"], ["b"], [[1.0, 2.0]])]


def strangers(_asked: Request | None) -> list[LogEvent]:
    """Speaks for another node."""
    return [LogEvent(event="x", node="gpu-0002")]


def nothing(_asked: Request | None) -> list[LogEvent]:
    """Has nothing to collect."""
    raise NothingToCollect("no such device")


BAD = (hang, raising, leaving, greedy, endless, busy, garbage, unencodable, misshapen, strangers)


@pytest.mark.system
def test_a_healthy_collector_loses_no_tick(host: Host) -> None:
    """Beside collectors that hang, raise, leave, flood, spin and yield garbage, a healthy one runs at each of its ticks."""
    good, bad = Kept(), Kept()
    well = runner_of(healthy, host, good)
    runners = [well, *(runner_of(function, host, bad) for function in BAD)]
    for runner in runners:
        runner.start()
    time.sleep(4.1)
    for runner in runners:
        runner.check_limit()
        runner.stop()

    (samples,) = _samples(good, "healthy")
    ticks = array("d", samples.ticks)
    assert len(ticks) >= 19  # 20 intervals; the first is waited for
    assert max(after - before for before, after in itertools.pairwise(ticks)) < 2.5 * EVERY_SECONDS
    reports = {runner.collector.name: runner.report() for runner in runners}
    assert reports["healthy"].failures == reports["healthy"].overran == 0
    assert reports["hang"].overran == 1
    assert "still going after" in reports["hang"].error
    assert reports["endless"].overran + reports["endless"].failures >= 1
    for name, word in (
        ("raising", "the driver says no"),
        ("leaving", "SystemExit"),
        ("greedy", "MemoryError"),
        ("garbage", "yielded a str"),
        ("unencodable", "cannot be encoded"),
        ("misshapen", "1 devices × 1 metrics"),
        ("strangers", "gpu-0002"),
    ):
        assert reports[name].failures == reports[name].runs > 5, name
        assert word in reports[name].error


def _samples(kept: Kept, scope: str) -> list[Samples]:
    return [one for one in block.decode(kept.sealed().data) if isinstance(one, Samples) and one.scope == scope]


def test_what_came_before_a_failure_or_a_hang_is_kept(host: Host) -> None:
    """A run that raises hands over what it had yielded, and one that hangs does so when it is looked at past its bound."""
    kept = Kept()
    runner_of(raising, host, kept).run_once(None)
    hanging = runner_of(hang, host, kept, limit_seconds=0.1)
    hanging.start()
    deadline = time.monotonic() + 60
    while not _scopes(kept) >= {"before_the_hang"} and time.monotonic() < deadline:
        time.sleep(0.05)
        hanging.check_limit()

    assert _scopes(kept) == {"before_the_failure", "before_the_hang"}


def _scopes(kept: Kept) -> set[str]:
    return {tick.scope for entry in kept.entries for tick in entry.ticks}


def test_a_lasting_overrun_is_reported_in_every_report(host: Host) -> None:
    """While a run hangs each report says overran, how long it has been going, and that nothing else ran."""
    runner = runner_of(hang, host, Kept(), limit_seconds=0.05)
    runner.start()
    time.sleep(0.4)
    runner.check_limit()
    runner.check_limit()

    first, second = runner.report(), runner.report()

    assert (first.overran, first.runs, second.overran, second.runs) == (1, 0, 1, 0)
    assert runner.total["overran"] == 1
    assert second.longest_seconds > 0.2


def test_a_run_ends_at_its_bound(host: Host) -> None:
    """A collector that yields without end is stopped at its bound; what it yielded until then is kept."""
    kept = Kept()

    def slowly(_asked: Request | None) -> Iterator[LogEvent]:
        while True:
            yield LogEvent(event="x")
            time.sleep(0.01)

    outcome = runner_of(slowly, host, kept, limit_seconds=0.2).run_once(None)

    assert outcome.kind == "overran"
    assert 0 < outcome.records < 30
    assert kept.sealed().records == outcome.records


def test_cursors_go_with_the_records_before_them(host: Host) -> None:
    """Each Cursor closes an entry with exactly the records that it covers, and the host gives the newest back."""
    kept = Kept()

    def steps(_asked: Request | None) -> Iterator[LogEvent | Cursor]:
        for number in range(host.cursor("steps") or 0, 4):
            yield LogEvent(event="x", sequence=number)
            if number % 2:
                yield Cursor(number + 1)
        raise RuntimeError("after the last cursor")

    runner_of(steps, host, kept).run_once(None)

    assert [(len(entry.records), entry.cursors) for entry in kept.entries] == [(2, {"steps": 2}), (2, {"steps": 4})]
    assert host.cursor("steps") == 4


def test_records_are_stamped_with_what_only_the_agent_knows(host: Host) -> None:
    """Node, boot and times are filled where they are missing; a time of the record's own is never given a made-up twin."""
    stamp, now = Stamp(host), time.time()

    bare = stamp.record(LogEvent(event="x"))
    timed = stamp.record(KernelEvent(event="xid", at=1_000_000.0))
    since_boot = stamp.record(KernelEvent(event="xid", monotonic_at=host.clock.monotonic() - 60))

    assert (bare.node, bare.boot_id) == ("gpu-0001", "boot-1")
    assert bare.at == pytest.approx(now, abs=5)
    assert bare.monotonic_at == pytest.approx(host.clock.monotonic(), abs=5)
    assert (timed.at, timed.monotonic_at, timed.boot_id) == (1_000_000.0, None, None)
    assert since_boot.at == pytest.approx(now - 60, abs=5)
    assert since_boot.boot_id == "boot-1"


def test_events_and_answers_are_urgent(host: Host) -> None:
    """An event of the kernel or of a log, a device's change of state and whatever was asked for is urgent; steps are not."""
    kept = Kept()
    runner_of(lambda asked: [KernelEvent(event="xid")], host, kept).run_once(None)
    runner_of(lambda asked: [LogEvent(event="exception")], host, kept).run_once(None)
    runner_of(lambda asked: [DeviceState(device="GPU-1", state="lost")], host, kept).run_once(None)
    runner_of(lambda asked: [Steps(step=7)], host, kept).run_once(Request("read"))
    runner_of(lambda asked: [Steps(step=7)], host, kept).run_once(None)

    assert kept.urgent == [True, True, True, True, False]


def test_a_question_runs_at_once(host: Host) -> None:
    """A requested run does not wait for the interval, and its outcome comes back."""
    kept, asked, outcomes = Kept(), [], []
    answered = threading.Event()

    def stacks(question: Request | None) -> list[LogEvent]:
        asked.append(question)
        return [LogEvent(event="x")]

    runner = runner_of(stacks, host, kept)
    runner.every_seconds = 3600.0
    runner.start()
    runner.ask(
        RunRequest(Request("stacks", {"ranks": [3]}), lambda outcome: (outcomes.append(outcome), answered.set()))
    )

    assert answered.wait(60)
    runner.stop()
    assert asked == [Request("stacks", {"ranks": [3]})]
    assert (outcomes[0].kind, outcomes[0].records) == ("done", 1)


@pytest.mark.system
def test_a_faster_rate_ends_by_itself(host: Host) -> None:
    """A collector that is asked to run faster does so for the time that was asked for, then returns to its interval."""
    runs = []
    runner = runner_of(lambda asked: runs.append(time.monotonic()), host, Kept())
    runner.every_seconds = 3600.0
    runner.start()
    runner.run_every(0.05, 0.5)
    time.sleep(1.2)
    runner.stop()

    assert 5 <= len(runs) <= 12
    assert runs[-1] - runs[0] < 0.7


def test_nothing_to_collect_is_quiet_and_counted(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing to collect is reported as coverage and never logged; a failure is logged once as long as it stays the same."""
    quiet, loud = runner_of(nothing, host, Kept()), runner_of(raising, host, Kept())
    for _ in range(3):
        quiet.run_once(None)
        loud.run_once(None)
    report = quiet.report()

    assert (report.runs, report.nothing, report.failures, report.error) == (3, 3, 0, "no such device")
    assert [record.getMessage().split()[0] for record in caplog.records] == ["collector_failed"]


def test_a_collector_that_cannot_be_made_is_tried_again(host: Host) -> None:
    """A failure in the making counts as a failed run, and the next run makes it anew."""
    tries = []

    def make(_host: Host) -> Run:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("no library yet")
        return healthy

    collector = Collector("late", "a test", 1.0, 1.0, make)
    runner = Runner(collector, make, host, Stamp(host), Kept(), 1.0)

    assert [runner.run_once(None).kind for _ in range(3)] == ["failed", "done", "done"]
    assert len(tries) == 2
