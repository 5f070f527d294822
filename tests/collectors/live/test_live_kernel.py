"""The kernel's log is followed live: each event once, across restarts and boots, and a flood is bounded and reported."""

from __future__ import annotations

import json
import os
import stat
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest

from collectors.files.apart import ParsingLate
from collectors.live import Cursor, NothingToCollect, Readings, Yielded, kernel
from collectors.live.kernel import METRICS, Kernel
from collectors.live.sources.host import Host, Roots
from collectors.records import KernelEvent, Unread
from tests.support.bounds import in_time

BOOT = "11111111-2222-3333-4444-555555555555"
XID = "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
HUNG = "INFO: task python3:4242 blocked for more than 120 seconds."


@dataclass
class Clock:
    """Clocks that stand where they are put."""

    wall: float = 1_800_000_000.0
    boot: float = 1000.0

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.boot

    def pass_seconds(self, seconds: float) -> None:
        self.wall += seconds
        self.boot += seconds


class Log:
    """A /dev/kmsg that is a file: what is appended to it is what is read next."""

    def __init__(self, root: Path) -> None:
        self.path = root / "dev/kmsg"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch()
        self.next = 0

    def say(self, *texts: str, at: float = 999.0) -> None:
        """Append these lines as records of that second since boot."""
        with self.path.open("a") as file:
            for text in texts:
                file.write(f"4,{self.next},{int(at * 1e6)},-;{text}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:05:00.0\n")
                self.next += 1


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """A kernel log with nothing in it."""
    return Log(tmp_path)


def node(root: Path, *, boot: str = BOOT, cursor: object = None, **options: object) -> Host:
    """A node whose files lie below a folder."""
    random = root / "proc/sys/kernel/random"
    random.mkdir(parents=True, exist_ok=True)
    (random / "boot_id").write_text(boot + "\n")
    roots = Roots(proc=root / "proc", sys=root / "sys", dev=root / "dev", files=root)
    cursors = {} if cursor is None else {"kernel": cursor}
    return Host("gpu-0001", roots, Clock(), {"kernel": options}, cursors)


def run(collector: Kernel) -> list[Yielded]:
    """One run."""
    return list(collector(None))


def events(found: list[Yielded]) -> list[KernelEvent]:
    """The events of a run."""
    return [one for one in found if isinstance(one, KernelEvent)]


def cursor(found: list[Yielded]) -> object:
    """The newest cursor of a run, None where it gave none."""
    return next((one.value for one in reversed(found) if isinstance(one, Cursor)), None)


def counted(found: list[Yielded]) -> dict[str, float | None]:
    """The counters of a run."""
    readings = next(one for one in found if isinstance(one, Readings))
    assert readings.metrics == METRICS
    return dict(zip(readings.metrics, readings.values[0], strict=True))


def test_an_event_has_its_place_and_its_instants(tmp_path: Path, log: Log) -> None:
    """A record's microseconds since boot become UTC by the node's clocks, and stand beside it as they were."""
    log.say("usb 1-1: new device", XID, at=940.5)

    (event,) = events(run(Kernel(node(tmp_path))))

    assert (event.event, event.code, event.pci) == ("xid", 79, "0000:05:00")
    assert (event.node, event.boot_id, event.monotonic_at) == ("gpu-0001", BOOT, 940.5)
    assert event.at == 1_800_000_000.0 - 59.5
    assert event.source == "/dev/kmsg:1"


def test_lines_that_report_nothing_are_counted_and_not_sent(tmp_path: Path, log: Log) -> None:
    """Of a thousand ordinary lines only the count leaves the node."""
    log.say(*["audit: type=1400 something ordinary"] * 1000)

    found = run(Kernel(node(tmp_path)))

    assert [type(one) for one in found] == [Cursor, Readings]
    assert counted(found)["records_read_total"] == 1000


def test_each_run_gives_only_what_is_new(tmp_path: Path, log: Log) -> None:
    """A second run repeats nothing, and one without news gives no cursor."""
    collector = Kernel(node(tmp_path))
    log.say(XID)
    assert len(events(run(collector))) == 1
    log.say(XID.replace("79", "48"))

    assert [event.code for event in events(run(collector))] == [48]
    assert cursor(run(collector)) is None


def test_a_restarted_agent_goes_on_behind_its_cursor(tmp_path: Path, log: Log) -> None:
    """What the last agent sent is not sent again, and what came while there was none is."""
    log.say(XID)
    kept = json.loads(json.dumps(cursor(run(Kernel(node(tmp_path))))))
    log.say(XID.replace("79", "48"))

    found = events(run(Kernel(node(tmp_path, cursor=kept))))

    assert [event.code for event in found] == [48]


