"""What the spool has, it has until the service has it: over kills, full disks and its own bound, all reported exactly."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from collectors.agent import segment as segments
from collectors.agent import state as states
from collectors.agent.segment import Entry
from collectors.agent.spool import Spool
from collectors.live.sources.clock import NodeClock
from collectors.records import Record, Samples, block

MEGABYTE = 1 << 20


def opened(folder: Path, *, bytes_max: int = 64 * MEGABYTE, seal_seconds: float = 60.0) -> Spool:
    """Open a spool as the agent does."""
    folder.mkdir(exist_ok=True)
    return Spool(folder, "gpu-0001", NodeClock(), bytes_max=bytes_max, seal_seconds=seal_seconds)


def entry(*numbers: int, size: int = 0, **cursors: int) -> Entry:
    """An entry of numbered records of ``size`` bytes, and cursors. Samples may have megabytes; random ones do not compress."""
    samples = [Samples(scope=str(number), values=os.urandom(size)) for number in numbers]
    return Entry(records=[block.encode([one]) for one in samples], cursors=dict(cursors))


def numbers_in(data: bytes) -> list[int]:
    """Return the numbers of a block's records."""
    records: list[Record] = block.decode(data)
    return [int(one.scope) for one in records if isinstance(one, Samples)]


def shipped(spool: Spool) -> list[int]:
    """Take every batch as the service would, and return the numbers of the records in them."""
    numbers = []
    while (batch := spool.next(0.0)) is not None:
        numbers += numbers_in(batch.read())
        spool.delivered(batch)
    return numbers


def test_what_was_added_survives_the_agent(tmp_path: Path) -> None:
    """Records and cursors of an agent that was killed before it sealed come back once, in order."""
    killed = opened(tmp_path)
    killed.add(entry(1, 2, steps=2))
    killed.add(entry(3, steps=3))

    spool = opened(tmp_path)

    assert spool.state.cursors == {"steps": 3}
    assert shipped(spool) == [1, 2, 3]
    assert shipped(opened(tmp_path)) == []
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json"]


def test_a_kill_between_sealing_and_deleting_repeats_the_same_id(tmp_path: Path) -> None:
    """A segment that stayed beside its batch makes no second batch, and one whose batch was shipped repeats its id."""
    spool = opened(tmp_path / "a")
    spool.add(entry(1, kernel=7))
    (segment,) = (tmp_path / "a").glob("*.seg")
    shutil.copytree(tmp_path / "a", tmp_path / "before")
    spool.seal(now=True)
    shutil.copy(tmp_path / "before" / segment.name, segment)

    again = opened(tmp_path / "a")
    batch = again.next(0.0)
    unsealed = opened(tmp_path / "before").next(0.0)

    assert batch is not None
    assert unsealed is not None
    assert batch.id == unsealed.id == segment.stem
    assert again.state.cursors == {"kernel": 7}
    assert shipped(again) == [1]


def test_a_half_written_frame_is_not_there(tmp_path: Path) -> None:
    """A segment cut at any byte gives its whole frames and never a part of one."""
    spool = opened(tmp_path)
    ends = []
    for number in range(4):
        spool.add(entry(number))
        (path,) = tmp_path.glob("*.seg")
        ends.append(path.stat().st_size)
    data, cut = path.read_bytes(), tmp_path / "cut"
    for length in range(len(data)):
        cut.write_bytes(data[:length])
        assert len(list(segments.read(cut))) == sum(end <= length for end in ends)


def test_the_bound_is_reported_exactly(tmp_path: Path) -> None:
    """Over its bound the spool drops the oldest batches: dropped and shipped add up to what was added, span included."""
    began_at = time.time()
    spool = opened(tmp_path, bytes_max=MEGABYTE)
    for number in range(0, 60, 2):
        spool.add(entry(number, number + 1, size=20_000))
        spool.seal(now=True)
    dropped = spool.state.dropped
    reopened = opened(tmp_path, bytes_max=MEGABYTE)
    kept = shipped(reopened)

    assert kept == list(range(60 - len(kept), 60))
    assert 0 < dropped.batches == (60 - len(kept)) // 2
    assert dropped.records == 60 - len(kept)
    assert dropped.bytes > dropped.records * 20_000
    assert reopened.state.dropped == dropped
    assert began_at <= (dropped.from_at or 0) <= (dropped.until_at or 0) <= time.time()


