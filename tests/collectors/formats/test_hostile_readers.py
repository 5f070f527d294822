"""A reader that ends, or is kept waiting, costs its own file."""

from __future__ import annotations

import os
import pickle
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from collectors.files import sandbox
from collectors.files.opening import Limits
from collectors.files.reading import read_paths
from collectors.formats import Input, Sniff, _formats, reader
from collectors.records import FlightRecorderDump, Record, Unread

GOOD = pickle.dumps({"version": "2.9", "pg_config": {}, "pg_status": {}, "entries": []}, 2)


def unread(records: list[Record]) -> list[tuple[str, str]]:
    """The outcome and reason of everything that was not read."""
    return [(record.outcome, record.reason) for record in records if isinstance(record, Unread)]


@pytest.fixture
def trapped() -> Iterator[None]:
    """A reader that claims files named trap_* and dies in the way that they hold."""

    def sniff(head: bytes, source: str) -> int:
        return 100 if head.startswith(b"trap:") else 0

    claims: Sniff = sniff

    @reader("00_trap", made_by="a test", gives="trouble", sniff=claims)
    def read(input: Input) -> Iterator[Record]:
        way = input.stream.read().decode()
        yield Unread(source=input.source, reason="before the trap")
        if way == "trap:raise":
            raise ZeroDivisionError("on purpose")
        if way == "trap:kill":
            os.kill(os.getpid(), 9)
        if way == "trap:exit":
            os._exit(7)
        if way == "trap:memory":
            bytearray(1 << 40)
        if way == "trap:sleep":
            time.sleep(600)
        if way == "trap:wait":
            time.sleep(1.5)
        if way == "trap:surrogate":
            yield Unread(source=input.source, reason="\ud800")

    yield
    del _formats["00_trap"]


REASONS = {
    "raise": "the 00_trap reader failed: ZeroDivisionError: on purpose",
    "kill": "reading it ended its process with SIGKILL (out of memory?)",
    "exit": "reading it ended its process with exit code 7",
    "memory": "reading it needs more memory than a file may",
    "sleep": "reading it took more than 12 s, and did nothing",
    "surrogate": "a Unread cannot be written",
}


@pytest.mark.system
@pytest.mark.usefixtures("trapped")
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.acceptance), 2])
def test_a_reader_that_dies_costs_its_own_file(tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exception, kill, exit, memory, time: each costs the file it came from, and the twenty beside them are read in order."""
    monkeypatch.setattr(sandbox, "SLEEPING_TIMES", 2.0)
    for number in range(20):
        (tmp_path / f"{number:02}_rank{number}").write_bytes(GOOD)
    for number, way in enumerate(REASONS):
        (tmp_path / f"{number * 3:02}_trap_{way}").write_bytes(f"trap:{way}".encode())
    done: list[tuple[int, int]] = []
    records = list(
        read_paths(
            [tmp_path], limits=Limits(seconds_per_file=6.0), workers=workers, progress=lambda *at: done.append(at)
        )
    )
    assert [record.rank for record in records if isinstance(record, FlightRecorderDump)] == list(range(20))
    sources = [record.source for record in records]
    assert sources == sorted(sources)
    for way, reason in REASONS.items():
        said = [record.reason for record in records if isinstance(record, Unread) and record.source.endswith(way)]
        assert said[-1].startswith(reason)
    assert done[-1] == (1, 1)
    assert done == sorted(done)


@pytest.mark.system
@pytest.mark.usefixtures("trapped")
def test_a_reader_that_does_not_get_the_processor_is_waited_for(tmp_path: Path) -> None:
    """It takes five times its bound by the clock, and next to nothing of the processor: its file is read."""
    (tmp_path / "0_trap_wait").write_bytes(b"trap:wait")
    records = list(read_paths([tmp_path], limits=Limits(seconds_per_file=0.3)))
    assert [record.reason for record in records if isinstance(record, Unread)] == ["before the trap"]


@pytest.mark.usefixtures("trapped")
def test_a_member_that_kills_its_reader_costs_itself(tmp_path: Path) -> None:
    """Of an archive, only the member that ended the process is lost."""
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name, data in (("rank0", GOOD), ("rank1", b"trap:kill"), ("rank2", GOOD)):
            archive.writestr(name, data)
    records = list(read_paths([tmp_path / "x.zip"]))
    assert [(type(record).__name__, record.rank) for record in records] == [
        ("FlightRecorderDump", 0),
        ("Unread", 1),
        ("FlightRecorderDump", 2),
    ]


@pytest.mark.system
def test_a_pause_of_whoever_takes_the_records_is_no_fault_of_a_file(tmp_path: Path) -> None:
    """Records that are fetched slowly arrive all the same: the time is not counted against the file being read."""
    large = {"version": "2.9", "pg_status": {}, "entries": [{"profiling_name": f"{i} " * 1000} for i in range(400)]}
    for number in range(12):  # whose records fill the pipe to the parent, so that their children wait for it
        (tmp_path / f"_dump_{number}").write_bytes(pickle.dumps(large, 4))
    reading = read_paths([tmp_path], limits=Limits(seconds_per_file=0.5), workers=2)
    records = [next(reading)]
    time.sleep(3)  # more than 0.5 s and one for each MiB of the file
    records += reading
    assert unread(records) == []
    assert sum(isinstance(record, FlightRecorderDump) for record in records) == 12


def test_no_child_outlives_a_reading_that_is_given_up(tmp_path: Path) -> None:
    """Whoever stops taking records leaves no process and no open pipe behind."""
    for number in range(200):
        (tmp_path / f"_dump_{number}").write_bytes(GOOD)
    before = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    children = {child.pid for child in psutil.Process().children()}  # other tests' servers
    reading = read_paths([tmp_path], workers=2)
    next(reading)
    reading.close()
    assert {child.pid for child in psutil.Process().children()} <= children
    assert (len(list(Path("/proc/self/fd").iterdir())) if before else 0) == before
