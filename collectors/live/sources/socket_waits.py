"""Which sockets a rank's main thread waits on, and who is at their other ends, from process to process on this node.

    main thread ─ system call ─ descriptor ─ inode ─ connection ─ its reverse ─ inode ─ process ─ its own wait …

The reverse of a connection is looked for in the rank's network namespace, then in those of the node's other processes. Where
an address is translated on the way, or the other end is on another node, it is not found here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from collectors.files.process_stat import Stat
from collectors.live.sources.blocked_calls import blocked_on
from collectors.live.sources.host import Host
from collectors.live.sources.proc_stat import own_pid, stat_of, wait_channel
from collectors.live.sources.ranks import TrainingProcess
from collectors.live.sources.sockets import Connection, connections, networks, socket_inodes, unix_connections
from collectors.live.sources.system_files import names, process_ids
from collectors.records import Frame, Hop, ProcessState, SocketWait

MOST_SOCKETS = 16  # of one thread, or of a process of which no thread was seen blocked on one
MOST_HOPS = 4
MOST_PROCESSES = 8_192  # whose descriptors are looked through
MOST_THREADS = 64  # of a process at the other end
MOST_ANCESTORS = 16
MOST_STACKS = 16  # of processes at other ends
MOST_REPORTED, MOST_CONNECTIONS = 128, 64  # processes with connections to other nodes, and connections of each
_ONE_SOCKET = frozenset(
    {"read", "readv", "write", "writev", "connect", "sendto", "sendmsg", "recvfrom", "recvmsg", "poll"}
)
_STATES = {
    1: "established", 2: "syn_sent", 3: "syn_recv", 4: "fin_wait1", 5: "fin_wait2", 8: "close_wait", 9: "last_ack",
}  # fmt: skip
_T = TypeVar("_T")


def _or_empty(read: Callable[[], _T], empty: _T) -> _T:
    try:
        return read()
    except OSError:
        return empty


@dataclass
class _Network:
    """The sockets of one network namespace; each list is read when it is first needed."""

    place: Path | None

    @cached_property
    def by_inode(self) -> dict[int, Connection]:
        return {one.inode: one for one in self.by_edge.values() if one.inode}

    @cached_property
    def by_edge(self) -> dict[str, Connection]:
        return {one.edge: one for one in _or_empty(lambda: connections(self.place), list[Connection]())}

    @cached_property
    def unix(self) -> dict[int, tuple[int, str]]:
        return _or_empty(lambda: unix_connections(self.place), {})

    @cached_property
    def listeners(self) -> list[Connection]:
        return _or_empty(lambda: connections(self.place, listening=True), list[Connection]())

    def listener(self, address: str) -> int | None:
        """Return the inode of the socket that listens there."""
        host, _, port = address.rpartition(":")
        reached = {f"{host}:{port}", f"0.0.0.0:{port}", f"[::]:{port}"}
        return next((one.inode for one in self.listeners if one.local in reached), None)


class SocketLook:
    """One look at the node's sockets. ``frames_of``: the stack of a process at the other end."""

    def __init__(self, host: Host, frames_of: Callable[[Stat], tuple[Frame, ...]] = lambda _stat: ()) -> None:
        self._proc, self._root = str(host.roots.proc), host.roots.proc
        self._ranks = {one.pid: one for one in host.training()}
        self._frames_of = frames_of
        self._networks: dict[Path | None, _Network] = {}
        self._processes: dict[int, Hop] = {}

    def waits(self, process: TrainingProcess, pid: int, *, candidates: bool) -> tuple[SocketWait, ...]:
        """Return what the main thread of a rank's process waits on, or of one below it.

        ``candidates``: where that is no socket, the rank's connections to outside the job.
        """
        network = self._network(pid)
        call, inodes = self._blocked(pid, pid)
        if call:
            found = [SocketWait(call=call, hops=hops) for inode in inodes if (hops := self._hops(inode, network, pid))]
            return tuple(found[:MOST_SOCKETS]) or (SocketWait(call=call),)
        if not candidates or pid != process.pid:
            return ()
        own = sorted(socket_inodes(self._root / str(pid)) & network.by_inode.keys())
        outside = [hop for inode in own if (hop := self._outside(process, inode, network))]
        return tuple(SocketWait(hops=(hop,)) for hop in outside) if len(outside) <= MOST_SOCKETS else ()

    def waits_of_thread(self, pid: int, thread: int | None) -> tuple[SocketWait, ...]:
        """Return that another thread is blocked on sockets, without their other ends."""
        call, _ = self._blocked(pid, thread) if thread is not None else ("", ())
        return (SocketWait(call=call),) if call else ()

    def elsewhere(self) -> Iterator[ProcessState]:
        """Yield the processes that have connections to other addresses: a rank of another node may wait for one."""
        edges: dict[int, list[str]] = {}
        network = self._network(own_pid(self._root) or next(iter(self._ranks), 0))
        for one in network.by_edge.values():
            inode = one.inode or network.listener(one.local)
            for pid in self._owners.get(inode or 0, ())[:1] if one.leaves_the_node else ():
                edges.setdefault(pid, []).append(one.edge)
        for pid, found in sorted(edges.items())[:MOST_REPORTED]:
            if stat := stat_of(self._proc, pid):
                yield ProcessState(
                    source="stacks", pid=pid, state=stat.state, wait_channel=wait_channel(self._proc, pid),
                    command=stat.name, connections=tuple(sorted(found)[:MOST_CONNECTIONS]),
                )  # fmt: skip

    def _blocked(self, pid: int, thread: int) -> tuple[str, tuple[int, ...]]:
        """Return the call that a thread is blocked in and the inodes of its sockets; empty where none is one."""
        call, descriptors = blocked_on(self._proc, pid, thread)
        links = [Path(f"{self._proc}/{pid}/fd/{number}") for number in descriptors]
        inodes = tuple(inode for link in links for inode in _inode(link))
        return (call, inodes) if inodes else ("", ())

    def _network(self, pid: int) -> _Network:
        place = next(iter(networks([self._root / str(pid)], self._root / "self")), None)
        return self._networks.setdefault(place, _Network(place))

    def _outside(self, process: TrainingProcess, inode: int, network: _Network) -> Hop | None:
        """Return a connection that its process opened to neither its job nor its launcher."""
        one = network.by_inode[inode]
        store = process.labels.get("MASTER_PORT")
        if network.listener(one.local) or (store and one.remote.endswith(f":{store}")):
            return None
        hop = self._hop(inode, network)
        launcher = stat_of(self._proc, process.pid)
        own = hop is not None and (hop.rank, hop.job) != (None, None) and hop.job == process.job
        started_by = launcher is not None and hop is not None and hop.pid == launcher.parent_pid
        return None if own or started_by else hop

    def _hops(self, inode: int, network: _Network, pid: int) -> tuple[Hop, ...]:
        """Follow a socket from process to process, as long as each waits on one socket only."""
        found: list[Hop] = []
        seen = {pid}
        while len(found) < MOST_HOPS and (hop := self._hop(inode, network)) is not None:
            found.append(hop)
            if hop.pid is None or hop.pid in seen or hop.rank is not None or hop.process_state in {"T", "Z", "X"}:
                break
            seen.add(hop.pid)
            network = self._network(hop.pid)
            further = self._waits_further(hop, network)
            if further is None:
                break
            inode = further
        return tuple(found)

    def _waits_further(self, hop: Hop, network: _Network) -> int | None:
        """Return the one socket that a process is blocked on, beside those by which it is waited for."""
        pid, found = hop.pid or 0, set()
        for name in names(f"{self._proc}/{pid}/task")[:MOST_THREADS]:
            call, inodes = self._blocked(pid, int(name)) if name.isdigit() else ("", ())
            if call in _ONE_SOCKET and len(inodes) == 1:
                found.add(inodes[0])
        outward = [inode for inode in found if self._opened(inode, network)]
        return outward[0] if len(outward) == 1 else None

    @staticmethod
    def _opened(inode: int, network: _Network) -> bool:
        """Whether a process opened this connection; what it accepted comes from those who wait for it."""
        one = network.by_inode.get(inode)
        return one is not None and network.listener(one.local) is None

    def _hop(self, inode: int, network: _Network) -> Hop | None:
        if (one := network.by_inode.get(inode)) is not None:
            state = _STATES.get(one.readings.get("state", 0), "")
            other, accepted = self._other_end(one, network)
            hop = Hop(local=one.local, remote=one.remote, state=state, accepted=accepted)
        elif inode in network.unix:
            other, path = network.unix[inode]
            remote = network.unix.get(other, (0, ""))[1] or path or "a unix socket"
            # A connection that its listener has not accepted yet has no inode at the other end.
            hop = Hop(local=path, remote=remote, state="established", accepted=bool(other))
        else:
            return None
        return self._with_process(hop, other)

    def _other_end(self, one: Connection, network: _Network) -> tuple[int, bool]:
        """Return the inode at the other end, 0 where this node does not have it, and whether it was accepted."""
        back = f"{one.remote}>{one.local}"
        loopback = one.remote.startswith(("127.", "[::1]"))
        for place in (network,) if loopback else (network, *self._others(network)):
            if (reverse := place.by_edge.get(back)) is not None:
                return reverse.inode or place.listener(one.remote) or 0, bool(reverse.inode)
        listener = network.listener(one.remote) if loopback and one.readings.get("state") != 1 else None
        return listener or 0, False

    def _others(self, network: _Network) -> Iterator[_Network]:
        for place in self._places:
            other = self._networks.setdefault(place, _Network(place))
            if other is not network:
                yield other

    @cached_property
    def _places(self) -> list[Path | None]:
        return networks((self._root / str(pid) for pid in self._pids), self._root / "self")

    @cached_property
    def _pids(self) -> list[int]:
        return _or_empty(lambda: process_ids(self._proc), list[int]())[:MOST_PROCESSES]

    @cached_property
    def _owners(self) -> dict[int, list[int]]:
        """Return inode → the processes that have it open, the oldest number first."""
        found: dict[int, list[int]] = {}
        for pid in self._pids:
            for inode in socket_inodes(self._root / str(pid)):
                found.setdefault(inode, []).append(pid)
        return found

    def _with_process(self, hop: Hop, inode: int) -> Hop:
        pid = next(iter(self._owners.get(inode, ())), None) if inode else None
        if pid is None:
            return hop
        if pid not in self._processes:
            self._processes[pid] = self._process(pid)
        known = self._processes[pid]
        return Hop(
            local=hop.local, remote=hop.remote, state=hop.state, accepted=hop.accepted, pid=known.pid,
            command=known.command, process_state=known.process_state, wait_channel=known.wait_channel, rank=known.rank,
            job=known.job, frames=known.frames,
        )  # fmt: skip

    def _process(self, pid: int) -> Hop:
        stat, whose = stat_of(self._proc, pid), self._rank_of(pid)
        if stat is None:
            return Hop()
        return Hop(
            pid=pid, command=stat.name, process_state=stat.state, wait_channel=wait_channel(self._proc, pid),
            rank=whose.rank if whose else None, job=whose.job if whose else None,
            frames=() if pid in self._ranks or len(self._processes) >= MOST_STACKS else self._frames_of(stat),
        )  # fmt: skip

    def _rank_of(self, pid: int) -> TrainingProcess | None:
        """Return the rank whose process this is, or that started it."""
        for _ in range(MOST_ANCESTORS):
            if (rank := self._ranks.get(pid)) is not None:
                return rank
            if (stat := stat_of(self._proc, pid)) is None:
                return None
            pid = stat.parent_pid
        return None


def _inode(link: Path) -> Iterator[int]:
    """Yield N of a link to "socket:[N]"."""
    with suppress(OSError, ValueError):
        kind, _, rest = str(link.readlink()).partition(":[")
        if kind == "socket":
            yield int(rest.removesuffix("]"))
