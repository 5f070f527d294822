"""Which rank a process is, by the variables that launchers set: torchrun, Slurm, MPI, Ray, Kubernetes.

A process without a number is one too where ``FAULTHOUND_ROLE``, its Ray actor's name or its title says what it is for.

An environment holds secrets. Only the variables of ``ALLOWED`` are read, and nothing else of it is kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from collectors.live.sources.names import NAMELESS, NO_RAY_JOB, Named
from collectors.records.identity import MOST_PLACED, placed_rank

RANK_VARIABLES: tuple[tuple[str, str, str], ...] = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
    ("PMIX_RANK", "PMIX_SIZE", "MPI_LOCALRANKID"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
)
"""Rank, size and local rank, by launcher. What the program itself reads (RANK) goes before its launcher's variables."""

LABELS = frozenset({
    "FAULTHOUND_JOB", "FAULTHOUND_ATTEMPT", "FAULTHOUND_ROLE", "FAULTHOUND_WORKER_SERVER",
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "ROLE_NAME", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PET_RDZV_ID",
    "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_NODEID", "SLURM_JOB_PARTITION",
    "SLURM_RESTART_COUNT", "SLURM_HET_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURMD_NODENAME",
    "POD_NAME", "POD_NAMESPACE", "POD_UID", "JOB_NAME", "JOBSET_NAME", "JOB_COMPLETION_INDEX", "REPLICATED_JOB_NAME",
    "RAY_JOB_ID", "RAY_CLUSTER_NAME", "RAY_LOCAL_RANK", "RAY_LOCAL_WORLD_SIZE", "WG_PREFIX", "WG_BACKEND",
    "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
    "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE",
    "TORCH_WORKER_SERVER_SOCKET",
    "NCCL_RAS_ADDR", "NCCL_INSPECTOR_DUMP_DIR", "NCCL_DEBUG_FILE",
})  # fmt: skip
"""Variables that become labels of a training process. None of them may be a credential."""

ALLOWED = LABELS | {name for names in RANK_VARIABLES for name in names} | {"KUBERNETES_SERVICE_HOST"}
MOST_RANKS = 1 << 20
LONGEST_VALUE = 512
LONGEST_JOB = 200
RESTARTS_OF_A_LAUNCHER = 1000
"""torchrun counts its own restarts below one of the scheduler's: attempt 2003 is the third within the second requeue."""

