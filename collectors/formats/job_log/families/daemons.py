"""What ends a daemon, or a tool, that sets a job's node up: by who says it, whatever it says.

A tool that runs once ends with an error; of a daemon, which goes on after most of its errors, only what ends it counts. Formats:
Slurm's ``fatal: ``, Go's panics (a training program is not written in Go), systemd's unit lines, NVIDIA's device plug-in.
``operation`` "daemon": a job whose processes failed did not fail for it.
"""

from __future__ import annotations

import re

from collectors.formats.job_log.shapes import Block, shape
from collectors.records import UNIT_STARTED

PROGRAMS = re.compile(
    r"slurm(?:d|ctld|dbd|stepd|restd)|munged?|kubelet|containerd|dockerd|crio|nvidia-[\w-]{3,40}|nv-(?:fabricmanager|hostengine)|"
    r"dcgm-exporter|opensm|nvlsm|mmfs(?:d|env)?|lnetctl|gpu-feature-discovery"
)
"""Daemons of the platform, as syslog tags them."""
UNITS = (
    r"(?:slurm(?:d|ctld|dbd)|munge|kubelet|containerd|docker|crio|nvidia-(?!fabricmanager)[\w-]{3,40}|dcgm[\w-]{0,20}|openibd|opensm|"
    r"lnet|lustre[\w-]{0,12}|beegfs-\w{3,12}|gpfs|mmfs\w{0,10}|ceph[\w@.-]{0,20}|rdma[\w-]{0,20}|srp_daemon|nvsm[\w-]{0,12})"
)
UNIT = re.compile(
    r"\b" + UNITS + r"\.service\b|\bStarted (?:[\w-]{1,40}\.service|NVIDIA|Slurm|MUNGE|kubelet|containerd|Docker)\b"
)
_STARTED = (  # the unit, and what its file calls it
    ("slurmd", "Slurm node daemon"),
    ("slurmctld", "Slurm controller daemon"),
    ("slurmdbd", "Slurm DBD accounting daemon"),
    ("munge", "MUNGE authentication service"),
    ("kubelet", "kubelet: The Kubernetes Node Agent"),
    ("containerd", "containerd container runtime"),
    ("docker", "Docker Application Container Engine"),
    ("nvidia-fabricmanager", "NVIDIA fabric manager service"),
    ("nvidia-dcgm", "NVIDIA DCGM service"),
    ("nvidia-persistenced", "NVIDIA Persistence Daemon"),
)
_BY = r"^(?:(?:" + PROGRAMS.pattern + r")(?:\[\d{1,10}\])?: )"

SHAPES = (
    *(
        shape(
            "Started ",
            rf"^(?:systemd(?:\[\d{{1,9}}\])?: )?Started (?P<message>{unit}\.service(?: - .{{1,80}})?|(?i:{name}))\.?\s*$",
            UNIT_STARTED,
            operation=unit,
        )
        for unit, name in _STARTED
    ),
    shape(" fatal: ", _BY + r"{1,2}(?:\[[^\]]{1,40}\] )?fatal: (?P<message>.{1,300})", "evicted", operation="daemon"),
    shape(
        ": fatal: ",
        r"^s(?:run|batch|alloc|info|queue|control|acct|cancel|diag|prio|share|stat): fatal: (?P<message>.{1,300})",
        "evicted",
        operation="daemon",
    ),
    *(
        shape(
            word, r"^(?:sbatch|salloc): error: (?!.{0,120}(?:busy|temporarily|retry))(?P<message>.{1,300})", "evicted"
        )
        for word in ("sbatch: error: ", "salloc: error: ")
    ),
    *(
        shape(
            word,
            r"\b(?P<message>"
            + UNITS
            + r"\.service: (?:Failed with result '(?!success).{1,40}|Start request repeated too quickly.{0,20}|"
            r"(?:Main|Control) process exited, code=(?:exited, status=[1-9]|killed|dumped).{0,40}))",
            "evicted",
            operation="daemon",
        )
        for word in (".service: Failed with", ".service: Start request", " process exited, code=")
    ),
    *(  # systemd before 230
        shape(
            word,
            r"(?:^|: )(?P<message>(?:Unit )?" + UNITS + r"\.service (?:entered failed state|failed\.))",
            "evicted",
            operation="daemon",
        )
        for word in (".service entered failed", ".service failed.")
    ),
    shape(
        "config file item: ",
        r"(?P<message>\bconfig file item: \w{3,60} has an invalid value)",
        "evicted",
        operation="daemon",
    ),
    shape(
        "SPANK plugin ",
        r"error: (?P<message>(?:Warning: )?SPANK plugin \"\w{1,40}\" option .{1,60} not found)",
        "evicted",
    ),
    shape(  # IBM Storage Scale
        "mmfs",
        r"\bmmfs(?:d|env)?(?:\[\d{1,9}\])?: \[[EX]\] (?P<message>.{1,300})",
        "stated",
        code="PART_OF_STORAGE",
    ),
    *(  # NVIDIA's device plug-in and what discovers its GPUs
        shape(
            word,
            r"(?:^|[\]:] |\")(?P<message>" + word + r".{1,300})",
            "evicted",
            operation="daemon",
        )
        for word in (
            "error starting plugins: ",
            "failed to construct NVML resource managers: ",
            "failed to construct resource managers: ",
        )
    ),
)

BLOCKS = (
    Block(  # Go
        "panic: ",
        re.compile(r"^\W{0,4}panic: (?P<message>.{1,400})$"),
        (re.compile(r"goroutine \d{1,9} \["),),
        "evicted",
        closes="first",
        fields={"operation": "daemon"},
        within_lines=4,
    ),
)
