"""A real agent process against a real HTTP service: killed at any instant, every record arrives exactly once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from collectors.records import Coverage, LogEvent, Samples
from tests.support.agent_service import AgentService, Reply, agent_service

pytestmark = pytest.mark.system


REPOSITORY = Path(__file__).resolve().parents[3]
KILLS = int(os.environ.get("FAULTHOUND_KILLS", "12"))  # more of them, in more time: the same test


def started(state: Path, service: AgentService, *leaving: str) -> subprocess.Popen[bytes]:
    """Start an agent, with its own bound for what it ships after SIGTERM or another one."""
    command = [sys.executable, "-m", "tests.support.agent_under_test", str(state), service.url, *leaving]
    return subprocess.Popen(command, cwd=REPOSITORY)


def status_of(state: Path) -> int | None:
    """Return the process id of the agent that last wrote its status: it runs, and hears SIGTERM."""
    try:
        return int(json.loads((state / "status.json").read_bytes())["pid"])
    except FileNotFoundError:
        return None


@contextmanager
def agent(state: Path, service: AgentService) -> Iterator[subprocess.Popen[bytes]]:
    """Run an agent for a ``with`` block, and end it as an init system does."""
    with started(state, service) as process:
        try:
            assert service.wait(lambda: status_of(state) == process.pid)
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_every_record_arrives_exactly_once_over_kills(tmp_path: Path) -> None:
    """Over many kill -9 of the agent and lost answers of the service no number is missing and none comes twice."""
    chance = random.Random(7)
    with agent_service() as service:
        for _ in range(KILLS):
            before = len(service.batches)
            service.script.extend(Reply(503, take=chance.random() < 0.5) for _ in range(chance.randrange(2)))
            process = started(tmp_path, service)
            assert service.wait(lambda before=before: len(service.batches) > before)  # type: ignore[misc]
            time.sleep(chance.uniform(0.0, 0.3))
            process.kill()
            process.wait()
        with agent(tmp_path, service):
            time.sleep(1.0)
        numbers = [event.sequence for event in service.records(LogEvent)]
        ticks = [tick for samples in service.records(Samples) for tick in array("d", samples.ticks)]

    assert len(numbers) > KILLS * 5
    assert numbers == list(range(len(numbers)))
    assert len(set(ticks)) == len(ticks) > KILLS * 5
    assert [path.suffix for path in tmp_path.iterdir() if path.suffix in {".seg", ".fhb", ".tmp"}] == []


def test_sigterm_ships_what_there_is(tmp_path: Path) -> None:
    """An agent that is asked to stop seals and ships the rest with its last account, and leaves."""
    with agent_service() as service:
        process = started(tmp_path, service, "60")
        assert service.wait(lambda: len(service.batches) >= 2 and status_of(tmp_path) == process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 0
        coverage = service.records(Coverage)[-1]

    assert {one.name: one.failures for one in coverage.collectors} == {"counted": 0, "sampled": 0}
    assert list(tmp_path.glob("*.fhb")) == list(tmp_path.glob("*.seg")) == []


def test_sigterm_without_a_service_keeps_what_there_is(tmp_path: Path) -> None:
    """Where the service is away, the agent leaves in time all the same, and the next one ships what it kept."""
    with agent_service() as service:
        service.script.extend(Reply(503) for _ in range(1000))
        with agent(tmp_path, service):
            time.sleep(1.0)
        assert list(tmp_path.glob("*.fhb"))
        service.script.clear()
        with agent(tmp_path, service):
            assert service.wait(lambda: len(service.batches) >= 3)
        numbers = [event.sequence for event in service.records(LogEvent)]

    assert numbers == list(range(len(numbers)))


def test_a_second_agent_on_one_folder_leaves(tmp_path: Path) -> None:
    """A second agent on the same state folder says whose it is and leaves; the first one runs on."""
    with agent_service() as service, agent(tmp_path, service) as first:
        assert service.wait(lambda: len(service.batches) >= 1)
        command = ["-m", "collectors.agent", "run", "--service", service.url, "--state", str(tmp_path)]
        second = subprocess.run([sys.executable, *command], cwd=REPOSITORY, capture_output=True, text=True, timeout=20)

    assert second.returncode == 3
    assert f"the agent with process id {first.pid} runs on {tmp_path}" in second.stderr


def test_the_agent_comes_after_the_job(tmp_path: Path) -> None:
    """The agent runs at low priority and is what the kernel kills first where memory runs out."""
    with agent_service() as service, agent(tmp_path, service) as process:
        assert service.wait(lambda: len(service.batches) >= 1)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) >= 10
        assert int(Path(f"/proc/{process.pid}/oom_score_adj").read_text()) == 500
