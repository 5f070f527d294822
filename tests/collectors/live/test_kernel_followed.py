"""A kernel log that is followed: blocked tasks, instants, and where the next agent goes on."""

from __future__ import annotations

import json
import os
import stat
import time
import uuid
from pathlib import Path

import pytest

from collectors.live import NothingToCollect, Readings, Yielded
from collectors.live.kernel import Kernel
from collectors.live.sources.host import Host
from tests.support.kernel_of_a_node import BOOT, XID, Log, cursor, events, node, run

HUNG = "INFO: task python3:4242 blocked for more than 120 seconds."


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """A kernel log with nothing in it."""
    return Log(tmp_path)


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
    name = f"test_{uuid.uuid4().hex[:12]}"
    host = Host("gpu-0001")
    collector = Kernel(host)
    seen = events(run(collector))
    before = host.clock.now()
    Path("/dev/kmsg").write_text(f"Lustre: {name}: Connection restored to 10.0.0.1@o2ib\n")

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