def test_a_new_boot_begins_at_its_first_line(tmp_path: Path, log: Log) -> None:
    """A cursor of the boot before says nothing of this one's numbers."""
    log.say(XID)
    kept = {"boot_id": "another", "source": "/dev/kmsg", "position": 900}

    found = run(Kernel(node(tmp_path, cursor=kept)))

    assert [event.code for event in events(found)] == [79]
    assert counted(found)["records_overwritten_total"] == 0


@pytest.mark.parametrize(
    "kept",
    ["x", 7, [], {}, {"boot_id": BOOT, "position": "x"}, {"boot_id": BOOT, "source": 1, "event_monotonic_at": "x"}],
)
def test_a_spoilt_cursor_is_as_none(tmp_path: Path, log: Log, kept: object) -> None:
    """A state file of another version costs a repetition at most."""
    log.say(XID)

    assert len(events(run(Kernel(node(tmp_path, cursor=kept))))) == 1


def test_overwritten_records_are_counted_and_reported(tmp_path: Path, log: Log) -> None:
    """A gap in the kernel's numbers is what was overwritten: 500 lost are reported as 500, once a minute at most."""
    host = node(tmp_path)
    collector = Kernel(host)
    log.say(XID)
    run(collector)
    log.next += 500
    log.say(XID)

    found = run(collector)
    assert counted(found)["records_overwritten_total"] == 500
    assert [one.reason for one in found if isinstance(one, Unread)] == [
        "500 records were overwritten before they were read: raise log_buf_len, or quieten what floods"
    ]

    log.next += 20
    log.say(XID)
    assert not [one for one in run(collector) if isinstance(one, Unread)]
    host.clock.pass_seconds(60)  # type: ignore[attr-defined]
    log.say("ordinary")
    assert [one.reason[:10] for one in run(collector) if isinstance(one, Unread)] == ["20 records"]


def test_what_was_lost_while_no_agent_ran_is_reported_too(tmp_path: Path, log: Log) -> None:
    """The cursor says which number comes next: an agent that was away for long says how much it missed."""
    log.next = 1000
    log.say(XID)
    kept = {"boot_id": BOOT, "source": "/dev/kmsg", "position": 99}

    assert counted(run(Kernel(node(tmp_path, cursor=kept))))["records_overwritten_total"] == 900


def test_a_flood_of_events_is_folded_by_what_it_says(tmp_path: Path, log: Log) -> None:
    """Of 10,000 repetitions of one error a hundred are sent as they are, and one that stands for 9,900."""
    log.say(*[XID] * 10_000)

    found = events(run(Kernel(node(tmp_path))))

    assert len(found) == kernel.EVENTS_PER_RUN + 1
    assert sum(event.repeats for event in found) == 10_000


def test_a_run_that_is_cut_costs_no_event(tmp_path: Path, log: Log) -> None:
    """A run that ended at its bound amid a flood: the next gives what was folded, and the cursor that was never sent."""
    log.say(*[XID] * (kernel.EVENTS_PER_RUN + 50), *[XID.replace("05:00", "06:00")] * 10)
    collector = Kernel(node(tmp_path))
    cut = iter(collector(None))
    reported = [next(cut) for _ in range(kernel.EVENTS_PER_RUN + 1)]
    cut.close()  # type: ignore[attr-defined]
    reported += run(collector)

    assert sum(event.repeats for event in events(reported)) == kernel.EVENTS_PER_RUN + 60
    assert events(run(Kernel(node(tmp_path, cursor=cursor(reported))))) == []


