"""The kernel's log is followed live: each event once, across restarts and boots, and a flood is bounded and reported."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from collectors.files.apart import ParsingLate
from collectors.live import Cursor, Readings, Yielded, kernel
from collectors.live.kernel import METRICS, Kernel
from collectors.records import KernelEvent, Unread
from tests.support.bounds import in_time
from tests.support.kernel_of_a_node import BOOT, XID, Log, cursor, events, node, run


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """A kernel log with nothing in it."""
    return Log(tmp_path)


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
