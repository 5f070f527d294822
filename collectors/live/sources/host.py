"""The node as collectors see it: its name, its roots, its clock, and the training processes on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectors.live.sources.clock import Clock, NodeClock
from collectors.live.sources.first_looks import FirstLooks
from collectors.live.sources.process_table import ProcessTable
from collectors.live.sources.ranks import TrainingProcess
from collectors.live.sources.system_files import text

if TYPE_CHECKING:
    from collectors.files.apart import Apart

_OPTION_TYPES: tuple[tuple[type, tuple[type, ...], str], ...] = (
    (bool, (bool,), "true or false"),
    (int, (int,), "a whole number"),
    (float, (int, float), "a number"),
    (str, (str, Path), "a text"),
    (tuple, (list, tuple), "a list"),
)


@dataclass(frozen=True, slots=True)
class Roots:
    """Where a node's paths begin. Each can be another folder: a container's mount, a test's tree."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    run: Path = Path("/run")
    files: Path = Path("/")  # in front of paths that the job names itself: logs, sockets, dump files


def _apart() -> Apart:
    from collectors.files.apart import Apart  # a driver's process needs none

    return Apart()


@dataclass(slots=True)
class Host:
    """The node that collectors read. ``options`` are the configuration's sections, by collector."""

    node: str
    roots: Roots = field(default_factory=Roots)
    clock: Clock = field(default_factory=NodeClock)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    cursors: dict[str, Any] = field(default_factory=dict)
    apart: Apart = field(default_factory=_apart)  # where bytes that others wrote are parsed
    process_table: ProcessTable = field(init=False)
    first_looks: FirstLooks = field(default_factory=FirstLooks)

    def __post_init__(self) -> None:
        self.process_table = ProcessTable(self.roots.proc, self.node)

    @property
    def boot_id(self) -> str | None:
        """Return the kernel's name for this boot, None where it cannot be read."""
        return text(self.roots.proc / "sys/kernel/random/boot_id")

    def option(self, collector: str, name: str, default: Any) -> Any:
        """Return one option of one collector, of the default's type; raise ValueError where it is of another."""
        value = self.options.get(collector, {}).get(name, default)
        for type_, accepted, words in _OPTION_TYPES:
            if isinstance(default, type_):
                if isinstance(value, bool) is (type_ is bool) and isinstance(value, accepted):
                    return type_(value)
                raise ValueError(f"option {name} of {collector} is {value!r} and must be {words}")
        return value

    def cursor(self, collector: str) -> Any:
        """Return the newest ``Cursor`` value of a collector, None at its first run on this node."""
        return self.cursors.get(collector)

    def training(self) -> tuple[TrainingProcess, ...]:
        """Return the training processes of this node, at most some seconds old."""
        now = self.clock.monotonic()
        return self.process_table.training(now, self.first_looks.scan_seconds(now))
