"""Which processes train: ranks found in the trees that real launchers make, and nothing else taken out of environments."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.files.process_stat import parse
from collectors.live import NothingToCollect, Request
from collectors.live.placement import Placements
from collectors.live.sources.bounded_reading import MOST_STUCK, WAIT_SECONDS
from collectors.live.sources.host import Host, Roots
from collectors.live.sources.process_table import SCANS_OF_THE_YOUNG, ProcessTable
from collectors.live.sources.ranks import ALLOWED, LABELS, LONGEST_VALUE, MOST_RANKS, TrainingProcess, read_rank
from collectors.records import Placement, Unread
from collectors.records.block import encode
from tests.support.bounds import in_time
from tests.support.process_tree import BOOTED_AT, ProcessTree

POD = "11112222-3333-4444-5555-666677778888"
SLURM = {"SLURM_JOB_ID": 4242, "SLURM_JOB_NAME": "llama", "SLURM_NTASKS": 8}


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> float:
        """Return UTC seconds."""
        return BOOTED_AT + self.seconds

    def monotonic(self) -> float:
        """Return seconds since boot."""
        return self.seconds


@pytest.fixture
def tree(tmp_path: Path) -> ProcessTree:
    """An empty node with its first process."""
    made = ProcessTree(tmp_path / "proc")
    made.add(1, 0, name="systemd", command="/sbin/init")
    return made


def torchrun(rank: int, **more: object) -> dict[str, object]:
    """What torchrun puts into a rank's environment."""
    return {
        "RANK": rank, "WORLD_SIZE": 8, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 8, "MASTER_ADDR": "gpu-0001",
        "MASTER_PORT": 29500, "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": 0, "ROLE_NAME": "default", **more,
    }  # fmt: skip


def pids(found: tuple[TrainingProcess, ...]) -> dict[int, int]:
    """Rank → process."""
    return {one.rank: one.pid for one in found}


def claim(variables: Mapping[str, object], control_groups: str = "") -> TrainingProcess | None:
    """What an environment of these variables says."""
    data = b"\0".join(f"{name}={value}".encode() for name, value in variables.items())
    return read_rank(data, control_groups.encode(), "gpu-7")


def known(variables: Mapping[str, object], control_groups: str = "") -> TrainingProcess:
    """What an environment says that does state a rank."""
    found = claim(variables, control_groups)
    assert found is not None
    return found


