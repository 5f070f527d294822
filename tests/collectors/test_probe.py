"""The probe in real gloo jobs: it tells what the flight recorder tells and more, and the job does not notice it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import deque
from pathlib import Path

import pytest

from collectors import faulthound_probe
from collectors.formats.probe_ring import parse
from tests.support.needs import needs_torch
from tests.support.probed_runs import REPOSITORY, image, start

pytestmark = pytest.mark.system


needs_torch("real jobs cannot be started")


def left_behind(tmp_path: Path) -> list[str]:
    """Return the files in the folders of rings."""
    return sorted(path.name for path in tmp_path.glob("faulthound-*/*"))


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a job of two ranks that called everything there is."""
    folder = tmp_path_factory.mktemp("everything")
    ended = start(folder, "everything", ranks=2)
    assert [one.returncode for one in ended] == [0, 0], ended[0].stderr[-2000:] + ended[1].stderr[-2000:]
    return folder


ALIKE = {"_all_gather_base": "all_gather", "_reduce_scatter_base": "all_reduce"}
"""What gloo's recorder calls otherwise than NCCL's."""


@pytest.mark.parametrize("rank", [0, 1])
def test_sequence_numbers_are_the_flight_recorders(reported: Path, rank: int) -> None:
    """Every collective that Python issued has the number and the operation that the flight recorder has for it."""
    recorded = {
        (group, number): name for group, number, name in json.loads((reported / f"recorded{rank}.json").read_text())
    }
    ring = image(reported, rank)

    seen = {
        (ring.groups[entry.group].name, entry.collective_seq): ring.names[entry.operation]
        for entry in ring.entries
        if not entry.p2p_seq
    }

    assert len(seen) > 15
    assert {key: f"gloo:{ALIKE.get(name, name)}" for key, name in seen.items()}.items() <= recorded.items()


def test_what_python_did_not_issue_is_noticed(reported: Path) -> None:
    """DDP's buckets are in the recorder and not in the ring, which says of that group that some went by."""
    ring = image(reported)

    recorded = json.loads((reported / "recorded0.json").read_text())

    assert len(recorded) > len([entry for entry in ring.entries if not entry.p2p_seq])
    assert ring.unseen == ("0",)


def test_transfers_are_reported_with_their_ends_and_counted(reported: Path) -> None:
    """Sends and receives are numbered along each pair and direction, in group-local ranks."""
    transfers = [
        [(ring.names[entry.operation], entry.p2p_seq) for entry in ring.entries if entry.p2p_seq]
        for ring in (image(reported, 0), image(reported, 1))
    ]

    assert transfers == [
        [("send 0->1", 1), ("send 0->1", 2), ("recv 0<-1", 1), ("send 0->1", 3)],
        [("recv 1<-0", 1), ("send 1->0", 1), ("recv 1<-0", 2), ("recv 1<-?", 1)],
    ]


def test_only_what_is_outstanding_is_still_inside(reported: Path) -> None:
    """What was waited for, polled or dropped is left; the one that was not waited for yet is not."""
    ring = image(reported)

    inside = [entry.left_ns < 0 for entry in ring.entries]

    assert inside == [False] * (len(inside) - 1) + [True]
    assert all(entry.left_ns >= entry.entered_ns for entry in ring.entries[:-1])
    assert ring.swallowed == ring.torn == 0


def test_groups_steps_and_phases_are_reported(reported: Path) -> None:
    """The ring lists members, counts the first optimizer's steps, and knows rank and world."""
    ring = image(reported, 1)

    assert {(group.name, group.description, group.members.ranks()) for group in ring.groups if group.members} == {
        ("0", "default_pg", (0, 1)),
        ("1", "pair", (0, 1)),
    }
    assert [step for _, step, _ in ring.steps] == [1, 2]
    assert (ring.rank, ring.world_size, ring.step, ring.names[-1]) == (1, 2, 2, "optimizer")


def test_a_job_that_ends_leaves_nothing(reported: Path) -> None:
    """Ring and socket are gone after an ordinary end."""
    assert left_behind(reported) == []


def test_results_are_the_same_to_the_last_bit(tmp_path: Path) -> None:
    """Twenty steps of DDP print the same parameters with and without the probe."""
    printed = [
        [(one.returncode, one.stdout) for one in start(tmp_path, "train", ranks=2, WITH_PROBE=with_probe)]
        for with_probe in "10"
    ]

    assert printed[0] == printed[1]
    assert printed[0][0][0] == 0


def test_a_job_of_ddp_alone_has_a_ring(tmp_path: Path) -> None:
    """Where Python calls no collective the ring still has rank, world, steps and group, and proves nothing by absence."""
    ended = start(tmp_path, "ddp", ranks=2)

    assert [one.returncode for one in ended] == [0, 0], ended[0].stderr[-2000:]
    for rank in range(2):
        ring = image(tmp_path, rank)
        assert (ring.rank, ring.world_size, len(ring.steps), ring.entries, ring.unseen) == (rank, 2, 3, (), ("0",))
    assert left_behind(tmp_path) == []


def test_the_rings_of_killed_and_waiting_ranks_stay(tmp_path: Path) -> None:
    """After a SIGKILL both rings show it: the dead rank was in nothing, the other had waited for its send and failed."""
    start(tmp_path, "stuck", ranks=2)

    rings = {ring.rank: ring for ring in map(parse, (path.read_bytes() for path in tmp_path.glob("*/*.ring")))}

    assert [entry.left_ns > 0 for entry in rings[0].entries] == [True]
    assert [(rings[1].names[entry.operation], entry.failed) for entry in rings[1].entries] == [
        ("all_reduce", 0),
        ("recv 1<-0", 1),
    ]


