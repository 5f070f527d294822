"""The ring collector: what it tells once, where the next agent goes on, and whose files it reads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.faulthound_probe import HEADER_BYTES, MOST_FAILURES, SWALLOWED_AT
from collectors.formats.probe_ring import LARGEST_RING_BYTES, NEWEST_HASHES
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
    ring.hash(step, time.monotonic_ns(), 7000 + step)
ring.enter(group, ring.name("recv 3<-1"), 0, 1, 64)
print("ready", flush=True)
time.sleep(60)
"""


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
    assert array("q", ring.hashes["hash"]).tolist() == [7000 + step for step in range(100 - NEWEST_HASHES + 1, 101)]
    assert [each.hashed for each in asked if isinstance(each, Ring)] == [100]


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
    """A process that died while no agent ran is reported with its job, by the cursor; one reported before is not again."""
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
    """A link, a folder open to all, another's header, a huge file, a pipe, another's, one that was given up: reported once."""
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
