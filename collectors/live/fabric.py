"""The node's links, and the job's connections over them: ports, interfaces, and each edge to a peer.

A slow or lossy link seldom shows in one rank's timing, because all ranks wait alike. The retransmits and round-trip times of
the edges over it do show: the link is common to the bad edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from collectors.live import NothingToCollect, Request, Yielded, collector
from collectors.live.sources.host import Host
from collectors.live.sources.ports import PORTS_LIMIT, SKIPPED_INTERFACES, infiniband, network
from collectors.live.sources.ranks import TrainingProcess
from collectors.live.sources.reporting import ChangedDevices, LimitReports, tick
from collectors.live.sources.sockets import Connection, connections, networks, socket_inodes

EDGES_LIMIT = 256  # of all training processes of a node: rings and trees of eight ranks have some dozens


@collector(
    "fabric",
    gives="counters and state of every InfiniBand port and interface; retransmits and round trips of the job's connections",
    every_seconds=10.0,
    limit_seconds=8.0,
)
class Fabric:
    """Reads /sys/class/infiniband, /sys/class/net, and the kernel's TCP connections of the training processes."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._devices = ChangedDevices(host.clock)
        self._bounds = LimitReports(host.clock)

    def __call__(self, _asked: Request | None) -> Iterator[Yielded]:
        """Yield one tick of every port, interface and edge."""
        nothing = True
        for one in self._links():
            nothing = False
            yield one
        training = self._host.training()
        if training:
            yield from self._edges(training)
        elif nothing:
            raise NothingToCollect(f"no port or interface below {self._host.roots.sys}/class, and nothing trains here")

    def _links(self) -> Iterator[Yielded]:
        skipped = self._host.option("fabric", "skip_interfaces", SKIPPED_INTERFACES)
        for scope, (rows, devices, left_out) in {
            "infiniband": infiniband(self._host.roots.sys),
            "network": network(self._host.roots.sys, skipped),
        }.items():
            yield from tick(scope, rows)
            yield from self._devices.changed(devices)
            yield from self._bounds.left_out(scope, left_out, f"ports are not read (bound {PORTS_LIMIT})")

    def _edges(self, training: tuple[TrainingProcess, ...]) -> Iterator[Yielded]:
        most = self._host.option("fabric", "edges", EDGES_LIMIT)
        owners: dict[int, TrainingProcess] = {}
        for process in training:
            for inode in socket_inodes(self._process(process)):
                owners.setdefault(inode, process)
        found, failures = self._connections(training)
        found = [one for one in found if one.inode in owners]
        kept = sorted(sorted(found, key=_matters, reverse=True)[:most], key=lambda one: one.edge)
        yield from tick("socket", {one.edge: _row(one, owners[one.inode]) for one in kept})
        what = f"connections of training processes are left out, those with the fewest bytes (bound {most})"
        yield from self._bounds.left_out("connections", len(found) - len(kept), what)
        if failures:
            raise failures[0]

    def _connections(self, training: tuple[TrainingProcess, ...]) -> tuple[list[Connection], list[OSError]]:
        """Ask every network namespace that a training process is in; one that cannot be asked does not stop the others."""
        found: list[Connection] = []
        failures: list[OSError] = []
        for place in networks(map(self._process, training), self._host.roots.proc / "self"):
            try:
                found += connections(place)
            except OSError as error:
                failures.append(error)
        return found, failures

    def _process(self, process: TrainingProcess) -> Path:
        return self._host.roots.proc / str(process.pid)


def _matters(one: Connection) -> tuple[bool, int, str]:
    """Order by what is kept where there are too many: edges to other nodes before local ones, busy before idle."""
    moved = one.readings.get("bytes_sent_total", 0) + one.readings.get("bytes_received_total", 0)
    return one.leaves_the_node, moved, one.edge


def _row(one: Connection, owner: TrainingProcess) -> dict[str, int]:
    return {"rank": owner.rank, "pid": owner.pid, **one.readings}