def test_a_batch_on_its_way_is_not_dropped(tmp_path: Path) -> None:
    """The batch that the shipper holds stays when the bound drops others, so that none is both shipped and counted."""
    spool = opened(tmp_path, bytes_max=MEGABYTE)
    spool.add(entry(0, size=350_000))
    spool.seal(now=True)
    held = spool.next(0.0)
    spool.add(entry(1, size=750_000))
    spool.seal(now=True)

    assert held is not None
    assert spool.state.dropped.batches == 1
    assert shipped(spool) == [0]


class Killed(BaseException):
    """Stands for a kill -9 at this very instruction."""


def add_until_killed(spool: Spool) -> int:
    """Add batches of a record until the agent is killed; return how many."""
    for number in range(60):
        spool.add(entry(number, size=20_000))
        try:
            spool.seal(now=True)
        except Killed:
            return number + 1
    raise AssertionError("it was never killed")


def test_a_kill_amid_dropping_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the counting and the deleting, a dropped batch is neither shipped nor counted again."""

    def killed(_batch: object) -> None:
        raise Killed

    spool = opened(tmp_path, bytes_max=MEGABYTE)
    monkeypatch.setattr(spool, "_remove", killed)
    added = add_until_killed(spool)

    again = opened(tmp_path, bytes_max=MEGABYTE)
    kept = shipped(again)

    assert kept == list(range(added - len(kept), added))
    assert again.state.dropped.records == added - len(kept) == 1


def test_a_batch_that_only_memory_holds_survives_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the disk had room for the segment and none for the batch, the segment stays until the batch is delivered."""
    real = states.replace

    def full(path: Path, data: bytes, *, durable: bool = True) -> None:
        if path.suffix == ".fhb":
            raise OSError(28, "No space left on device")
        real(path, data, durable=durable)

    monkeypatch.setattr(states, "replace", full)
    spool = opened(tmp_path)
    spool.add(entry(1, steps=1))
    spool.seal(now=True)

    assert len(list(tmp_path.glob("*.seg"))) == 1
    assert shipped(opened(tmp_path)) == [1]
    assert shipped(spool) == [1]
    assert list(tmp_path.glob("*.seg")) == []


def test_a_batch_counted_before_the_kill_is_deleted_after_it(tmp_path: Path) -> None:
    """A batch that the state names as dropped and that still lies there is deleted at the next start."""
    spool = opened(tmp_path)
    spool.add(entry(1))
    spool.seal(now=True)
    batch = spool.next(0.0)
    assert batch is not None
    spool.state.dropped.add(1, 1, batch.size_bytes, 0.0, 1.0)
    spool.state.dropping = [batch.id]
    (tmp_path / "state.json").write_bytes(msgspec.json.encode(spool.state))

    again = opened(tmp_path)

    assert again.next(0.0) is None
    assert again.state.dropped.batches == 1
    assert opened(tmp_path).state.dropping == []


def test_an_urgent_entry_is_sealed_within_a_second(tmp_path: Path) -> None:
    """An urgent entry is due within a second and wakes the agent; an ordinary one has the segment's time."""
    spool = opened(tmp_path)
    spool.add(entry(1))
    assert spool.due_in() > 50
    assert not spool.wake.is_set()

    spool.add(entry(2), urgent=True)

    assert spool.due_in() < 1
    assert spool.wake.is_set()


