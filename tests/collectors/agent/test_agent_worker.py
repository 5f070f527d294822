"""A collector in a process of its own: what it yields arrives, and a call that never returns costs that process only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from collectors.agent import worker
from collectors.agent.runner import LimitExceeded
from collectors.agent.worker import Worker, WorkerFailed
from collectors.files import patience
from collectors.live import Collector, Cursor, NothingToCollect, Readings, Request, Run
from collectors.live.sources.host import Host
from collectors.records import LogEvent
from tests.support.bounds import in_time

pytestmark = pytest.mark.system

REPOSITORY = Path(__file__).resolve().parents[3]


def make(_host: Host) -> Run:
    """Stand in the agent for what only the worker's process makes."""
    raise AssertionError("the agent must not make it")


make.__module__ = "tests.support.worker_fakes"
OBEDIENT = Collector("obedient", "a test", 1.0, 1.5, make, own_process=True)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The file with the collector's instructions."""
    path = tmp_path / "script"
    path.write_text("record")
    return path


@pytest.fixture
def obedient(script: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """A worker whose process imports the fakes."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.setenv("FAULTHOUND_TOKEN", "fh_secret")
    one = Worker(OBEDIENT, Host("gpu-0001", options={"obedient": {"script": str(script)}}))
    yield one
    one.close()


def pid(one: Worker) -> int:
    """Return the process id of the newest run's record."""
    (record,) = (yielded for yielded in one(None) if isinstance(yielded, LogEvent))
    assert record.pid is not None
    return record.pid


def test_records_readings_and_cursors_arrive(obedient: Worker, script: Path) -> None:
    """What the child yields comes out as it went in, what it prints does not, and one child serves all runs."""
    script.write_text("record readings cursor")

    first, second = list(obedient(None)), list(obedient(Request("stacks", {"ranks": [1]})))

    assert first[1:] == [Readings("gpu", ["a"], ["x"], [[None]]), Cursor(1)]
    assert isinstance(first[0], LogEvent)
    assert isinstance(second[0], LogEvent)
    assert first[0].pid == second[0].pid != os.getpid()
    assert second[0].text == "stacks"


def test_the_child_does_not_have_the_token(obedient: Worker) -> None:
    """The token of the agent's environment is not in that of a process that loads a driver's library."""
    assert b"fh_secret" not in Path(f"/proc/{pid(obedient)}/environ").read_bytes()


def test_nothing_and_failures_come_out_as_such(obedient: Worker, script: Path) -> None:
    """NothingToCollect comes out as itself and an exception as a failure with its words; the child stays for the next run."""
    before = pid(obedient)
    script.write_text("nothing")
    with pytest.raises(NothingToCollect, match="no such device"):
        list(obedient(None))
    script.write_text("record raise")
    with pytest.raises(WorkerFailed, match="RuntimeError: the driver says no"):
        list(obedient(None))
    script.write_text("record")

    assert pid(obedient) == before


def test_no_process_stands_by_where_there_is_nothing(obedient: Worker, script: Path) -> None:
    """A child that found nothing since its start ends, and the next runs repeat why without starting another."""
    script.write_text("nothing")
    children = psutil.Process().children
    before = {child.pid for child in children()}
    for _ in range(3):
        with pytest.raises(NothingToCollect, match="no such device"):
            list(obedient(None))

    assert {child.pid for child in children()} <= before


def test_a_hang_is_killed_at_the_bound(obedient: Worker, script: Path) -> None:
    """A run past its bound kills the child, keeps what came before, and the next run waits before it starts another."""
    before = pid(obedient)
    script.write_text("record hang")
    came, began_at = [], time.monotonic()
    with pytest.raises(LimitExceeded, match=r"1\.5 s"):
        came.extend(obedient(None))
    with pytest.raises(WorkerFailed, match="the next is started in"):
        list(obedient(None))
    script.write_text("record")
    time.sleep(1.0)

    assert in_time(time.monotonic() - began_at, 6)
    assert len(came) == 1
    assert not psutil.pid_exists(before)
    assert pid(obedient) != before


def test_a_process_that_gets_no_processor_has_not_hung(
    obedient: Worker, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy node it may be later than its bound, and is killed only where it gets no turn for several times as long."""
    first = pid(obedient)
    monkeypatch.setattr(patience, "turn", lambda _pid: ("R", 0.1))

    script.write_text("slow record")
    assert pid(obedient) == first
    monkeypatch.setattr(patience, "BUSY_TIMES", 2.0)
    script.write_text("hang")
    with pytest.raises(LimitExceeded, match=r"the node is busy, its process got 0\.0 s"):
        list(obedient(None))


def test_a_process_that_uses_its_bound_of_the_processor_has_hung(
    obedient: Worker, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that spins is no busy node."""
    pid(obedient)
    used = iter(range(100))
    monkeypatch.setattr(patience, "turn", lambda _pid: ("R", float(next(used))))
    script.write_text("hang")
    with pytest.raises(LimitExceeded, match=r"killed at its bound of 1\.5 s"):
        list(obedient(None))


def test_a_crash_is_reported_with_its_signal(obedient: Worker, script: Path) -> None:
    """A child that dies of a signal is a failure that names it; a later run has a new child."""
    script.write_text("die")
    with pytest.raises(WorkerFailed, match="signal 11"):
        list(obedient(None))
    script.write_text("record")
    time.sleep(1.2)

    assert psutil.pid_exists(pid(obedient))


def test_there_is_never_a_second_beside_one_that_cannot_die(obedient: Worker, script: Path) -> None:
    """While a killed child still exists (a call in the kernel that does not return) no other is started."""
    stuck = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        pid(obedient)
        obedient.close()
        obedient._process = stuck  # stands for one that SIGKILL does not end

        with pytest.raises(WorkerFailed, match=f"process {stuck.pid} was killed and is still there"):
            list(obedient(None))
    finally:
        stuck.kill()
        stuck.wait()
        obedient._process = None


def test_the_child_dies_with_the_agent(script: Path, tmp_path: Path) -> None:
    """When the agent is killed while its child hangs in a call, the child is gone too."""
    script.write_text("record hang")
    program = (
        "import sys\nfrom tests.collectors.agent.test_agent_worker import OBEDIENT, Worker\n"
        "from collectors.live.sources.host import Host\n"
        f"for one in Worker(OBEDIENT, Host('n', options={{'obedient': {{'script': {str(script)!r}}}}}))(None):\n"
        "    print(one.pid, flush=True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    agent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment)
    assert agent.stdout is not None
    child = int(agent.stdout.readline())
    assert psutil.pid_exists(child)

    agent.send_signal(signal.SIGKILL)
    agent.wait()

    deadline = time.monotonic() + 60
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    agent.stdout.close()


def test_a_message_out_of_bounds_is_refused() -> None:
    """A child that says an absurd length is not believed: the agent's memory stays bounded."""
    with pytest.raises(WorkerFailed, match="more than"):
        worker._whole(bytearray(b"\xff\xff\xff\xff rest"))
