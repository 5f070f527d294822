"""Ring files: read however they are damaged, and found only where the probe of this very process can have put them."""

from __future__ import annotations

import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from collectors import faulthound_probe
from collectors.faulthound_probe import BASE_AT, ENTRY, HEADER_BYTES, MOST_DEAD, spans
from collectors.formats import Damaged
from collectors.formats.probe_ring import LARGEST_RING_BYTES, expand, parse


def written(tmp_path: Path, entries: int = 64) -> faulthound_probe.Ring:
    """Return a new ring with one group."""
    ring = faulthound_probe.Ring(str(tmp_path / "1.ring"), 3, 8, entries)
    ring.group("0", "default_pg", "cpu:gloo,cuda:nccl", range(8))
    return ring


def content(ring: faulthound_probe.Ring) -> bytearray:
    """Return a ring's bytes as they stand."""
    return bytearray(Path(ring.path).read_bytes())


def test_a_ring_keeps_the_newest_and_never_grows(tmp_path: Path) -> None:
    """Of 100 operations in 64 slots the last 64 are there, in order, and the others are counted."""
    ring = written(tmp_path)
    size = len(content(ring))
    for number in range(100):
        ring.leave(ring.enter(0, ring.name("all_reduce"), number + 1, 0, 32))

    image = parse(content(ring))

    assert [entry.collective_seq for entry in image.entries] == list(range(37, 101))
    assert (image.overwritten, image.backend, image.rank, len(content(ring))) == (36, "nccl", 3, size)


def test_a_light_look_has_the_newest_and_what_is_inside(tmp_path: Path) -> None:
    """An old receive that has not been left is reported along with the newest few."""
    ring = written(tmp_path)
    ring.enter(0, ring.name("recv 3<-1"), 0, 1, 64)
    for number in range(20):
        ring.leave(ring.enter(0, ring.name("all_reduce"), number + 1, 0, 32))

    image = parse(content(ring), most=4)

    assert [(entry.p2p_seq, entry.collective_seq) for entry in image.entries] == [
        (1, 0),
        *((0, n) for n in range(17, 21)),
    ]
    assert image.record().count == 5


def test_an_entry_that_was_being_written_is_left_out(tmp_path: Path) -> None:
    """A process killed between the first and the last word of a slot costs that slot."""
    ring = written(tmp_path)
    for number in range(3):
        ring.enter(0, ring.name("all_reduce"), number + 1, 0, 32)
    data = content(ring)
    data[ring.entries_offset + ENTRY.size : ring.entries_offset + ENTRY.size + 8] = (66).to_bytes(8, "little")

    image = parse(data)

    assert ([entry.collective_seq for entry in image.entries], image.torn) == ([1, 3], 1)


def test_full_tables_cost_names_only(tmp_path: Path) -> None:
    """When the table of names is full, operations go on without theirs."""
    ring = written(tmp_path)
    numbers = [ring.name(f"phase {number} {'x' * 400}") for number in range(200)]
    ring.enter(0, numbers[-1], 7, 0, 32)

    image = parse(content(ring))

    assert (numbers[0], numbers[-1]) == (0, -1)
    assert [(entry.operation, entry.collective_seq) for entry in image.entries] == [(-1, 7)]
    assert len(image.record().columns["operation"]) == 4


def test_names_without_end_take_no_memory(tmp_path: Path) -> None:
    """A job that names a phase anew at every step fills the table of names and nothing else."""
    ring = written(tmp_path)

    numbers = [ring.name(f"{step:060}") for step in range(5000)]

    assert (len(ring.names), numbers[-1]) == (max(numbers) + 1, -1)


def test_threads_that_name_things_at_once_name_them_right(tmp_path: Path) -> None:
    """Eight threads that meet the same new names at the same moments agree on their numbers, and the file has each once."""
    texts, found = [f"phase {number}" for number in range(1500)], []
    ring, interval = written(tmp_path), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda _: [ring.name(text) for text in texts], range(8)))
    finally:
        sys.setswitchinterval(interval)

    names = parse(content(ring)).names
    assert [[names[number] for number in numbers] for numbers in found] == [texts] * 8