UNNUMBERED = -1
_RANK = re.compile(rb"(?:\A|\0)(?:FAULTHOUND_ROLE=.|(?:RANK|OMPI_COMM_WORLD_RANK|SLURM_PROCID|PMIX_RANK|PMI_RANK)=\d)")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._:@+-]+")
_POD = re.compile(r"\bpod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_MANAGED = re.compile(r"/job_?\d+(?:[./]|$)|kubepods", re.MULTILINE)
_UID = re.compile(rb"^Uid:\s+(\d+)", re.MULTILINE)
_LOOPBACK = re.compile(r"localhost$|127\.|::1$")


@dataclass(frozen=True, slots=True)
class TrainingProcess:
    """One rank's process on this node."""

    pid: int
    rank: int  # UNNUMBERED until its place gives it a number
    job: str | None = None
    attempt: int | None = None
    world_size: int | None = None
    local_rank: int | None = None
    role: str | None = None
    device: str | None = None
    launcher: str = ""
    started_at: float | None = None  # UTC seconds
    labels: Mapping[str, str] = field(default_factory=dict)  # variables of the allow-list
    start_ticks: int = 0  # since boot: with the pid the identity of the process
    uid: int | None = None  # of the user that it runs as
    managed: bool = False  # in a control group of a job or pod, where no user can put a process of another
    elastic: bool = False  # torchrun started this process, or one above it, as a rank

    @property
    def of_records(self) -> dict[str, Any]:
        """Return the fields that a record about this rank has."""
        return {"rank": self.rank, "job": self.job, "attempt": self.attempt, "role": self.role}


def states_rank(environment: bytes) -> bool:
    """Return whether an environment has a variable that may state a rank or a role."""
    return _RANK.search(environment) is not None


def read_rank(
    environment: bytes, control_groups: bytes = b"", node: str = "", pid: int = 0, status: bytes = b"",
    named: Named = NAMELESS,
) -> TrainingProcess | None:  # fmt: skip
    """Return the rank that a process is, None where it is none. ``status``: of /proc/PID, for its user."""
    variables = _allowed(environment)
    if named.title == "":
        return None  # a Ray worker that waits for an actor or a task
    if named.title and variables.get("FAULTHOUND_ROLE") == named.inherited_role:
        variables.pop("FAULTHOUND_ROLE", None)
    if (job := named.ray_job or variables.get("RAY_JOB_ID", "")) in ("", NO_RAY_JOB):
        variables.pop("RAY_JOB_ID", None)
    else:
        variables["RAY_JOB_ID"] = job
    names = next((names for names in RANK_VARIABLES if _is_rank(variables, names[0])), None)
    title, number = named.seat
    if names is None and not ("FAULTHOUND_ROLE" in variables or (title and (named.of_ray or _knows_job(variables)))):
        return None
    rank = (_number(variables[names[0]]) or 0) if names else UNNUMBERED if number is None else number
    size = _number(variables.get(names[1])) if names else None
    local_rank = _number(variables.get(names[2])) if names else None
    if local_rank is None:
        local_rank = _number(variables.get("RAY_LOCAL_RANK"))
    groups = control_groups.decode("ascii", "replace")
    if pod := _POD.search(groups):
        variables.setdefault("POD_UID", pod[1].replace("_", "-"))
    launcher = _launcher(variables, names[0] if names else "")
    return TrainingProcess(
        pid=pid,
        rank=rank,
        job=_job(variables, launcher, node),
        attempt=_attempt(variables),
        world_size=size if size is not None and size > rank else None,
        local_rank=local_rank,
        role=_role(variables, title),
        device=_device(variables, local_rank),
        launcher=launcher,
        labels={name: variables[name] for name in sorted(LABELS & variables.keys())},
        uid=user_of(status),
        managed=_MANAGED.search(groups) is not None,
        elastic="TORCHELASTIC_RUN_ID" in variables,
    )


class PlaceNumbers:
    """Numbers for the processes without one: each keeps its own while it lives, and a new one takes the lowest free."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._given: dict[tuple[str, int, str], dict[tuple[int, int], int]] = {}

    def numbered(self, found: Sequence[TrainingProcess]) -> list[TrainingProcess]:
        """Return the processes with a number each; beyond ``MOST_PLACED`` of one role they are left out."""
        wanting: dict[tuple[str, int, str], list[tuple[int, int]]] = {}
        for one in sorted(found, key=lambda one: (one.start_ticks, one.pid)):
            if one.rank == UNNUMBERED:
                wanting.setdefault(_seat(one), []).append((one.start_ticks, one.pid))
        self._given = {seat: self._of(self._given.get(seat, {}), living) for seat, living in wanting.items()}
        return [numbered for one in found if (numbered := self._numbered(one)) is not None]

    def _numbered(self, one: TrainingProcess) -> TrainingProcess | None:
        if one.rank != UNNUMBERED:
            return one
        index = self._given[_seat(one)].get((one.start_ticks, one.pid))
        return None if index is None else replace(one, rank=placed_rank(self._node, index))

    def _of(
        self, given: Mapping[tuple[int, int], int], living: Sequence[tuple[int, int]]
    ) -> dict[tuple[int, int], int]:
        kept = {one: given[one] for one in living if one in given}
        free = (index for index in range(MOST_PLACED) if index not in kept.values())
        return kept | dict(zip((one for one in living if one not in given), [*free], strict=False))


def _seat(one: TrainingProcess) -> tuple[str, int, str]:
    return one.job or "", one.attempt or 0, one.role or ""


def user_of(status: bytes) -> int | None:
    """Return the user that a process runs as, by its /proc/PID/status."""
    uid = _UID.search(status)
    return int(uid[1]) if uid else None


def stated_role(environment: bytes) -> str | None:
    """Return FAULTHOUND_ROLE of an environment."""
    return _allowed(environment).get("FAULTHOUND_ROLE")


def distinguished(found: Sequence[TrainingProcess], owners: dict[str, int]) -> list[TrainingProcess]:
    """Return the processes with a job of another name for those of a second user: an environment names any job.

    A job is its user's whose processes are in a job's control group, or who had it before (``owners``, which is kept up), or
    whose process is the oldest.
    """
    first: dict[str, TrainingProcess] = {}
    known = [one for one in found if one.uid is not None]
    known.sort(key=lambda one: (not one.managed, owners.get(one.job or "") != one.uid, one.start_ticks, one.pid))
    for one in known:
        first.setdefault(one.job or "", one)
    owners.clear()
    owners.update({job: one.uid for job, one in first.items() if one.uid is not None})
    return [
        one if one.uid is None or owners[one.job or ""] == one.uid else replace(one, job=f"{one.job}@uid{one.uid}")
        for one in found
    ]


def _allowed(environment: bytes) -> dict[str, str]:
    variables = {}
    for item in environment.split(b"\0"):
        name, equals, value = item.partition(b"=")
        if equals and len(name) < 64 and (text := name.decode("ascii", "replace")) in ALLOWED:
            variables[text] = value[:LONGEST_VALUE].decode("utf-8", "replace")
    return variables


def _number(text: str | None) -> int | None:
    return (
        int(text) if text and len(text) < 8 and text.isascii() and text.isdigit() and int(text) < MOST_RANKS else None
    )


def _is_rank(variables: Mapping[str, str], name: str) -> bool:
    # The batch script itself has SLURM_PROCID=0; only what a step started has a step.
    by_step = name != "SLURM_PROCID" or "SLURM_STEP_ID" in variables or "SLURM_STEPID" in variables
    return by_step and _number(variables.get(name)) is not None


def _launcher(variables: Mapping[str, str], rank_name: str) -> str:
    if "TORCHELASTIC_RUN_ID" in variables:
        return "torchrun"
    if "RAY_JOB_ID" in variables or variables.get("WG_BACKEND") == "ray":
        return "ray"
    if rank_name.startswith(("OMPI", "PMI")):
        return "mpi"
    if "SLURM_JOB_ID" in variables:
        return "slurm"
    return "kubernetes" if _in_kubernetes(variables) else ""


def _in_kubernetes(variables: Mapping[str, str]) -> bool:
    return "KUBERNETES_SERVICE_HOST" in variables or "POD_UID" in variables


def _job(variables: Mapping[str, str], launcher: str, node: str) -> str:
    """Return the job's name: the same on all its nodes and after a restart, and the one that its owner uses."""
    if own := variables.get("FAULTHOUND_JOB"):
        return _name(own)
    if number := variables.get("SLURM_HET_JOB_ID") or variables.get("SLURM_JOB_ID"):
        return _name(f"{variables.get('SLURM_JOB_NAME', 'slurm')}-{number}")
    if (run := variables.get("TORCHELASTIC_RUN_ID", "none")) != "none":
        return _name(run)
    if launcher == "ray" and (number := variables.get("RAY_JOB_ID") or variables.get("WG_PREFIX")):
        return _name(f"{variables.get('RAY_CLUSTER_NAME', 'ray')}-{number}")
    if _in_kubernetes(variables) and (
        name := variables.get("JOBSET_NAME")
        or variables.get("JOB_NAME")
        or _without_place(variables.get("MASTER_ADDR", ""))
    ):
        return _name(f"{variables['POD_NAMESPACE']}.{name}" if "POD_NAMESPACE" in variables else name)
    # Without a name, the rendezvous address is at least the same for all ranks.
    master = variables.get("MASTER_ADDR", "")
    where = node or "localhost" if not master or _LOOPBACK.match(master) else master
    return _name(f"{where}:{variables['MASTER_PORT']}" if "MASTER_PORT" in variables else where)


def _knows_job(variables: Mapping[str, str]) -> bool:
    """Whether a job's name is stated: an inference engine that serves alone is no job."""
    return any(name in variables for name in ("FAULTHOUND_JOB", "SLURM_JOB_ID", "RAY_JOB_ID")) or _in_kubernetes(
        variables
    )


def _without_place(master: str) -> str:
    """``llama-master-0.ns.svc`` → ``llama``; an address stays what it is."""
    host = master if re.fullmatch(r"[\d.]+|.*:.*", master) else master.split(".", 1)[0]
    return re.sub(r"(?:-(?:master|worker|node|launcher|trainer))?(?:-\d+)+$", "", host)


def _name(text: str) -> str:
    return _NOT_IN_A_NAME.sub("-", text).strip("-")[:LONGEST_JOB] or "unnamed"


def _attempt(variables: Mapping[str, str]) -> int:
    """Return the attempt; 0 where nothing counts restarts."""
    own = _number(variables.get("FAULTHOUND_ATTEMPT"))
    if own is not None:
        return own
    requeues = _number(variables.get("SLURM_RESTART_COUNT")) or 0
    restarts = _number(variables.get("TORCHELASTIC_RESTART_COUNT")) or 0
    return requeues * RESTARTS_OF_A_LAUNCHER + restarts if "TORCHELASTIC_RESTART_COUNT" in variables else requeues


def _role(variables: Mapping[str, str], named: str | None = None) -> str | None:
    """Return the role: as its owner states it, else of a Ray actor its name.

    A group of Ray workers (verl) numbers its ranks from 0; two groups of one class differ in their random prefix alone.
    """
    group = "_".join(filter(None, (named, variables.get("WG_PREFIX"))))
    stated = (variables.get("FAULTHOUND_ROLE", ""), variables.get("ROLE_NAME", ""), group)
    return next((role[:64] for role in stated if role not in {"", "default"}), None)


def _device(variables: Mapping[str, str], local_rank: int | None) -> str | None:
    """Return the GPU that the variables assign to this rank, by UUID or index on the node; None where they do not."""
    given = _listed(variables.get("NVIDIA_VISIBLE_DEVICES", ""))
    visible = next((_listed(variables[name]) for name in _VISIBLE if name in variables), given)
    place = 0 if len(visible) == 1 else local_rank
    if place is None or place >= len(visible):
        return None
    mine = visible[place]
    # In a container the index counts the container's own GPUs.
    inside = mine.isdigit() and int(mine) < len(given) and not given[0].isdigit()
    return given[int(mine)] if inside else mine


def _listed(text: str) -> list[str]:
    return [
        part.strip() for part in text.split(",") if part.strip() and part.strip() not in {"all", "void", "none", "-1"}
    ]
