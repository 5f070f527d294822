"""A collector that hangs delays neither SIGTERM nor the pings of the service manager's watchdog: real processes and sockets."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from collectors.agent.notify import Notify
from tests.support.agent_service import agent_service
from tests.support.bounds import in_time

pytestmark = pytest.mark.system

REPOSITORY = Path(__file__).resolve().parents[3]
LEAVING_SECONDS = 5.0  # docs/agent.md
HELD_SECONDS = 8.0  # in which an agent has ended that waits 1.5 s for its interpreter
BUSY_SECONDS = 1.0  # what a process of busy threads waits for its interpreter
BUSY = f"""
import threading
from collectors.agent import notify
notify.HELD_SECONDS = {BUSY_SECONDS}
notify.watch_the_interpreter()
def spin():
    while True:
        pass
for _ in range(4):
    threading.Thread(target=spin).start()
print("busy", flush=True)
"""


@contextmanager
def reported(folder: Path) -> Iterator[socket.socket]:
    """Return the service manager's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(folder / "notify"))
        manager.settimeout(60)
        yield manager


@contextmanager
def hung(folder: Path, way: str) -> Iterator[tuple[subprocess.Popen[str], socket.socket]]:
    """Run an agent under a service manager until its collector hangs."""
    with agent_service() as service, reported(folder) as manager:
        mine = {"NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": "900000"}
        command = [sys.executable, "-m", "tests.support.hung_agent", str(folder), service.url, way]
        process = subprocess.Popen(command, cwd=REPOSITORY, env=os.environ | mine, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        try:
            assert service.wait((folder / "hangs").exists)
            yield process, manager
        finally:
            process.kill()
            process.wait()
            process.stderr.close()


def heard(manager: socket.socket, word: str, times: int = 1) -> bool:
    """Return whether the manager hears a word so often, whatever else it hears."""
    while times:
        times -= manager.recv(100).decode() == word
    return True


@pytest.mark.parametrize("way", ["apart", "pool"])
def test_a_hung_collector_delays_neither_pings_nor_the_end(tmp_path: Path, way: str) -> None:
    """With a parser that never ends, or a thread that never does, the agent is ready, pings on, and leaves at SIGTERM."""
    with hung(tmp_path, way) as (process, manager):
        assert heard(manager, "READY=1")
        assert heard(manager, "WATCHDOG=1", 5)
        below = psutil.Process(process.pid).children()
        began_at = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert heard(manager, "STOPPING=1")
        assert process.wait(60) == 0
        assert in_time(time.monotonic() - began_at, LEAVING_SECONDS)
        gone, alive = psutil.wait_procs(below, timeout=30)

    assert (len(gone), alive) == (len(below), [])


def test_a_thread_that_keeps_the_interpreter_is_ended_from_inside(tmp_path: Path) -> None:
    """Where not even a signal's handler can run, the process ends with every thread's stack, and the watchdog hears no ping."""
    with hung(tmp_path, "held") as (process, _):
        began_at = time.monotonic()
        process.send_signal(signal.SIGTERM)
        code = process.wait(120)  # its own processor time counts, and it yields to everyone
        assert process.stderr is not None
        stacks = process.stderr.read()

    assert (code, in_time(time.monotonic() - began_at, HELD_SECONDS)) == (-signal.SIGPROF, True)
    assert "hung_agent.py" in stacks


def test_a_process_that_gets_no_processor_is_not_ended() -> None:
    """A machine that is overloaded or suspended for longer than the watch waits ends no agent: no thread of it is to blame."""
    process = subprocess.Popen([sys.executable, "-c", BUSY], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "busy\n"
        for _ in range(3):
            process.send_signal(signal.SIGSTOP)
            time.sleep(1.5 * BUSY_SECONDS)
            process.send_signal(signal.SIGCONT)
            time.sleep(0.3 * BUSY_SECONDS)
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


def test_no_manager_is_told_nothing(tmp_path: Path) -> None:
    """Without a socket, with one that is gone and with another process's watchdog nothing is sent and nothing fails."""
    environment = {"NOTIFY_SOCKET": str(tmp_path / "gone"), "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}
    notify = Notify(environment)
    notify.ready()
    notify.alive()

    assert environment == {}
    assert notify.every_seconds == float("inf")
    assert Notify({"WATCHDOG_USEC": "3000000"}).every_seconds == 1.0
    Notify({}).stopping()


def test_an_abstract_socket_is_reached() -> None:
    """A manager's socket without a file, as systemd may give one, hears the agent."""
    name = f"faulthound-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}")
        manager.settimeout(10)
        Notify({"NOTIFY_SOCKET": f"@{name}"}).ready()

        assert manager.recv(100) == b"READY=1"