def test_torchrun_in_a_pod_gives_its_workers_and_neither_agent_nor_loaders(tree: ProcessTree) -> None:
    """The agent has the pod's RANK, loaders repeat their trainer's: only the workers are ranks."""
    pod = {"RANK": 0, "WORLD_SIZE": 2, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    shell = tree.add(10, 1, pod, name="bash", command="bash -c torchrun train.py")
    agent = tree.add(11, shell, pod, name="pt_elastic", command="python -m torch.distributed.run train.py")
    for rank in range(4):
        trainer = tree.add(20 + rank, agent, torchrun(rank), name="pt_main_thread")
        for loader in range(3):
            tree.add(100 + 10 * rank + loader, trainer, torchrun(rank), name="pt_data_worker")
    assert pids(ProcessTable(tree.root).scan()) == {0: 20, 1: 21, 2: 22, 3: 23}


def test_one_worker_under_torchrun_is_the_rank_and_not_its_agent(tree: ProcessTree) -> None:
    """With one worker the agent's inherited rank is the same number: torchrun's own variables distinguish them."""
    agent = tree.add(11, 1, {"RANK": 0, "WORLD_SIZE": 1}, command="python launch.py")
    tree.add(20, agent, torchrun(0))
    assert pids(ProcessTable(tree.root).scan()) == {0: 20}


def test_an_evaluation_below_a_rank_is_the_ranks_own_affair(tree: ProcessTree) -> None:
    """A trainer that starts a small torchrun of its own stays the rank."""
    trainer = tree.add(20, 1, torchrun(3))
    inner = tree.add(30, trainer, torchrun(3), name="pt_elastic", command="python -m torch.distributed.run eval.py")
    tree.add(31, inner, torchrun(0, TORCHELASTIC_RUN_ID="eval"))
    assert pids(ProcessTable(tree.root).scan()) == {3: 20}


def test_slurm_tasks_are_ranks_and_the_batch_script_is_none(tree: ProcessTree) -> None:
    """The script has SLURM_PROCID=0, too; a task's wrapper is none, and what the task spawns with RANK is its child."""
    script = tree.add(10, 1, {**SLURM, "SLURM_PROCID": 0}, name="slurm_script", command="/bin/bash job")
    tree.add(11, script, {**SLURM, "SLURM_PROCID": 0, "SLURM_STEP_ID": 0}, name="srun", command="srun python train.py")
    stepd = tree.add(12, 1, name="slurmstepd", command="slurmstepd: [4242.0]")
    for rank in range(2):
        step = {**SLURM, "SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_STEP_ID": 0}
        wrapper = tree.add(20 + rank, stepd, step, name="bash", command="bash -c python train.py")
        trainer = tree.add(30 + rank, wrapper, step)
        tree.add(40 + rank, trainer, {**step, "RANK": rank, "WORLD_SIZE": 8}, command="python -c spawn_main")
    found = ProcessTable(tree.root).scan()
    assert pids(found) == {0: 30, 1: 31}
    assert {(one.job, one.launcher, one.local_rank, one.world_size) for one in found} == {
        ("llama-4242", "slurm", 0, 8),
        ("llama-4242", "slurm", 1, 8),
    }


def test_deepspeeds_launcher_under_slurm_is_no_rank(tree: ProcessTree) -> None:
    """Its command shows what its variables do not; a trainer that is given --deepspeed is a trainer."""
    step = {**SLURM, "SLURM_PROCID": 1, "SLURM_STEP_ID": 0}
    launcher = tree.add(10, 1, step, command="/usr/bin/python -u -m deepspeed.launcher.launch --nnodes 2 train.py")
    tree.add(11, launcher, {**step, "RANK": 1, "WORLD_SIZE": 2}, command="python train.py --deepspeed zero3.json")
    assert pids(ProcessTable(tree.root).scan()) == {1: 11}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"RANK": 1, "FAULTHOUND_JOB": "llama 405b/β", **SLURM}, "llama-405b-"),
        ({"SLURM_PROCID": 3, "SLURM_STEP_ID": 0, **SLURM}, "llama-4242"),
        ({"RANK": 3, "SLURM_HET_JOB_ID": 4000, **SLURM}, "llama-4000"),
        (torchrun(1, TORCHELASTIC_RUN_ID="exp-7"), "exp-7"),
        (torchrun(1), "gpu-0001:29500"),
        (torchrun(1, MASTER_ADDR="127.0.0.1"), "gpu-7:29500"),
        ({"RANK": 2, "RAY_JOB_ID": "03000000", "RAY_CLUSTER_NAME": "rl"}, "rl-03000000"),
        ({"RANK": 2, "WG_BACKEND": "ray", "WG_PREFIX": "aBc"}, "ray-aBc"),
        ({"RANK": 2, "KUBERNETES_SERVICE_HOST": "x", "MASTER_ADDR": "llama-master-0.ml.svc"}, "llama"),
        ({"RANK": 2, "KUBERNETES_SERVICE_HOST": "x", "JOB_NAME": "pre", "POD_NAMESPACE": "ml"}, "ml.pre"),
        ({"RANK": 2, "JOB_NAME": "jenkins-build"}, "gpu-7"),
        ({"OMPI_COMM_WORLD_RANK": 2}, "gpu-7"),
    ],
)
def test_a_job_has_a_name_that_people_know(variables: dict[str, object], expected: str) -> None:
    """FAULTHOUND_JOB, else Slurm's, torchrun's, Ray's, Kubernetes' name, else where its ranks meet."""
    assert known(variables).job == expected.rstrip("-")


def test_rank_zero_of_a_ray_worker_group_has_its_groups_name() -> None:
    """verl gives MASTER_ADDR to all ranks but the first: the job's name does not rest on it."""
    group = {"WORLD_SIZE": 2, "WG_PREFIX": "aBc", "WG_BACKEND": "ray", "RAY_JOB_ID": "01000000"}
    first, second = known({**group, "RANK": 0}), known({**group, "RANK": 1, "MASTER_ADDR": "10.0.0.1"})
    assert first.job == second.job
    assert (first.launcher, first.role) == ("ray", "aBc")


