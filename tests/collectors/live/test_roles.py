"""Processes without RANK: who they are by FAULTHOUND_ROLE, a Ray actor's name or a title; each keeps its number."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from collectors.live.placement import _placement
from collectors.live.sources.names import Named, actor_of, role_and_number, titled
from collectors.live.sources.process_table import ProcessTable
from collectors.live.sources.ranks import PlaceNumbers, TrainingProcess, read_rank
from collectors.records.identity import PLACED, placed_rank, shown_rank, with_role
from tests.support.process_rows import scanned


def environment(**variables: str) -> bytes:
    """Write an environment as /proc has it."""
    return b"".join(f"{name}={value}\0".encode() for name, value in variables.items())


@contextmanager
def running(job: str, *started: tuple[str | None, Mapping[str, str]]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start processes, each with a title or None, and variables."""
    processes = [
        subprocess.Popen(
            [title or sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"], executable=sys.executable,
            env=os.environ | {"FAULTHOUND_JOB": job} | variables, stdout=subprocess.PIPE,
        )
        for title, variables in started
    ]  # fmt: skip
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def seats(table: ProcessTable, job: str) -> list[tuple[str | None, int]]:
    """Return role and rank of a job's processes."""
    return sorted((one.role, one.rank) for one in scanned(table) if one.job == job)


def test_six_of_two_roles_are_six() -> None:
    """Two trainers and four rollouts, each counting from 0, by variables and by titles."""
    job = f"roles-{uuid.uuid4().hex[:8]}"
    expected = [("rollout", rank) for rank in range(4)] + [("trainer", rank) for rank in range(2)]
    by_variables = [(None, {"FAULTHOUND_ROLE": str(role), "RANK": str(rank)}) for role, rank in expected]
    by_titles = [(f"ray::{role.capitalize()}-{rank}", dict[str, str]()) for role, rank in expected]
    for started in (by_variables, by_titles):
        with running(job, *started):
            assert seats(ProcessTable(Path("/proc"), "n0"), job) == expected


def test_a_role_alone_makes_a_rank_with_a_number_of_its_place() -> None:
    """Each keeps its number while it lives; a new process takes the lowest free one."""
    job, table = f"roles-{uuid.uuid4().hex[:8]}", ProcessTable(Path("/proc"), "n0")
    reward = (None, {"FAULTHOUND_ROLE": "reward"})
    with running(job, reward, reward, reward) as (first, _, _):
        before = {one.pid: one.rank for one in scanned(table) if one.job == job}
        assert sorted(before.values()) == [placed_rank("n0", index) for index in range(3)]
        first.kill()
        first.wait()
        after = {one.pid: one.rank for one in scanned(table) if one.job == job}
        assert after == {pid: rank for pid, rank in before.items() if pid != first.pid}
        with running(job, reward):
            assert sorted(rank for _, rank in seats(table, job)) == sorted(before.values())


def test_a_title_that_could_not_be_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may answer late; the process is not taken for a stranger for good."""
    job, table = f"roles-{uuid.uuid4().hex[:8]}", ProcessTable(Path("/proc"), "n0")
    read, late = table._reader.read, [True]

    def slow(path: str, most: int) -> bytes:
        if late[0] and path.endswith("/cmdline"):
            raise TimeoutError(path)
        return read(path, most)

    monkeypatch.setattr(table._reader, "read", slow)
    with running(job, ("ray::Rollout-0", {})):
        assert seats(table, job) == []
        late[0] = False
        assert seats(table, job) == [("rollout", 0)]


def test_an_actor_that_begins_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it calls itself is known when `__init__` has ended; the kernel's short name of a long title stays the same."""
    job, table = f"roles-{uuid.uuid4().hex[:8]}", ProcessTable(Path("/proc"), "n0")
    read, titles = table._reader.read, [b"ray::Rollout.__init__\0", b"ray::Rollout-3.work\0"]

    def entitled(path: str, most: int) -> bytes:
        return titles[0] if path == f"/proc/{one.pid}/cmdline" else read(path, most)

    with running(job, ("python", {})) as (one,):
        monkeypatch.setattr(table._reader, "read", entitled)
        assert seats(table, job) == [("rollout", placed_rank("n0", 0))]
        titles.pop(0)
        assert seats(table, job) == [("rollout", 3)]
        titles[0] = b"ray::Rollout-4.work\0"
        assert seats(table, job) == [("rollout", 3)]  # the same program: it is not read at every scan


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (b"ray::Rollout.generate\0\0\0", "Rollout"),
        (b"ray::IDLE\0\0", ""),
        (b"ray::prepare_batch\0", ""),  # a task on a worker that is idle before and after
        (b"ray::DashboardAgent\0", ""),
        (b"python\0/ray/_private/workers/default_worker.py\0--node-ip\0", ""),
        (b"VLLM::EngineCore_DP0\0", "EngineCore_DP0"),
        (b"sglang::scheduler_PP2_TP1\0", "scheduler_PP2_TP1"),
        (b"python\0train.py\0", None),
    ],
)
def test_titles(command: bytes, expected: str | None) -> None:
    """An actor has a class's name, and what is no work has none."""
    assert titled(command) == expected


