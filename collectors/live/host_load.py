"""The node itself: processors, memory, pressure, disks, mounts, blocked tasks, control groups, clock, temperatures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from collectors.files.process_stat import TICKS_A_SECOND
from collectors.live import NothingToCollect, Request, Yielded, collector
from collectors.live.sources import cgroups, clock_offset, host_counters
from collectors.live.sources.host import Host
from collectors.live.sources.mounts import ANSWER_SECONDS, MOUNTS_LIMIT, MountAnswer, RemoteMounts, fill, mounts
from collectors.live.sources.proc_stat import stat_of, wait_channel
from collectors.live.sources.reporting import ChangedDevices, LimitReports, tick
from collectors.live.sources.system_files import process_ids
from collectors.records import Device, DeviceState, ProcessState

SLOW_SECONDS = 25.0  # parts that cost more or change slowly are read at most so often: every third run by default
BLOCKED_LIMIT = 256  # tasks in state D that are reported in one run

Part = Callable[[], Iterable[Yielded]]


@collector(
    "host",
    gives="processors, memory, pressure, disks, mounts that hang, blocked tasks, throttling, kills, the clock's offset",
    every_seconds=10.0,
    limit_seconds=15.0,
)
class HostLoad:
    """Reads /proc, /sys and the clock. A part that fails does not stop the others."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._devices = ChangedDevices(host.clock)
        self._bounds = LimitReports(host.clock)
        self._remote = RemoteMounts(host.option("host", "mount_seconds", ANSWER_SECONDS))
        self._mount_states: dict[str, str] = {}
        self._slow_at = 0.0  # seconds since boot

    def __call__(self, _asked: Request | None) -> Iterator[Yielded]:
        """Yield one tick of each part that is due."""
        if not (self._host.roots.proc / "stat").exists():
            raise NothingToCollect(f"there is no {self._host.roots.proc}/stat")
        parts, now = list(self._quick()), self._host.clock.monotonic()
        if now >= self._slow_at:
            self._slow_at = now + SLOW_SECONDS
            parts += self._slow()
        failures = []
        for part in parts:
            try:
                yield from part()
            except (OSError, ValueError, LookupError) as error:
                failures.append(f"{type(error).__name__}: {error}")
        if failures:
            raise RuntimeError(f"{len(failures)} of {len(parts)} parts failed: {'; '.join(failures)}")

    def _quick(self) -> Iterator[Part]:
        proc, sys = self._host.roots.proc, self._host.roots.sys
        yield lambda: host_counters.processors(proc)
        yield lambda: host_counters.memory(proc)
        yield lambda: host_counters.pressure(proc)
        yield lambda: host_counters.disks(proc, sys)
        yield lambda: host_counters.open_files(proc)
        yield self._groups

    def _slow(self) -> Iterator[Part]:
        sys = self._host.roots.sys
        yield self._clock
        yield self._blocked
        yield lambda: host_counters.memory_nodes(sys)
        yield lambda: host_counters.temperatures(sys)
        yield self._mounts

    def _groups(self) -> Iterator[Yielded]:
        found = cgroups.groups(self._host.roots.proc, self._host.training())
        kept = dict(islice(found.items(), cgroups.GROUPS_LIMIT))
        rows = {path: cgroups.read(self._host.roots.sys, path) for path in kept}
        counted = {path: row for path, row in rows.items() if any(value is not None for value in row.values())}
        yield from tick("cgroup", counted)
        yield from self._devices.changed(cgroups.devices({path: kept[path] for path in counted}))
        what = f"control groups are not read (bound {cgroups.GROUPS_LIMIT})"
        yield from self._bounds.left_out("control groups", len(found) - len(kept), what)

    def _clock(self) -> Iterator[Yielded]:
        program = self._host.option("host", "chronyc", "chronyc")
        yield from tick("clock", {"": {**clock_offset.by_kernel(), **clock_offset.by_chrony(program)}}, "<f4")

    def _blocked(self) -> Iterator[Yielded]:
        """Yield blocked tasks that do not train; collector ``process`` reports those that do, with their ranks."""
        training = {process.pid for process in self._host.training()}
        tasks = [task for task in self._blocked_tasks() if task.pid not in training]
        yield from tasks[:BLOCKED_LIMIT]
        what = f"tasks in state D are not reported one by one (bound {BLOCKED_LIMIT})"
        yield from self._bounds.left_out("tasks", len(tasks[BLOCKED_LIMIT:]), what)

    def _blocked_tasks(self) -> Iterator[ProcessState]:
        proc, clock = str(self._host.roots.proc), self._host.clock
        for pid in process_ids(proc):
            stat = stat_of(proc, pid)
            if stat is not None and stat.state == "D":
                elapsed = max(clock.monotonic() - stat.start_ticks / TICKS_A_SECOND, 0.0)
                yield ProcessState(
                    source="/proc",
                    pid=pid,
                    state="D",
                    wait_channel=wait_channel(proc, pid),
                    elapsed_seconds=round(elapsed, 2),
                    started_at=round(clock.now() - elapsed, 2),
                    command=stat.name,
                    parent_pid=stat.parent_pid,
                )

    def _mounts(self) -> Iterator[Yielded]:
        found = mounts(self._host.roots.proc, self._host.roots.files)
        local, remote = [one for one in found if one.local], [one for one in found if one.remote]
        sizes, seconds = fill(local[:MOUNTS_LIMIT]), {}
        for answer in self._remote.check(remote[:MOUNTS_LIMIT]):
            seconds[answer.mount.point] = {"answer_seconds": answer.seconds}
            sizes |= {answer.mount.point: answer.sizes} if answer.sizes else {}
            yield from self._mount(answer)
        yield from tick("mount", dict(sorted(seconds.items())), "<f4")
        yield from tick("filesystem", sizes)
        left_out = sum(len(mounted[MOUNTS_LIMIT:]) for mounted in (local, remote))
        what = f"mounts are not checked (bound {MOUNTS_LIMIT} of each kind)"
        yield from self._bounds.left_out("mounts", left_out, what)

    def _mount(self, answer: MountAnswer) -> Iterator[Yielded]:
        """Yield the mount with its server, and how it answers where that has changed."""
        mount = answer.mount
        attributes = {"type": mount.type, "source": mount.source[:200]}
        device = Device(type="mount", id=mount.point, name=mount.source, attributes=attributes)
        yield from self._devices.changed([device])
        if self._mount_states.get(mount.point) != answer.state:
            self._mount_states[mount.point] = answer.state
            yield DeviceState(device=mount.point, state=answer.state, text=answer.output)