def test_a_late_parser_costs_no_line(tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy node lines wait for the next run, and then for the one after it; an agent that is restarted reads them again."""
    collector = Kernel(host := node(tmp_path))
    parse = host.apart.parse

    def late(*_arguments: object, **_more: object) -> object:
        raise ParsingLate("the node is busy")

    monkeypatch.setattr(host.apart, "parse", late)
    log.say(XID)
    first = run(collector)
    log.say(XID.replace("05:00", "06:00"))
    second = run(collector)
    again = run(Kernel(node(tmp_path, cursor=cursor(first) or cursor(second))))
    monkeypatch.setattr(host.apart, "parse", parse)

    assert [one for one in (*first, *second) if isinstance(one, KernelEvent | Unread)] == []
    assert (
        [event.pci for event in events(run(collector))]
        == ["0000:05:00", "0000:06:00"]
        == [e.pci for e in events(again)]
    )
    assert events(run(collector)) == []


def test_a_run_that_is_cut_before_the_first_event_is_folded_costs_none(tmp_path: Path, log: Log) -> None:
    """The runner ends a run that is past its bound at its first event: the next one has the others."""
    log.say(XID, XID.replace("05:00", "06:00"), XID.replace("05:00", "07:00"))
    collector = Kernel(node(tmp_path))
    cut = iter(collector(None))
    reported = [next(cut)]
    cut.close()  # type: ignore[attr-defined]
    reported += run(collector)

    assert [event.pci for event in events(reported)] == ["0000:05:00", "0000:06:00", "0000:07:00"]
    assert events(run(Kernel(node(tmp_path, cursor=cursor(reported))))) == []


def test_a_flood_of_different_events_is_bounded_and_reported(tmp_path: Path, log: Log) -> None:
    """Beyond a hundred kinds nothing more is kept in a run, and the record says how many were left out."""
    log.say(*(XID.replace("05:00", f"{number:02x}:00") for number in range(1, 251)))

    found = run(Kernel(node(tmp_path)))

    assert len(events(found)) == kernel.EVENTS_PER_RUN + kernel.FOLDS_PER_RUN
    assert [one.reason[:9] for one in found if isinstance(one, Unread)] == ["50 of 250"]
    assert counted(found)["events_left_out_total"] == 50


def test_a_run_reads_so_many_records_and_the_next_goes_on(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that grows faster than it is read holds no run for ever, and loses nothing by it."""
    monkeypatch.setattr(kernel, "RECORDS_PER_RUN", 100)
    log.say(*["ordinary"] * 150, XID)
    collector = Kernel(node(tmp_path))

    assert events(run(collector)) == []
    assert len(events(run(collector))) == 1


def test_the_worst_flood_costs_little(tmp_path: Path, log: Log) -> None:
    """Of lines that must each be looked at closely a run reads 10,000, in less than a second of processor time."""
    log.say(*["nvme0: a line that names a disk and reports nothing"] * 20_000)
    collector = Kernel(node(tmp_path))
    before = time.process_time()

    assert counted(run(collector))["records_read_total"] == kernel.RECORDS_PER_RUN == 10_000
    assert in_time(time.process_time() - before, 1.0)


def test_a_blocked_task_is_sent_with_what_it_waits_for(tmp_path: Path, log: Log) -> None:
    """The event waits for its stack, and has the file system that the stack names."""
    log.say(
        HUNG,
        "task:python3 state:D stack:0 pid:4242",
        "Call Trace:",
        " <TASK>",
        " nfs_wait_bit_killable+0x1f/0x90 [nfs]",
    )
    log.say("usb 1-1: something else")

    (event,) = events(run(Kernel(node(tmp_path))))

    assert (event.event, event.pid, event.device) == ("hung_task", 4242, "nfs")


def test_a_blocked_task_without_a_stack_is_not_kept_for_ever(tmp_path: Path, log: Log) -> None:
    """One whole interval is waited for a stack; until then the cursor stays in front of the event."""
    collector = Kernel(node(tmp_path))
    log.say("ordinary", HUNG)

    first = run(collector)
    assert events(first) == []
    assert cursor(first)["position"] == 0  # type: ignore[index]

    second = run(collector)
    assert [event.event for event in events(second)] == ["hung_task"]
    assert cursor(second)["position"] == 1  # type: ignore[index]


def test_a_followed_line_is_no_older_than_the_look_before(tmp_path: Path, log: Log) -> None:
    """The kernel's clock drifts: a line of an hour ago that was not there two runs ago is dated after that."""
    host = node(tmp_path)
    collector = Kernel(host)
    for _ in range(2):
        run(collector)
        host.clock.pass_seconds(2)  # type: ignore[attr-defined]
    log.say(XID, at=0.5)

    (event,) = events(run(collector))

    assert event.monotonic_at == 0.5
    assert event.at is not None
    assert host.clock.now() - event.at == pytest.approx(4.0)


def test_a_line_from_the_future_is_of_now(tmp_path: Path, log: Log) -> None:
    """A kernel clock that runs ahead dates nothing later than it was read."""
    log.say(XID, at=5000.0)

    assert events(run(Kernel(node(tmp_path))))[0].at == 1_800_000_000.0


@pytest.mark.parametrize(
    "garbage",
    [
        b"\0" * 5000 + b"\n",
        b"4,99999999999999999999999,1,-;x\n4,999999999999999999,1,-;x\n",
        b",,,;\n",
        b"4,x,1,-;x\n",
        b"\xff\xfe,1\n",
        b"x" * 200_000,
    ],
)
def test_garbage_is_passed_over(tmp_path: Path, log: Log, garbage: bytes) -> None:
    """Bytes that are no record cost nothing but themselves."""
    log.path.write_bytes(garbage + b"\n")
    log.say(XID)

    found = run(Kernel(node(tmp_path)))

    assert [event.code for event in events(found)] == [79]
    assert isinstance(found[-1], Readings)


def journalctl(root: Path, body: str) -> str:
    """A program that answers as journalctl does and notes how it was called."""
    program = root / "journalctl"
    program.write_text(f'#!/bin/sh\necho "$@" >> {root}/called\n{body}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (root / "var/log/journal").mkdir(parents=True, exist_ok=True)
    return str(program)


def entry(number: int, message: str, seconds: float) -> str:
    """A line of ``journalctl -o json``."""
    fields = {
        "__CURSOR": f"s=1;i={number}",
        "__REALTIME_TIMESTAMP": str(int((1_700_000_000 + seconds) * 1e6)),
        "_SOURCE_MONOTONIC_TIMESTAMP": str(int(seconds * 1e6)),
        "_TRANSPORT": "kernel",
        "_HOSTNAME": "some-other-name",
        "_BOOT_ID": BOOT.replace("-", ""),
        "MESSAGE": message,
    }
    return json.dumps(fields)


def patiently(collector: Kernel, count: int) -> list[Yielded]:
    """Runs until so many events have come, ten seconds at most."""
    found: list[Yielded] = []
    until = time.monotonic() + 60
    while len(events(found)) < count and time.monotonic() < until:
        found += run(collector)
        time.sleep(0.01)
    return found


def test_journald_is_followed_where_kmsg_cannot_be_opened(tmp_path: Path) -> None:
    """Its entries give the same events, under the agent's name for the node, and its own cursor is handed back."""
    (tmp_path / "lines").write_text(entry(1, "ordinary", 1) + "\n" + entry(2, XID, 2.5) + "\n")
    program = journalctl(tmp_path, f"cat {tmp_path}/lines; exec sleep 60")
    collector = Kernel(node(tmp_path, journalctl=program))

    found = patiently(collector, 1)

    (event,) = events(found)
    assert (event.code, event.node, event.boot_id) == (79, "gpu-0001", BOOT)
    assert (event.at, event.monotonic_at) == (1_700_000_002.5, 2.5)
    kept = cursor(found)
    assert kept == {"boot_id": BOOT, "source": "journal", "position": "s=1;i=2", "event_monotonic_at": 2.5}

    again = Kernel(node(tmp_path, journalctl=program, cursor=kept))
    run(again)
    until = time.monotonic() + 60
    while (called := (tmp_path / "called").read_text().splitlines())[1:] == [] and time.monotonic() < until:
        time.sleep(0.01)
    assert "--after-cursor=s=1;i=2" in called[1]
    assert f"--directory={tmp_path}/var/log/journal" in called[0]
    for one in (collector, again):
        one.close()


def test_a_journalctl_that_ends_is_a_failure_with_its_own_words(tmp_path: Path) -> None:
    """It is counted and reported, and the run after it starts another."""
    program = journalctl(tmp_path, "echo 'no permission to read the journal' >&2; exit 3")
    collector = Kernel(node(tmp_path, journalctl=program))

    def until_it_fails() -> None:
        for _ in range(1000):
            run(collector)
            time.sleep(0.01)

    for _ in range(2):
        with pytest.raises(RuntimeError, match="journal: no permission to read the journal"):
            until_it_fails()
    assert len((tmp_path / "called").read_text().splitlines()) == 2


def test_kmsg_after_journald_repeats_nothing(tmp_path: Path, log: Log) -> None:
    """An agent that may open /dev/kmsg since its restart does not send again what journald gave."""
    kept = {"boot_id": BOOT, "source": "journal", "position": "s=1;i=2", "event_monotonic_at": 2.5}
    log.say(XID, at=2.5)
    log.say(XID.replace("79", "48"), at=3.5)

    assert [event.code for event in events(run(Kernel(node(tmp_path, cursor=kept))))] == [48]


def test_neither_source_is_nothing_to_collect(tmp_path: Path) -> None:
    """Where there is no /dev/kmsg and no journalctl the agent says what it lacks."""
    with pytest.raises(NothingToCollect, match="no journalctl: give the agent CAP_SYSLOG"):
        run(Kernel(node(tmp_path, journalctl="no-such-program")))


def test_a_line_written_to_the_real_kmsg_comes_once() -> None:
    """On this machine's own /dev/kmsg a harmless event is read, dated within seconds, and never again."""
    if not os.access("/dev/kmsg", os.R_OK | os.W_OK):
        pytest.skip("/dev/kmsg cannot be opened here for reading and writing")
    name = f"test-{uuid.uuid4().hex[:12]}"
    host = Host("gpu-0001")
    collector = Kernel(host)
    seen = events(run(collector))
    before = host.clock.now()
    Path("/dev/kmsg").write_text(f"Lustre: test: Connection restored to {name}\n")

    found = run(collector)

    (event,) = [event for event in events(found) if event.device == name]
    assert event.event == "nfs_responding"
    assert event.at == pytest.approx(before, abs=5)
    assert name not in {event.device for event in seen}
    assert name not in {event.device for event in events(run(collector))}
    again = Kernel(Host("gpu-0001", cursors={"kernel": cursor(found)}))
    assert name not in {event.device for event in events(run(again))}
    for one in (collector, again):
        one.close()