def test_the_rings_of_a_job_that_crashes_in_a_loop_are_bounded(tmp_path: Path) -> None:
    """Of the dead the newest stay, with nobody there to remove them; a living process's ring is not touched, however old."""
    living = faulthound_probe.Ring(str(tmp_path / "1.ring"), 0, 1, 64)
    for number in range(MOST_DEAD + 5):
        ring = faulthound_probe.Ring(str(tmp_path / f"{100 + number}.ring"), 0, 1, 64)
        (tmp_path / f"{100 + number}.sock").touch()
        os.utime(ring.path, (1000.0 + number, 1000.0 + number))
        ring.memory.close()
    os.utime(living.path, (1.0, 1.0))

    faulthound_probe._sweep(str(tmp_path))

    kept = [f"{number}" for number in (1, *range(105, 100 + MOST_DEAD + 5))]
    assert sorted(path.stem for path in tmp_path.glob("*.ring")) == sorted(kept)
    assert len(list(tmp_path.glob("*.sock"))) == MOST_DEAD
    living.memory.close()


@pytest.mark.system
def test_noise_is_refused_or_read_and_never_more(tmp_path: Path) -> None:
    """Three hundred rings with random bytes in random places, cut or not, are damaged or give a record within the bounds."""
    ring = written(tmp_path)
    for number in range(64):
        ring.leave(ring.enter(0, ring.name("all_reduce"), number + 1, 0, 32))
    ring.end_step(1)
    good, draws, read = content(ring), random.Random(3), 0
    for _ in range(300):
        data = bytearray(good)
        for _ in range(draws.randrange(1, 6)):
            place = draws.choice((draws.randrange(200), draws.randrange(len(data))))
            data[place : place + 8] = draws.choice((draws.randbytes(8), b"\xff" * 8, b"\xff" * 7 + b"\x7f"))
        del data[draws.choice((len(good), len(good), draws.randrange(len(good)))) :]
        try:
            image = parse(data)
        except Damaged:
            continue
        read += 1
        assert image.record().count <= 64
        image.steps_since(0)
    assert read > 30


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "cut at byte 0"),
        (b"FHBLOCK\x01" + bytes(HEADER_BYTES), "no ring of version 1"),
        (bytes(LARGEST_RING_BYTES + 1), "more than"),
    ],
)
def test_what_is_no_ring_is_told(data: bytes, why: str) -> None:
    """An empty, a foreign and a huge file are damaged, with the reason."""
    with pytest.raises(Damaged, match=why):
        parse(data)


def test_a_clock_that_cannot_be_is_damage(tmp_path: Path) -> None:
    """UTC before the monotonic clock's beginning would put every entry before 1970."""
    data = content(written(tmp_path))
    data[BASE_AT : BASE_AT + 8] = bytes(8)

    with pytest.raises(Damaged, match="clocks"):
        parse(data)


@pytest.mark.parametrize(
    "ranks", [[], [0], [0, 1], list(range(16384)), list(range(3, 99, 8)), [5, 9, 11, 12, 13, 2, 1]]
)
def test_members_are_written_in_few_characters(ranks: list[int]) -> None:
    """Any list of members reads back; the world and a regular group take one span."""
    assert expand(spans(ranks), 1 << 20) == ranks
    assert len(spans(ranks)) < 24


@pytest.mark.parametrize("text", ["0-99999999999", "0-16777216", "7-3", "x", "0-9:0", "0--5", ",,"])
def test_wild_spans_are_refused_before_they_cost_memory(text: str) -> None:
    """Spans of more ranks than any job has, backwards or of no numbers, raise at once."""
    with pytest.raises((ValueError, IndexError)):
        expand(text, 1 << 20)
