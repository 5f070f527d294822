"""Ring files: read however they are damaged, and found only where the probe of this very process can have put them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from collectors import faulthound_probe
from collectors.faulthound_probe import BASE_AT, ENTRY, HEADER_BYTES, MOST_DEAD, MOST_FAILURES, SWALLOWED_AT, spans
from collectors.formats import Damaged
from collectors.formats.probe_ring import LARGEST_RING_BYTES, expand, parse
from collectors.live import Cursor, NothingToCollect, Request, Yielded
from collectors.live.ring import KEPT_SECONDS, NEWEST_ENTRIES, RingCollector
from collectors.live.sources.host import Host
from collectors.records import Ring, Steps, Unread

REPOSITORY = Path(__file__).resolve().parents[3]
NO_RING = f"a ring has a header of {HEADER_BYTES} bytes and this was cut at byte 10"
WRITER = """
import os, sys, time
from collectors.faulthound_probe import Ring, _folder
ring = Ring(f"{_folder()}/{os.getpid()}.ring", 3, 8)
group = ring.group("0", "default_pg", "cpu:gloo", range(8))
for step in range(1, 101):
    ring.leave(ring.enter(group, ring.name("all_reduce"), step, 0, 32))
    ring.end_step(step)
ring.enter(group, ring.name("recv 3<-1"), 0, 1, 64)
print("ready", flush=True)
time.sleep(60)
"""


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
    """An old receive that has not been left is told along with the newest few."""
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


class Clock:
    """The node's clocks, which a test moves."""

    def __init__(self) -> None:
        self.moved = 0.0

    def now(self) -> float:
        """Return UTC seconds."""
        return time.time() + self.moved

    def monotonic(self) -> float:
        """Return seconds since boot."""
        return time.monotonic() + self.moved