def test_names_state_roles_and_numbers() -> None:
    """As people and frameworks write them."""
    found = {
        name: role_and_number(name) for name in ("rollout_3", "abcWorkerDict_0:1", "Reward(2)", "sglang", "TaskRunner")
    }

    assert found == {
        "rollout_3": ("rollout", 3), "abcWorkerDict_0:1": ("abc_worker_dict_0", 1), "Reward(2)": ("reward", 2),
        "sglang": ("sglang", None), "TaskRunner": ("task_runner", None),
    }  # fmt: skip


def test_a_ray_actor_s_output_names_it_and_its_job() -> None:
    """A worker that was started ahead has no job in its environment, and FAULTHOUND_ROLE of the raylet, its parent."""
    output = b":job_id:01000000\n:actor_name:rollout-7\n"
    named = Named("Engine", output, inherited_role="controller", of_ray=True)
    found = read_rank(environment(RAY_JOB_ID="ffffffff", FAULTHOUND_ROLE="controller"), named=named)

    assert found is not None
    assert (found.role, found.rank, found.job, found.launcher) == ("rollout", 7, "ray-01000000", "ray")


@pytest.mark.parametrize(
    ("output", "name"),
    [
        (b":job_id:01000000\n:actor_name:Rollout\n", "Rollout"),
        (b":job_id:01000000\n:actor_name:Rollout\nloading\n:actor_name:rollout-3\n", "rollout-3"),
        (b":actor_name:Rollout\n:actor_name:rollout-3\n:actor_name:printed by its program\n", "rollout-3"),
        (b"loading\n", None),
    ],
)
def test_an_actor_is_called_as_it_calls_itself(output: bytes, name: str | None) -> None:
    """Ray writes its class when it starts, and what its `__repr__` returns after `__init__`."""
    assert actor_of(output) == name


def test_an_engine_that_serves_alone_is_no_job() -> None:
    """Its title says nothing of a job; with a job's name it is a rank."""
    engine = Named("EngineCore_DP0")

    assert read_rank(environment(HOME="/root"), named=engine) is None
    found = read_rank(environment(FAULTHOUND_JOB="rl"), named=engine)
    assert found is not None
    assert (found.role, found.job) == ("engine_core", "rl")


def test_a_placement_states_the_size_of_each_role() -> None:
    """One number for all where all share one, else one a process."""

    def process(role: str, rank: int, size: int) -> TrainingProcess:
        return TrainingProcess(pid=rank + 10 * size, rank=rank, job="rl", attempt=0, role=role, world_size=size)

    mixed = _placement("n0", [process("trainer", 0, 2), process("rollout", 0, 4)])
    alone = _placement("n0", [process("trainer", 0, 2), process("trainer", 1, 2)])

    assert (mixed.world_size, mixed.world_sizes, mixed.roles) == (None, (4, 2), ("rollout", "trainer"))
    assert (alone.world_size, alone.world_sizes) == (2, ())


def test_numbers_end_where_a_role_has_too_many_processes() -> None:
    """Beyond its part of the numbers a node's process would be another node's."""
    many = [TrainingProcess(pid=pid, rank=-1, job="rl", role="environment") for pid in range(300)]

    ranks = [one.rank for one in PlaceNumbers("n0").numbered(many)]
    assert len(set(ranks)) == len(ranks) == 256
    assert min(ranks) >= PLACED
    assert shown_rank(max(ranks)) == "#255"


def test_sentences_get_roles() -> None:
    """Numbers of ranks, not of groups, devices or nodes."""
    text = f"rank {placed_rank('n0', 3)} waits for ranks 0-1 in step 1234567; local rank 2 and group rank 1 do not"

    assert (
        with_role(text, "env")
        == "env rank #3 waits for env ranks 0-1 in step 1234567; local rank 2 and group rank 1 do not"
    )
