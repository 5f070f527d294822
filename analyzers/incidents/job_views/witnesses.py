"""Who can testify that a job goes on: its steps, and what its processes, connections, recorders, GPUs and stacks show.

    steps        reported by a log or the probe                     by themselves
    operations   rings, NCCL's counts and recorders' sequences      by themselves
    traffic      bytes over its connections and ports               at half the usual pace; in a hang where it had fallen
    switches     context switches of the ranks' main threads        where they had fallen, and are back
    cpu          CPU time of the ranks                              where it had fallen, and is back
    gpu          energy that the nodes' GPUs take                   where it had fallen, and is back
    stacks       the ranks' training threads                        where they were the same twice, and are others twice

Any of them says that the job lives. What no agent read is unmeasured, and an unmeasured witness says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from analyzers.incidents.job_views.node import NodeView
from analyzers.incidents.job_views.pace import Paces
from analyzers.model.sample_values import sample_values
from collectors.records import NOT_READ, FlightRecorderDump, ProcessState, Samples, StackDump

UNREAD_SECONDS = 90.0  # what was not read for so long is unmeasured
GPU_SCOPES = {"gpu": "energy_millijoules_total"}
MOST_RANKS = 4_096

State = Literal["alive", "silent", "unmeasured"]


class Testimony(msgspec.Struct, frozen=True, kw_only=True):
    """What one witness says now. ``at``: alive at that instant, silent since it, or last read then."""

    witness: str
    state: State
    at: float | None = None


@dataclass(slots=True)
class _Last:
    """A rank's newest reading of what is compared as a whole."""

    at: float
    value: object
    same: int = 0  # readings in a row that did not differ
    other: int = 0  # and that did
    same_at: float = 0.0  # when it was last twice the same


class Compared:
    """Readings that come seldom and are only equal or not: stacks, and the newest operation of a recorder."""

    def __init__(self) -> None:
        self.read_at: float | None = None
        self.moved_at: float | None = None
        self._last: dict[int, _Last] = {}

    def take(self, rank: int, at: float, value: object) -> None:
        """Take a reading of a rank."""
        known = self._last.get(rank)
        if known is None:
            if len(self._last) < MOST_RANKS:
                self._last[rank] = _Last(at, value)
            return
        if at <= known.at:
            return
        self.read_at = max(at, self.read_at or 0.0)
        if value == known.value:
            known.same, known.other, known.same_at = known.same + 1, 0, at
        else:
            known.same, known.other = 0, known.other + 1
            self.moved_at = max(at, self.moved_at or 0.0)
        known.at, known.value = at, value

    def came_back(self, onset: float, since: float) -> bool:
        """Whether most ranks were the same twice after the onset, and are others in the two newest readings."""
        was = [one for one in self._last.values() if one.same_at > onset]
        back = sum(one.other >= 2 and one.at > since for one in was)
        return bool(was) and 2 * len(was) > len(self._last) and 10 * back >= 9 * len(was)


class Witnesses:
    """What is read of one attempt beside its steps, its operations and its traffic."""

    def __init__(self) -> None:
        self.cpu, self.switches, self.gpu = Paces(), Paces(), Paces()
        self.stacks, self.recorders = Compared(), Compared()

    def look(self, row: ProcessState, node: NodeView, received_at: float) -> None:
        """Take the counters of a rank's process."""
        if row.rank is None or row.parent_pid is not None or row.state in {"X", "Z"}:
            return
        at, key = node.here(row.at, received_at), (row.rank, node.node, row.pid)
        if row.cpu_seconds is not None:
            self.cpu.take(key, at, row.cpu_seconds)
        if row.voluntary_switches is not None:
            self.switches.take(key, at, float(row.voluntary_switches))

    def sample(self, samples: Samples, node: NodeView, received_at: float) -> None:
        """Take the energy that a node's GPUs have used."""
        metric = GPU_SCOPES.get(samples.scope)
        read = sample_values(samples)
        if metric not in samples.metrics or samples.type != "<i8" or read is None:
            return
        ticks, values = read
        for device, row in zip(samples.devices, values[:, samples.metrics.index(metric), :].tolist(), strict=True):
            for at, value in zip(ticks.tolist(), row, strict=True):
                if value != NOT_READ:
                    self.gpu.take((node.node, device), node.here(at, received_at), float(value))

    def record(self, dump: FlightRecorderDump, at: float) -> None:
        """Take how far a rank's recorder has come."""
        if dump.rank is not None:
            self.recorders.take(
                dump.rank, at, (dump.columns.get("record_id", b"")[-8:], dump.pg_status.get("completed"))
            )

    def stack(self, dump: StackDump, at: float) -> None:
        """Take the functions that a rank's main thread is in."""
        main = next((one for one in dump.threads if one.main), dump.threads[0] if dump.threads else None)
        if dump.rank is not None and dump.parent_pid is None and main is not None:
            self.stacks.take(dump.rank, at, tuple(frame.function for frame in main.frames))

    def may_work(self, rank: int, since: float) -> bool:
        """Whether a rank's process uses CPU time or waits as usual since an instant, or was not read since."""
        return any(paces.may_go_on(lambda key: key[0] == rank, since) for paces in (self.cpu, self.switches))

    def back(self, onset: float, since: float) -> str | None:
        """Return which of them had fallen after the onset and is as before since an instant, in words; None: none."""
        found: dict[str, Paces | Compared] = {
            "its ranks wait and work as often as before": self.switches, "its ranks use as much CPU time as before": self.cpu,
            "its GPUs take as much energy as before": self.gpu, "the stacks of its ranks move again": self.stacks,
            "its flight recorders go on": self.recorders,
        }  # fmt: skip
        return next((words for words, witness in found.items() if witness.came_back(onset, since)), None)


def testimony(name: str, read_at: float | None, moved_at: float | None, now: float) -> Testimony:
    """Return what a witness says that was last read, and last moved, at these instants."""
    if read_at is None or now - read_at > UNREAD_SECONDS:
        return Testimony(witness=name, state="unmeasured", at=read_at)
    if moved_at is not None and read_at - moved_at <= 1.0:
        return Testimony(witness=name, state="alive", at=moved_at)
    return Testimony(witness=name, state="silent", at=moved_at)