class Node:
    """A node whose one training process writes a ring."""

    def __init__(self, folder: Path) -> None:
        own = {"RANK": "3", "WORLD_SIZE": "8", "FAULTHOUND_JOB": f"ring-{folder.name}", "FAULTHOUND_ATTEMPT": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True,
            env=os.environ | own | {"FAULTHOUND_PROBE_DIR": str(folder)},
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        self.job, self.clock = own["FAULTHOUND_JOB"], Clock()
        self.host = Host("gpu-0007", clock=self.clock, options={"ring": {"folder": str(folder)}})
        self.collector = RingCollector(self.host)
        self.path = folder / f"faulthound-{os.geteuid()}" / f"{self.process.pid}.ring"

    def run(self, asked: Request | None = None) -> list[Yielded]:
        """Run the collector and keep its cursor, as the agent does; return what is of this node's job."""
        self.clock.moved += 10.0
        try:
            yielded = list(self.collector(asked))
        except NothingToCollect:
            return []
        self.host.cursors["ring"] = next((each.value for each in yielded if isinstance(each, Cursor)), None)
        return [each for each in yielded if getattr(each, "job", self.job) == self.job and not isinstance(each, Cursor)]

    def kill(self) -> None:
        """Kill the process."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """End it all."""
        self.kill()
        self.collector.close()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node with one training process."""
    made = Node(tmp_path)
    yield made
    made.close()


def rings(yielded: list[Yielded]) -> list[tuple[int | None, int, bool]]:
    """Return rank, entries and whether the process has ended, of each ring."""
    return [(each.rank, each.count, each.ended) for each in yielded if isinstance(each, Ring)]


def test_a_look_is_light_and_an_asked_one_is_whole(node: Node) -> None:
    """The newest entries every time, all when recorders are asked for; steps come once; a stopped process is read too."""
    node.process.send_signal(signal.SIGSTOP)

    first, second = node.run(), node.run()
    asked, others = node.run(Request("recorders")), node.run(Request("recorders", {"ranks": [0]}))

    assert rings(first) == rings(second) == [(3, NEWEST_ENTRIES, False)]
    assert (rings(asked), rings(others)) == ([(3, 101, False)], [])
    (steps,) = [each for each in first + second + asked if isinstance(each, Steps)]
    assert array("q", steps.columns["step"]).tolist() == list(range(1, 101))
    (ring,) = [each for each in first if isinstance(each, Ring)]
    assert (ring.job, ring.attempt, ring.backend, ring.step) == (node.job, 1, "gloo", 100)
    assert array("q", ring.columns["left_ns"]).tolist()[-1] == -1


def test_a_death_is_told_once_and_the_file_goes_after_an_hour(node: Node) -> None:
    """The whole ring once, again only when asked; then the collector removes what nobody needs any more."""
    node.run()
    node.kill()

    after = [rings(node.run()), rings(node.run()), rings(node.run(Request("recorders")))]
    node.clock.moved += KEPT_SECONDS
    node.run()

    assert after == [[(3, 101, True)], [], [(3, 101, True)]]
    assert not node.path.exists()


def test_the_next_agent_goes_on_where_the_last_one_ended(node: Node) -> None:
    """A process that died while no agent ran is told with its job, by the cursor; one told before is not told again."""
    node.run()
    node.kill()
    node.collector.close()
    node.collector = RingCollector(node.host)
    resumed = rings(node.run())
    node.collector.close()
    node.collector = RingCollector(node.host)

    assert (resumed, rings(node.run())) == ([(3, 101, True)], [])


def test_the_next_agent_repeats_no_step(node: Node) -> None:
    """The steps that one agent sent do not come again from the next, which the cursor tells how far they went."""
    first = node.run()
    node.collector.close()
    node.collector = RingCollector(node.host)

    assert [sum(isinstance(each, Steps) for each in run) for run in (first, node.run())] == [1, 0]


@pytest.mark.parametrize("cursor", [["x"], [{"path": 7}], 3 * [None]])
def test_a_ring_cursor_of_another_making_is_no_cursor(node: Node, cursor: object) -> None:
    """What another version kept in another shape is passed over, and the ring is found all the same."""
    node.host.cursors["ring"] = cursor

    assert rings(node.run()) == [(3, NEWEST_ENTRIES, False)]


def test_a_ring_that_its_process_removed_is_not_told(node: Node) -> None:
    """A process that ends as it should removes its file: there is nothing to tell of its end."""
    node.run()
    node.path.unlink()
    node.kill()

    assert node.run() == []


def _linked(node: Node) -> None:
    elsewhere = node.path.with_name("elsewhere")
    node.path.rename(elsewhere)
    node.path.symlink_to(elsewhere)


def _opened(node: Node) -> None:
    node.path.parent.chmod(0o777)


def _another(node: Node) -> None:
    data = bytearray(node.path.read_bytes())
    data[32:40] = (1).to_bytes(8, "little")
    node.path.write_bytes(data)


def _huge(node: Node) -> None:
    os.truncate(node.path, LARGEST_RING_BYTES + 1)


def _piped(node: Node) -> None:
    node.path.unlink()
    os.mkfifo(node.path)


def _foreign(node: Node) -> None:
    if os.geteuid():
        pytest.skip("only root can give a file to another user")
    os.chown(node.path, 12345, -1)


def _given_up(node: Node) -> None:
    with node.path.open("r+b") as file:
        file.seek(SWALLOWED_AT)
        file.write(MOST_FAILURES.to_bytes(8, "little"))


@pytest.mark.parametrize("spoil", [_linked, _opened, _another, _huge, _piped, _foreign, _given_up])
def test_a_file_that_another_could_have_made_is_refused(node: Node, spoil: object) -> None:
    """A link, a folder open to all, another's header, a huge file, a pipe, another's, one that was given up: told once."""
    spoil(node)  # type: ignore[operator]

    first, second = node.run(Request("recorders")), node.run()

    assert [each for each in first + second if isinstance(each, Ring)] == []
    assert sum(path.endswith(str(node.path)) for path in node.collector.rejected) == 1  # other jobs may run here
    node.path.parent.chmod(0o700)


def test_refusals_are_records_with_a_reason(node: Node) -> None:
    """What was refused, and why, reaches the one who looks for the ring."""
    node.path.write_bytes(b"not a ring")

    yielded = []
    with pytest.raises(NothingToCollect, match="has the probe"):
        yielded.extend(node.collector(None))

    node.collector.rejected.clear()
    found = node.collector(None)
    unread = next(each for each in found if isinstance(each, Unread))
    assert (unread.outcome, unread.rank) == ("refused", 3)
    assert (unread.source.endswith(str(node.path)), unread.reason) == (True, NO_RING)