@pytest.mark.parametrize(
    ("variables", "attempt"),
    [
        ({"RANK": 0}, 0),
        (torchrun(0, TORCHELASTIC_RESTART_COUNT=3), 3),
        ({"RANK": 0, "SLURM_JOB_ID": 1, "SLURM_RESTART_COUNT": 2}, 2),
        (torchrun(0, TORCHELASTIC_RESTART_COUNT=3, SLURM_RESTART_COUNT=2), 2003),
        (torchrun(0, TORCHELASTIC_RESTART_COUNT=3, FAULTHOUND_ATTEMPT=9), 9),
        (torchrun(0, TORCHELASTIC_RESTART_COUNT="many"), 0),
    ],
)
def test_a_later_start_is_a_higher_attempt(variables: dict[str, object], attempt: int) -> None:
    """torchrun's restarts count within the scheduler's, so that the number only grows."""
    assert known(variables).attempt == attempt


@pytest.mark.parametrize(
    ("variables", "device"),
    [
        ({"LOCAL_RANK": 2}, None),
        ({"LOCAL_RANK": 2, "CUDA_VISIBLE_DEVICES": "4,5,6,7"}, "6"),
        ({"LOCAL_RANK": 2, "CUDA_VISIBLE_DEVICES": "5"}, "5"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-aa,GPU-bb"}, None),
        ({"LOCAL_RANK": 1, "NVIDIA_VISIBLE_DEVICES": "GPU-aa,GPU-bb"}, "GPU-bb"),
        ({"LOCAL_RANK": 1, "NVIDIA_VISIBLE_DEVICES": "GPU-aa,GPU-bb", "CUDA_VISIBLE_DEVICES": "1,0"}, "GPU-aa"),
        ({"LOCAL_RANK": 1, "NVIDIA_VISIBLE_DEVICES": "all"}, None),
        ({"LOCAL_RANK": 9, "CUDA_VISIBLE_DEVICES": "0,1"}, None),
        ({"LOCAL_RANK": 0, "CUDA_VISIBLE_DEVICES": ""}, None),
    ],
)
def test_the_device_is_what_the_variables_give_to_the_rank(variables: dict[str, object], device: str | None) -> None:
    """By UUID or by index on the node, through a container's numbering; nothing is guessed."""
    assert known({"RANK": 0, **variables}).device == device


@pytest.mark.parametrize("text", ["", "-1", "x", "1e3", "²", str(MOST_RANKS), "9" * 400])
def test_a_rank_that_is_no_number_is_no_rank(text: str) -> None:
    """A wild value makes no process a rank."""
    assert claim({"RANK": text, "WORLD_SIZE": 8}) is None


def test_a_size_that_the_rank_is_outside_of_is_left_out() -> None:
    """RANK=9 of WORLD_SIZE=4 is one of two numberings mixed up: the rank stands, the size does not."""
    assert known({"RANK": 9, "WORLD_SIZE": 4}).world_size is None


def test_the_pod_comes_from_the_control_group() -> None:
    """Kubernetes says the pod's uid in the path, with either separator."""
    path = f"0::/kubepods.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice/cri-1.scope"
    found = known({"RANK": 0, "MASTER_ADDR": "llama-worker-0"}, path)
    assert (found.labels["POD_UID"], found.launcher, found.job) == (POD, "kubernetes", "llama")


def test_no_secret_leaves_an_environment(tree: ProcessTree) -> None:
    """Of a rank with keys, tokens and passwords around its variables nothing but the allow-list is in any record."""
    secrets = {
        "AWS_SECRET_ACCESS_KEY": "hunter2", "WANDB_API_KEY": "hunter2", "HF_TOKEN": "hunter2", "PASSWORD": "hunter2",
        "RANK_TOKEN": "hunter2", "XRANK": "hunter2", "MASTER_PASSWORD": "hunter2", "SLURM_JWT": "hunter2",
    }  # fmt: skip
    tree.add(20, 1, {**secrets, **torchrun(0), "LAST": "hunter2"}, command="python train.py --key hunter2")
    host = Host("gpu-7", Roots(proc=tree.root))
    (process,) = host.training()
    assert "hunter2" not in repr(process)
    assert b"hunter2" not in encode(one for one in Placements(host)(None) if isinstance(one, Placement))
    assert not any("TOKEN" in name or "KEY" in name or "PASS" in name or "SECRET" in name for name in ALLOWED)


@given(st.binary(max_size=400), st.lists(st.sampled_from(sorted(ALLOWED)), max_size=6), st.binary(max_size=40))
def test_any_bytes_are_an_environment(noise: bytes, names: list[str], value: bytes) -> None:
    """Whatever stands in it, reading gives a bounded claim or none."""
    data = noise + b"".join(b"\0" + name.encode() + b"=" + value for name in names) + b"\0RANK=3\0"
    found = read_rank(data, noise, "gpu-7")
    assert found is None or (0 <= found.rank < MOST_RANKS and found.labels.keys() <= LABELS and found.job)
    assert found is None or all(len(text) <= LONGEST_VALUE for text in found.labels.values())


def test_the_dead_are_no_ranks_and_their_orphans_do_not_take_their_place(tree: ProcessTree) -> None:
    """A killed trainer leaves loaders behind that have its rank: they are not it, nor what they start."""
    for rank in range(2):
        tree.add(20 + rank, 1, torchrun(rank))
        tree.add(30 + rank, 20 + rank, torchrun(rank), name="pt_data_worker")
    table = ProcessTable(tree.root)
    assert pids(table.scan()) == {0: 20, 1: 21}
    tree.add(21, 1, state="Z")
    assert pids(table.scan()) == {0: 20}
    tree.remove(21)
    tree.add(31, 1, torchrun(1), name="pt_data_worker")
    tree.add(32, 31, torchrun(1))
    assert pids(table.scan()) == {0: 20}


def test_a_launcher_that_was_seen_too_early_hides_no_rank(tree: ProcessTree) -> None:
    """At first it has no children and looks like rank 0, then one child of that rank, then all: the children are the ranks."""
    step = {**SLURM, "SLURM_PROCID": 0, "SLURM_STEP_ID": 0}
    tree.add(10, 1, step, command="python my_launcher.py")
    table = ProcessTable(tree.root)
    assert pids(table.scan()) == {0: 10}
    tree.add(20, 10, {**step, "RANK": 0, "LOCAL_RANK": 0})
    tree.add(21, 10, step, image=1)
    assert pids(table.scan()) == {0: 10}
    tree.add(21, 10, {**step, "RANK": 1, "LOCAL_RANK": 1}, image=2)
    assert pids(table.scan()) == {0: 20, 1: 21}
    tree.remove(10)
    tree.add(20, 1, {**step, "RANK": 0, "LOCAL_RANK": 0})
    tree.add(21, 1, {**step, "RANK": 1, "LOCAL_RANK": 1}, image=2)
    assert pids(table.scan()) == {0: 20, 1: 21}


def test_a_number_that_was_given_to_another_process_is_another_process(tree: ProcessTree) -> None:
    """The start time distinguishes them: the new one's environment is read."""
    tree.add(20, 1, torchrun(0), start=1000)
    table = ProcessTable(tree.root)
    assert pids(table.scan()) == {0: 20}
    tree.add(20, 1, torchrun(5), start=2000)
    assert pids(table.scan()) == {5: 20}
    tree.add(20, 1, {}, start=3000)
    assert table.scan() == ()


def test_an_environment_is_read_once_unless_another_program_is_executed(tree: ProcessTree) -> None:
    """setproctitle writes over it, which changes nothing; exec brings another one."""
    tree.add(20, 1, torchrun(0), image=7)
    table = ProcessTable(tree.root)
    assert pids(table.scan()) == {0: 20}
    tree.add(20, 1, b"ray::WorkerDict.update" + bytes(80), image=7)
    assert pids(table.scan()) == {0: 20}
    tree.add(20, 1, torchrun(4), image=8)
    assert pids(table.scan()) == {4: 20}


def test_a_rank_that_is_about_to_end_stays_the_rank(tree: ProcessTree) -> None:
    """Between giving back its memory and its end it has no environment; who let go of it then would miss how it ended."""
    tree.add(20, 1, torchrun(0), image=7)
    table = ProcessTable(tree.root)
    table.scan()
    tree.add(20, 1, b"", state="R", image=0)
    assert pids(table.scan()) == {0: 20}


def test_a_settled_process_that_becomes_a_rank_is_found_a_little_later(tree: ProcessTree) -> None:
    """What has long been no rank is read in every so many scans only, and found then."""
    tree.add(20, 1, {}, name="sleep")
    table = ProcessTable(tree.root)
    for _ in range(SCANS_OF_THE_YOUNG + 1):
        assert table.scan() == ()
    tree.add(20, 1, torchrun(0), start=5000)
    assert any(table.scan() for _ in range(SCANS_OF_THE_YOUNG))


@pytest.mark.system
def test_a_thousand_processes_cost_little(tree: ProcessTree) -> None:
    """Once they are known, a scan of 1,000 processes with 64 ranks among them takes no longer than 50 ms."""
    for pid in range(100, 1036):
        tree.add(pid, 1, {"PATH": "/usr/bin", "LANG": "C"}, name="sleep")
    for rank in range(64):
        tree.add(2000 + rank, 1, torchrun(rank))
    table = ProcessTable(tree.root)
    seconds = []
    for _ in range(SCANS_OF_THE_YOUNG + 4):
        began_at = time.perf_counter()
        assert len(table.scan()) == 64
        seconds.append(time.perf_counter() - began_at)
    assert in_time(min(seconds), 0.05)


def test_two_jobs_on_a_node_are_two_placements(tree: ProcessTree) -> None:
    """Each has its own ranks, sizes, devices and shared labels; a second run reports only a change, or a minute later."""
    for rank in range(2):
        tree.add(20 + rank, 1, torchrun(rank, TORCHELASTIC_RUN_ID="a", CUDA_VISIBLE_DEVICES="0,1"), start=1000 + rank)
        tree.add(30 + rank, 1, {"RANK": rank, "WORLD_SIZE": 2, "FAULTHOUND_JOB": "b", "FAULTHOUND_ROLE": "rollout"})
    clock = Clock()
    placed = Placements(Host("gpu-7", Roots(proc=tree.root), clock))
    first, second = placed(None)
    assert isinstance(first, Placement)
    assert isinstance(second, Placement)
    assert first.ranks is not None
    assert (first.job, first.ranks.ranks(), first.pids, first.nodes) == ("a", (0, 1), (20, 21), ("gpu-7", "gpu-7"))
    assert (first.devices, first.local_ranks, first.launcher) == (("0", "1"), (0, 1), "torchrun")
    assert first.started_ats == (BOOTED_AT + 10.0, BOOTED_AT + 10.01)
    assert first.labels["TORCHELASTIC_RUN_ID"] == "a"
    assert (second.job, second.world_size, second.roles) == ("b", 2, ("rollout", "rollout"))
    clock.seconds += 6
    assert list(placed(None)) == []
    assert len(list(placed(Request("read")))) == 2
    tree.remove(31)
    clock.seconds += 6
    (changed,) = placed(None)
    assert isinstance(changed, Placement)
    assert (changed.job, changed.pids) == ("b", (30,))
    clock.seconds += 61
    assert len(list(placed(None))) == 2
    tree.remove(20, 21, 30)
    clock.seconds += 6
    with pytest.raises(NothingToCollect, match="no process here has a rank"):
        list(placed(None))


def test_a_leftover_of_an_earlier_start_does_not_take_its_ranks_place(tree: ProcessTree) -> None:
    """Of two processes with one rank of one attempt the younger is placed."""
    tree.add(20, 1, {"RANK": 0, "FAULTHOUND_JOB": "a"}, start=9000)
    tree.add(21, 1, {"RANK": 0, "FAULTHOUND_JOB": "a"}, start=1000)
    (placement,) = Placements(Host("gpu-7", Roots(proc=tree.root)))(None)
    assert isinstance(placement, Placement)
    assert placement.pids == (20,)


@pytest.mark.system
def test_a_process_that_is_stuck_is_given_up_and_hides_no_process(tree: ProcessTree) -> None:
    """Its environment never comes: the others are found, it is not asked again, and so many of them end the reading."""
    for number in range(MOST_STUCK + 2):
        tree.add(20 + number, 1)
        (tree.root / str(20 + number) / "environ").unlink()
        os.mkfifo(tree.root / str(20 + number) / "environ")
    tree.add(10, 1, torchrun(0))
    table = ProcessTable(tree.root)
    assert pids(table.scan()) == {0: 10}
    began_at = time.monotonic()
    assert pids(table.scan()) == {0: 10}
    assert in_time(time.monotonic() - began_at, WAIT_SECONDS)
    tree.add(11, 1, torchrun(1))
    assert pids(table.scan()) == {0: 10}, "no further read is begun while so many have not returned"
    for number in range(MOST_STUCK):
        os.close(os.open(tree.root / str(20 + number) / "environ", os.O_WRONLY))
        (tree.root / str(20 + number) / "environ").unlink()
        (tree.root / str(20 + number) / "environ").write_bytes(b"RANK=7" if number == 0 else b"")
    for number in range(MOST_STUCK, MOST_STUCK + 2):
        (tree.root / str(20 + number) / "environ").unlink()
    until = time.monotonic() + 60
    while (found := pids(table.scan())) != {0: 10, 1: 11, 7: 20} and time.monotonic() < until:
        time.sleep(0.05)
    assert found == {0: 10, 1: 11, 7: 20}


def test_a_broken_tree_gives_what_it_has(tree: ProcessTree) -> None:
    """Cut, empty and absent files, and processes that are each other's parents, cost only themselves."""
    tree.add(20, 1, torchrun(0))
    tree.add(21, 22, torchrun(1))
    tree.add(22, 21, torchrun(2))
    tree.add(23, 1, torchrun(3))
    (tree.root / "23/stat").write_bytes(b"23 (python")
    (tree.root / "24").mkdir()
    (tree.root / "stat").unlink()
    (found,) = ProcessTable(tree.root).scan()
    assert (found.pid, found.started_at) == (20, None)


def test_a_name_may_hold_parentheses_and_spaces() -> None:
    """``a) R 1 (b`` is one process's name, not its state."""
    stat = parse(b"7 (a) R 1 (b) S 3 " + b"0 " * 60)
    assert (stat.pid, stat.name, stat.state, stat.parent_pid) == (7, "a) R 1 (b", "S", 3)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it looks at root's processes as nobody")
def test_environments_that_may_not_be_read_are_reported() -> None:
    """As user nobody, root's Python processes may not be read: that is reported once, with what to do about it."""
    code = """
import os, sys
from collectors.live.sources.host import Host
from collectors.live.placement import Placements
from collectors.live import NothingToCollect
placed = Placements(Host("gpu-7"))  # as root: nobody may be unable to read the interpreter's modules
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for _ in range(2):
    try:
        for record in placed(None): print(type(record).__name__, record.outcome, record.reason)
    except NothingToCollect as nothing:
        print(nothing)
"""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env={"RANK": "0"}) as rank:
        try:
            said = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
            ).stdout.splitlines()
        finally:
            rank.kill()
    assert sum(line.startswith(f"{Unread.__name__} refused") for line in said) == 1
    assert "CAP_SYS_PTRACE" in said[0]
    assert "may not be read" in said[1]


def test_real_processes_are_found_with_their_children() -> None:
    """Two real ranks, one with a child: both are found, the child is below its rank, and none of it is this test."""
    code = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); time.sleep(60)"
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "2", "FAULTHOUND_JOB": f"test-{os.getpid()}"}
    ranks = [
        subprocess.Popen([sys.executable, "-c", code], env={**environment, "RANK": str(rank)}, start_new_session=True)
        for rank in range(2)
    ]
    try:
        table = ProcessTable(Path("/proc"))
        until = time.monotonic() + 60
        found: tuple[TrainingProcess, ...] = ()
        while time.monotonic() < until and not all(len(table.descendants(rank.pid)) == 1 for rank in ranks):
            found = tuple(one for one in table.scan() if one.job == environment["FAULTHOUND_JOB"])
            time.sleep(0.05)
        assert pids(found) == {0: ranks[0].pid, 1: ranks[1].pid}
        assert abs((found[0].started_at or 0.0) - time.time()) < 30
    finally:
        for rank in ranks:
            os.killpg(rank.pid, 9)
            rank.wait()
