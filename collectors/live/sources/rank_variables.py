"""Who a process says it is, by the variables that launchers set: torchrun, Slurm, MPI, Ray, Kubernetes.

An environment holds secrets. Only the variables of ``ALLOWED`` are ever looked at, and nothing else of it is kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

RANK_VARIABLES: tuple[tuple[str, str, str], ...] = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
    ("PMIX_RANK", "PMIX_SIZE", "MPI_LOCALRANKID"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
)
"""Rank, size and local rank, by launcher. What the program itself reads (RANK) goes before what started it."""

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
"""Variables that become labels of a training process. None of them is a credential, or may ever be one."""

ALLOWED = LABELS | {name for names in RANK_VARIABLES for name in names} | {"KUBERNETES_SERVICE_HOST"}
MOST_RANKS = 1 << 20
LONGEST_VALUE = 512
LONGEST_JOB = 200
RESTARTS_OF_A_LAUNCHER = 1000
"""torchrun counts its own restarts below one of the scheduler's: attempt 2003 is the third within the second requeue."""

_SAID = re.compile(rb"(?:\A|\0)(?:RANK|OMPI_COMM_WORLD_RANK|SLURM_PROCID|PMIX_RANK|PMI_RANK)=\d")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._:@+-]+")
_POD = re.compile(r"\bpod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
_LOOPBACK = re.compile(r"localhost$|127\.|::1$")


@dataclass(frozen=True, slots=True)
class RankIdentity:
    """What one environment says. ``elastic``: torchrun started this very process, or one above it, as a rank."""

    rank: int
    job: str
    attempt: int
    world_size: int | None = None
    local_rank: int | None = None
    role: str | None = None
    device: str | None = None
    launcher: str = ""
    elastic: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)


def read_rank_identity(environment: bytes, control_groups: bytes = b"", node: str = "") -> RankIdentity | None:
    """Return who the process is, None where its environment states no rank."""
    if not _SAID.search(environment):
        return None
    told = _allowed(environment)
    names = next((names for names in RANK_VARIABLES if _states_rank(told, names[0])), None)
    rank = _number(told[names[0]]) if names else None
    if names is None or rank is None:
        return None
    size = _number(told.get(names[1]))
    local_rank = _number(told.get(names[2]))
    if local_rank is None:
        local_rank = _number(told.get("RAY_LOCAL_RANK"))
    pod = _POD.search(control_groups.decode("ascii", "replace"))
    if pod:
        told.setdefault("POD_UID", pod[1].replace("_", "-"))
    launcher = _launcher(told, names[0])
    return RankIdentity(
        rank=rank,
        job=_job(told, launcher, node),
        attempt=_attempt(told),
        world_size=size if size is not None and size > rank else None,
        local_rank=local_rank,
        role=_role(told),
        device=_device(told, local_rank),
        launcher=launcher,
        elastic="TORCHELASTIC_RUN_ID" in told,
        labels={name: told[name] for name in sorted(LABELS & told.keys())},
    )


def _allowed(environment: bytes) -> dict[str, str]:
    told = {}
    for item in environment.split(b"\0"):
        name, equals, value = item.partition(b"=")
        if equals and len(name) < 64 and (text := name.decode("ascii", "replace")) in ALLOWED:
            told[text] = value[:LONGEST_VALUE].decode("utf-8", "replace")
    return told


def _number(text: str | None) -> int | None:
    return (
        int(text) if text and len(text) < 8 and text.isascii() and text.isdigit() and int(text) < MOST_RANKS else None
    )


def _states_rank(told: Mapping[str, str], name: str) -> bool:
    # The batch script itself has SLURM_PROCID=0; only what a step started has a step.
    by_step = name != "SLURM_PROCID" or "SLURM_STEP_ID" in told or "SLURM_STEPID" in told
    return by_step and _number(told.get(name)) is not None