def test_a_forked_child_leaves_its_parents_ring_alone(tmp_path: Path) -> None:
    """What a child drops of its parent's work is not noted in the parent's ring, where it is still inside."""
    (ended,) = start(tmp_path, "forked")

    assert (ended.returncode, ended.stdout) == (0, "trained\n"), ended.stderr
    assert [entry.left_ns < 0 for entry in image(tmp_path).entries] == [False, True]
    assert left_behind(tmp_path) == []


def test_failures_inside_are_swallowed_and_counted(tmp_path: Path) -> None:
    """A torch that answers nothing costs the job nothing; after 100 failures the probe is off."""
    (ended,) = start(tmp_path, "sabotaged")

    assert (ended.returncode, ended.stdout) == (0, "trained\n"), ended.stderr
    assert image(tmp_path).swallowed == faulthound_probe.MOST_FAILURES


def test_without_a_place_for_the_ring_the_job_runs(tmp_path: Path) -> None:
    """Where others could write into the folder no ring is made, and the job sees no error."""
    folder = tmp_path / f"faulthound-{os.geteuid()}"
    folder.mkdir()
    folder.chmod(0o777)

    (ended,) = start(tmp_path, "plain")

    assert (ended.returncode, ended.stdout) == (0, "rings: 0\n"), ended.stderr


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that another user made in /dev/shm does not lead the ring elsewhere."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / f"faulthound-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("FAULTHOUND_PROBE_DIR", str(tmp_path))

    with pytest.raises(PermissionError, match="remove it"):
        faulthound_probe._folder()


def test_an_exception_leaves_the_ring_to_the_agent(tmp_path: Path) -> None:
    """After an uncaught exception the ring stays and its socket does not; the traceback is the job's own."""
    (ended,) = start(tmp_path, "plain", RAISES="1")

    assert ended.returncode == 1
    assert ended.stderr.endswith("ValueError: sample 4711 is damaged\n")
    assert [name.rpartition(".")[2] for name in left_behind(tmp_path)] == ["ring"]


def test_a_script_needs_no_import(tmp_path: Path) -> None:
    """`python -m faulthound_probe SCRIPT ARGUMENTS` runs the script as it would have run, with a ring."""
    for source in ("collectors/faulthound_probe.py", "tests/support/probed_jobs.py"):
        shutil.copy(REPOSITORY / source, tmp_path)
    command = [sys.executable, "-m", "faulthound_probe", "probed_jobs.py", "plain", "0", "1", str(tmp_path)]
    own = {
        "PATH": os.environ["PATH"],
        "FAULTHOUND_PROBE_DIR": str(tmp_path),
        "WITH_PROBE": "0",
        "GLOO_SOCKET_IFNAME": "lo",
    }

    ended = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True, timeout=60)

    assert (ended.returncode, ended.stdout) == (0, "rings: 1\n"), ended.stderr


class Event:
    """A CUDA event of a device that has passed what the test says."""

    passed = 0.0
    now = 0.0

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        """Note where the stream is."""
        self.at = Event.now

    def query(self) -> bool:
        """Say whether the device has come that far; never wait. CUDA ends a capture at this question."""
        assert not Cuda.capturing
        return self.at <= Event.passed

    def elapsed_time(self, end: Event) -> float:
        """Return milliseconds between two events that were passed, as CUDA refuses to otherwise."""
        assert self.query()
        assert end.query()
        return end.at - self.at


class Cuda:
    """What the probe uses of torch.cuda."""

    Event = Event
    capturing = False
    initialized = True

    def is_initialized(self) -> bool:
        """Say whether this process has used the device."""
        return self.initialized

    def is_current_stream_capturing(self) -> bool:
        """Say whether a graph is being captured; torch begins a context for the answer."""
        assert self.initialized
        return Cuda.capturing


def test_device_timings_are_read_without_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Phases are timed by the device and reported once it has passed them; nothing is recorded into a captured graph."""
    ring = faulthound_probe.Ring(str(tmp_path / "1.ring"), 0, 1)
    cuda = Cuda()
    device = faulthound_probe._Device(cuda, ring)
    for at, phase in ((0.0, "forward"), (30.0, "backward"), (90.0, "")):
        Event.now = at
        device.change(phase)
    Event.passed = 50.0
    device.read()
    first = parse((tmp_path / "1.ring").read_bytes()).timings
    Event.passed = 100.0
    monkeypatch.setattr(Cuda, "capturing", True)
    device.read()
    device.change("forward")
    device.change("")
    captured = parse((tmp_path / "1.ring").read_bytes()).timings
    monkeypatch.setattr(Cuda, "capturing", False)
    device.read()

    assert first == captured == ((1, "forward", -1, 30_000_000),)
    assert parse((tmp_path / "1.ring").read_bytes()).timings == (*first, (2, "backward", -1, 60_000_000))
    assert device.passed == deque()


def test_a_job_that_does_not_use_the_device_gets_no_context(tmp_path: Path) -> None:
    """Until the job begins to use CUDA, the probe records no event and asks the driver nothing."""
    cuda = Cuda()
    cuda.initialized = False
    device = faulthound_probe._Device(cuda, faulthound_probe.Ring(str(tmp_path / "1.ring"), 0, 1))
    device.change("forward")
    device.change("")
    device.read()

    assert (device.event(), device.phase, device.passed) == (None, None, deque())
