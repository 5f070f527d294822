"""Two published mixes of faults, as counts, and what each kind of fault is taken to be. The counts are theirs, the rest is ours.

``cause``: what truly is at fault. ``shows``: how the job shows it, which decides what diagnosis can make of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Cause = Literal["machine", "network", "code", "outside"]
Shows = Literal["event", "hang", "exception", "same_exception", "dead", "numeric", "slow", "storage", "killed"]


@dataclass(frozen=True, slots=True)
class Kind:
    """Faults that are counted together."""

    name: str
    count: float
    cause: Cause
    shows: Shows


@dataclass(frozen=True, slots=True)
class Mix:
    """A job, how often it is interrupted, and by what."""

    name: str
    gpus: int
    interruptions_a_day: float
    kinds: tuple[Kind, ...]
    source: str
    gpus_per_node: int = 8
    group_nodes: int = 8  # of one parallel group: what is evicted where a group is all that is known

    @property
    def nodes(self) -> int:
        """The machines of the job."""
        return self.gpus // self.gpus_per_node


LLAMA3 = Mix(
    name="llama3",
    gpus=16_384,
    interruptions_a_day=419 / 54,
    source="Llama 3 (2024), Table 5: 419 unexpected interruptions in 54 days of 16,384 H100",
    kinds=(
        Kind("faulty GPU", 148, "machine", "event"),
        Kind("GPU HBM3 memory", 72, "machine", "event"),
        Kind("software bug, every rank", 27, "code", "same_exception"),  # half and half: the table does not say
        Kind("software bug, one rank", 27, "code", "exception"),
        Kind("network switch or cable", 35, "network", "hang"),
        Kind("host maintenance", 32, "outside", "killed"),
        Kind("GPU SRAM memory", 19, "machine", "event"),
        Kind("GPU system processor", 17, "machine", "event"),
        Kind("NIC", 7, "machine", "hang"),
        Kind("NCCL watchdog timeouts", 7, "machine", "hang"),
        Kind("silent data corruption", 6, "machine", "numeric"),
        Kind("GPU thermal interface and sensor", 6, "machine", "slow"),
        Kind("SSD", 3, "machine", "hang"),
        Kind("power supply", 3, "machine", "dead"),
        Kind("server chassis", 2, "machine", "dead"),
        Kind("IO expansion board", 2, "machine", "hang"),
        Kind("dependency", 2, "code", "same_exception"),
        Kind("CPU", 2, "machine", "hang"),
        Kind("system memory", 2, "machine", "dead"),
    ),
)

_HANGS_MACHINE = 21 / 26  # ByteRobust's root causes of one month, jobs of more than 2,000 GPUs: infrastructure or user
_ACCESSES_MACHINE = 21 / 62
_NANS_MACHINE = 3 / 4

BYTEROBUST = Mix(
    name="byterobust",
    gpus=9_600,
    interruptions_a_day=175 / 90,
    source=(
        "ByteRobust (SOSP 2025): its incident table without manual restarts, at the rate of its dense job of 9,600 GPUs "
        "(175 resolutions in three months); machine or user by its table of root causes"
    ),
    kinds=(
        Kind("CUDA error of a machine", 19_968 * _ACCESSES_MACHINE, "machine", "exception"),
        Kind("CUDA error of the code", 19_968 * (1 - _ACCESSES_MACHINE), "code", "exception"),
        Kind("CPU overload", 6_095, "outside", "slow"),
        Kind("CPU out of memory", 5_567, "code", "killed"),
        Kind("insufficient disk", 2_755, "outside", "storage"),
        Kind("InfiniBand", 1_599, "network", "hang"),
        Kind("file system mount", 1_176, "outside", "storage"),
        Kind("HDFS", 1_104, "outside", "storage"),
        Kind("container", 781, "outside", "killed"),
        Kind("kernel panic", 203, "machine", "dead"),
        Kind("GPU memory", 188, "machine", "event"),
        Kind("external service", 128, "outside", "storage"),
        Kind("GPU unavailable", 76, "machine", "event"),
        Kind("disk fault", 47, "machine", "hang"),
        Kind("hang of a machine", 5_506 * _HANGS_MACHINE, "machine", "hang"),
        Kind("hang of the code", 5_506 * (1 - _HANGS_MACHINE), "code", "hang"),
        Kind("MFU decline", 442, "machine", "slow"),
        Kind("NaN of a machine", 148 * _NANS_MACHINE, "machine", "numeric"),
        Kind("NaN of the code", 148 * (1 - _NANS_MACHINE), "code", "numeric"),
    ),
)

MIXES = {mix.name: mix for mix in (LLAMA3, BYTEROBUST)}