def _launcher(told: Mapping[str, str], rank_name: str) -> str:
    if "TORCHELASTIC_RUN_ID" in told:
        return "torchrun"
    if "RAY_JOB_ID" in told or told.get("WG_BACKEND") == "ray":
        return "ray"
    if rank_name.startswith(("OMPI", "PMI")):
        return "mpi"
    if "SLURM_JOB_ID" in told:
        return "slurm"
    return "kubernetes" if _in_kubernetes(told) else ""


def _in_kubernetes(told: Mapping[str, str]) -> bool:
    return "KUBERNETES_SERVICE_HOST" in told or "POD_UID" in told


def _job(told: Mapping[str, str], launcher: str, node: str) -> str:
    """Return the job's name: the same on all its nodes, the same after a restart, and one that people know."""
    if own := told.get("FAULTHOUND_JOB"):
        return _name(own)
    if number := told.get("SLURM_HET_JOB_ID") or told.get("SLURM_JOB_ID"):
        return _name(f"{told.get('SLURM_JOB_NAME', 'slurm')}-{number}")
    if (run := told.get("TORCHELASTIC_RUN_ID", "none")) != "none":
        return _name(run)
    if launcher == "ray" and (number := told.get("RAY_JOB_ID") or told.get("WG_PREFIX")):
        return _name(f"{told.get('RAY_CLUSTER_NAME', 'ray')}-{number}")
    if _in_kubernetes(told) and (
        name := told.get("JOBSET_NAME") or told.get("JOB_NAME") or _without_place(told.get("MASTER_ADDR", ""))
    ):
        return _name(f"{told['POD_NAMESPACE']}.{name}" if "POD_NAMESPACE" in told else name)
    # Nobody gave it a name: the meeting point of its ranks is at least the same for all of them.
    master = told.get("MASTER_ADDR", "")
    where = node or "localhost" if not master or _LOOPBACK.match(master) else master
    return _name(f"{where}:{told['MASTER_PORT']}" if "MASTER_PORT" in told else where)


def _without_place(master: str) -> str:
    """``llama-master-0.ns.svc`` → ``llama``; an address stays what it is."""
    host = master if re.fullmatch(r"[\d.]+|.*:.*", master) else master.split(".", 1)[0]
    return re.sub(r"(?:-(?:master|worker|node|launcher|trainer))?(?:-\d+)+$", "", host)


def _name(text: str) -> str:
    return _NOT_IN_A_NAME.sub("-", text).strip("-")[:LONGEST_JOB] or "unnamed"


def _attempt(told: Mapping[str, str]) -> int:
    """Return the attempt; where nothing counts restarts there is one, 0."""
    own = _number(told.get("FAULTHOUND_ATTEMPT"))
    if own is not None:
        return own
    requeues = _number(told.get("SLURM_RESTART_COUNT")) or 0
    restarts = _number(told.get("TORCHELASTIC_RESTART_COUNT")) or 0
    return requeues * RESTARTS_OF_A_LAUNCHER + restarts if "TORCHELASTIC_RESTART_COUNT" in told else requeues


def _role(told: Mapping[str, str]) -> str | None:
    """Return the role. A group of Ray workers (verl) numbers its ranks from 0, so that its name must tell it apart."""
    named = (told.get(name, "") for name in ("FAULTHOUND_ROLE", "ROLE_NAME", "WG_PREFIX"))
    return next((role[:64] for role in named if role not in {"", "default"}), None)


def _device(told: Mapping[str, str], local_rank: int | None) -> str | None:
    """Return the GPU that the variables give to this rank, by UUID or by its index on the node; None where they do not."""
    given = _listed(told.get("NVIDIA_VISIBLE_DEVICES", ""))
    visible = next((_listed(told[name]) for name in _VISIBLE if name in told), given)
    place = 0 if len(visible) == 1 else local_rank
    if place is None or place >= len(visible):
        return None
    mine = visible[place]
    # Inside a container the index counts what the container was given.
    inside = mine.isdigit() and int(mine) < len(given) and not given[0].isdigit()
    return given[int(mine)] if inside else mine


_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def _listed(text: str) -> list[str]:
    return [
        part.strip() for part in text.split(",") if part.strip() and part.strip() not in {"all", "void", "none", "-1"}
    ]