def test_ten_minutes_without_the_service_are_few_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind batches that wait a segment grows for a minute; once they are gone the newest is sealed as ever. All is there."""
    now = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    spool = opened(tmp_path, seal_seconds=10.0)
    for second in range(600):
        now[0] += 1.0
        spool.add(entry(second), urgent=second % 5 == 0)
        spool.seal()
    waiting, _ = spool.held()
    came: list[int] = []
    while spool.held()[0] and (batch := spool.next(0.0)) is not None:
        came += numbers_in(batch.read())
        spool.delivered(batch)
        spool.seal()

    assert waiting <= 14
    assert came == list(range(came[-1] + 1))
    assert came[-1] == 599
    spool.add(entry(600))
    assert spool.due_in() == 10.0


def test_a_full_segment_is_sealed_before_its_time(tmp_path: Path) -> None:
    """A flood makes several batches, each within the bound of a segment, and loses nothing."""
    spool = opened(tmp_path)
    for number in range(12):
        spool.add(entry(number, size=MEGABYTE))
    spool.seal()
    spool.seal(now=True)

    assert spool.held()[0] >= 3
    assert shipped(spool) == list(range(12))


def test_damaged_state_is_put_aside(tmp_path: Path) -> None:
    """A state file that is not what was written costs the counters, not the batches and not the start."""
    spool = opened(tmp_path)
    spool.add(entry(5))
    spool.seal(now=True)
    (tmp_path / "state.json").write_bytes(b'{"number": "three"')

    assert shipped(opened(tmp_path)) == [5]
    assert (tmp_path / "state.damaged").exists()


def test_a_newer_agent_s_leftovers_are_counted(tmp_path: Path) -> None:
    """A record of a kind that this version does not know is counted as dropped; the rest of its segment is shipped."""
    body = b"\x92\x90" + msgspec.msgpack.encode([{"kind": "telepathy", "at": 1.0}])
    newer = block.HEADER.pack(block.MAGIC, 0, zlib.crc32(body), len(body)) + body
    killed = opened(tmp_path)
    killed.add(Entry(records=[newer, *entry(1).records]))

    spool = opened(tmp_path)

    assert spool.state.dropped.records == 1
    assert shipped(spool) == [1]


def test_a_newer_agent_s_batch_is_shipped_as_it_is(tmp_path: Path) -> None:
    """A batch file with unknown kinds and fields reaches the service byte for byte, which keeps what it cannot read."""
    body = b"\x92\x90" + msgspec.msgpack.encode([{"kind": "telepathy", "at": 1.0}, {"kind": "log_event", "event": "x"}])
    newer = block.HEADER.pack(block.MAGIC, 0, zlib.crc32(body), len(body)) + body
    (tmp_path / "000000000001-0123abcd.2.1000.2000.fhb").write_bytes(newer)

    batch = opened(tmp_path).next(0.0)

    assert batch is not None
    assert batch.read() == newer
    assert (batch.records, batch.from_at, batch.until_at) == (2, 1.0, 2.0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(path: Path) -> None:
    """Write until the disk takes no more."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass


def test_a_full_disk_is_reported_and_loses_nothing(small_disk: Path) -> None:
    """While the disk takes nothing, batches wait in memory and are shipped from there; the trouble is reported until it ends."""
    spool = opened(small_disk)
    spool.add(entry(0))
    spool.seal(now=True)
    filler = small_disk / "other"
    fill(filler)
    for number in range(1, 6):
        spool.add(entry(number, size=10_000, steps=number))
        spool.seal(now=True)
    assert "No space" in spool.trouble
    assert shipped(spool) == [0, 1, 2, 3, 4, 5]

    filler.unlink()
    spool.add(entry(6, size=10_000))
    spool.seal(now=True)

    assert spool.trouble == ""
    assert shipped(opened(small_disk)) == [6]
    assert spool.state.dropped.batches == 0


def test_memory_is_bounded_on_a_disk_that_takes_nothing(small_disk: Path) -> None:
    """A read-only disk and an absent service cost memory up to a bound; what goes beyond it is counted."""
    spool = opened(small_disk)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for number in range(16):
        spool.add(entry(number, size=MEGABYTE))
        spool.seal(now=True)
    kept = shipped(spool)

    assert spool.state.dropped.records == 16 - len(kept)
    assert kept == list(range(16 - len(kept), 16))
    assert 2 <= len(kept) <= 9  # of a megabyte each
    assert "Read-only" in spool.trouble


def test_refused_batches_are_put_aside_within_a_bound(tmp_path: Path) -> None:
    """What the service will never take lies in refused/ for a person, the newest of it, and is counted."""
    spool = opened(tmp_path, bytes_max=MEGABYTE)
    for number in range(8):
        spool.add(entry(number, size=75_000))
        spool.seal(now=True)
        batch = spool.next(0.0)
        assert batch is not None
        spool.refused(batch)
    aside = sorted((tmp_path / "refused").iterdir())

    assert spool.state.refused_batches == 8
    assert sum(path.stat().st_size for path in aside) <= MEGABYTE // 4
    assert numbers_in(aside[-1].read_bytes()) == [7]
