"""Which processes train: ranks found in the trees that real launchers make, and nothing else taken out of environments."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.live.placement import Placements
from collectors.live.sources.host import Host, Roots
from collectors.live.sources.process_table import ProcessTable
from collectors.live.sources.ranks import ALLOWED, LABELS, LONGEST_VALUE, MOST_RANKS, TrainingProcess, read_rank
from collectors.records import Placement
from collectors.records.block import encode
from tests.support.process_rows import SLURM, pids, scanned, torchrun
from tests.support.process_tree import ProcessTree

POD = "11112222-3333-4444-5555-666677778888"


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
    assert pids(scanned(ProcessTable(tree.root))) == {0: 20, 1: 21, 2: 22, 3: 23}


def test_one_worker_under_torchrun_is_the_rank_and_not_its_agent(tree: ProcessTree) -> None:
    """With one worker the agent's inherited rank is the same number: torchrun's own variables distinguish them."""
    agent = tree.add(11, 1, {"RANK": 0, "WORLD_SIZE": 1}, command="python launch.py")
    tree.add(20, agent, torchrun(0))
    assert pids(scanned(ProcessTable(tree.root))) == {0: 20}


def test_an_evaluation_below_a_rank_is_the_ranks_own_affair(tree: ProcessTree) -> None:
    """A trainer that starts a small torchrun of its own stays the rank."""
    trainer = tree.add(20, 1, torchrun(3))
    inner = tree.add(30, trainer, torchrun(3), name="pt_elastic", command="python -m torch.distributed.run eval.py")
    tree.add(31, inner, torchrun(0, TORCHELASTIC_RUN_ID="eval"))
    assert pids(scanned(ProcessTable(tree.root))) == {3: 20}


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
    found = scanned(ProcessTable(tree.root))
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
    assert pids(scanned(ProcessTable(tree.root))) == {1: 11}


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
