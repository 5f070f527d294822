"""The connections of processes; of TCP with the kernel's counters of each: retransmits, round-trip time, bytes.

Read over a netlink socket (sock_diag(7), struct tcp_info of linux/tcp.h), as ``ss -tin`` does: one dump of all connections,
no subprocess. A pod has a network namespace of its own, which a short-lived thread enters.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from collectors.live.sources.system_files import integer

DESCRIPTORS_LIMIT = 16_384  # read of one process
NETWORKS_LIMIT = 16  # different ones of the training processes of a node
ANSWER_SECONDS = 2.0  # of the kernel; a dump of 10,000 connections takes some milliseconds
ANSWER_BYTES = 64 << 20

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _DONE, _ERROR = 4, 20, 3, 2
_REQUEST_DUMP = 0x1 | 0x300
# Established, connecting, and closing with unsent data.
_STATES = 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9
_LISTENING = 1 << 10
_INET_DIAG_INFO = 2
_UNIX_REQUEST, _UNIX_ANSWER = struct.Struct("=BBxxIIIII"), struct.Struct("=BBBxIII")  # unix_diag_req, unix_diag_msg
_UNIX_SHOW = 1 | 4  # name, peer
_UNIX_NAME, _UNIX_PEER = 0, 2
_UNIX_CONNECTED = 1 << 1
_CLONE_NEWNET = 0x40000000
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI48x")
_ANSWER = struct.Struct("=BBxx2s2s16s16s12xIIIII")
_ATTRIBUTE = struct.Struct("=HH")

# Metric → (offset in struct tcp_info, format). The structure only grows; an old kernel's is shorter.
_TCP_INFO = {
    "retransmissions_in_a_row": (2, "B"),
    "unacknowledged_packets": (24, "I"),
    "lost_packets": (32, "I"),
    "last_sent_ms": (44, "I"),
    "last_received_ms": (52, "I"),
    "round_trip_us": (68, "I"),
    "round_trip_variation_us": (72, "I"),
    "congestion_window_packets": (80, "I"),
    "retransmits_total": (100, "I"),
    "bytes_received_total": (128, "Q"),
    "delivery_bytes_per_second": (160, "Q"),
    "busy_us_total": (168, "Q"),
    "receiver_limited_us_total": (176, "Q"),
    "bytes_sent_total": (200, "Q"),
    "bytes_retransmitted_total": (208, "Q"),
}
_FIELDS = {name: (offset, struct.Struct("=" + form)) for name, (offset, form) in _TCP_INFO.items()}


@dataclass(frozen=True, slots=True)
class Connection:
    """One TCP connection: its ends as "10.0.0.1:4242", and its readings by metric."""

    inode: int
    local: str
    remote: str
    readings: dict[str, int]

    @property
    def edge(self) -> str:
        """Return "10.0.0.1:4242>10.0.0.2:5000"."""
        return f"{self.local}>{self.remote}"

    @property
    def leaves_the_node(self) -> bool:
        """Whether its ends have different addresses."""
        return self.local.rpartition(":")[0] != self.remote.rpartition(":")[0]


def socket_inodes(process: Path) -> set[int]:
    """Return the inodes of the sockets that a process (/proc/PID) has open; none where it has ended or may not be read."""
    with suppress(OSError), os.scandir(process / "fd") as entries:
        inodes = {_inode(entry.path, "socket") for entry in islice(entries, DESCRIPTORS_LIMIT)}
        return {inode for inode in inodes if inode is not None}
    return set()


def networks(processes: Iterable[Path], own: Path) -> list[Path | None]:
    """Return one path for each network namespace of these processes, None for that of ``own``."""
    here = _inode(own / "ns/net", "net")
    found: dict[int | None, Path | None] = {}
    for process in processes:
        inode = _inode(process / "ns/net", "net")
        if inode is None or inode == here:
            found[here] = None
        else:
            found.setdefault(inode, process / "ns/net")
    return list(found.values())[:NETWORKS_LIMIT]


def connections(network: Path | None, *, listening: bool = False) -> list[Connection]:
    """Return the connections of a network namespace, or its listeners, None: the agent's own; raise OSError."""
    found: list[Connection] = []
    states = _LISTENING if listening else _STATES
    with _socket_in(network) as asked:
        asked.settimeout(ANSWER_SECONDS)
        for family in (socket.AF_INET, socket.AF_INET6):
            request = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INET_DIAG_INFO - 1), states)
            found += (_connection(body) for body in _dump(asked, family, request) if len(body) >= _ANSWER.size)
    return found


def unix_connections(network: Path | None) -> dict[int, tuple[int, str]]:
    """Return the connected unix sockets of a network namespace: inode → (inode of the other end, own path); raise OSError."""
    found = {}
    with _socket_in(network) as asked:
        asked.settimeout(ANSWER_SECONDS)
        request = _UNIX_REQUEST.pack(socket.AF_UNIX, 0, _UNIX_CONNECTED, 0, _UNIX_SHOW, 0, 0)
        for body in _dump(asked, socket.AF_UNIX, request):
            if len(body) >= _UNIX_ANSWER.size:
                parts = _attributes(body, _UNIX_ANSWER.size)
                peer, name = bytes(parts.get(_UNIX_PEER, b"")), bytes(parts.get(_UNIX_NAME, b""))
                shown = name.rstrip(b"\0").replace(b"\0", b"@").decode(errors="replace")
                found[_UNIX_ANSWER.unpack_from(body)[3]] = (int.from_bytes(peer[:4], sys.byteorder), shown)
    return found


def _inode(link: str | Path, type: str) -> int | None:
    """Return N of a link to "type:[N]"."""
    try:
        kind, _, rest = os.readlink(link).partition(":[")  # noqa: PTH115 (10,000 descriptors)
    except OSError:
        return None
    return integer(rest.removesuffix("]")) if kind == type else None


def _socket_in(network: Path | None) -> socket.socket:
    """Open a netlink socket; it stays in the network namespace of the thread that opens it."""
    if network is None:
        return _netlink()
    opened: list[socket.socket] = []
    failed: list[OSError] = []

    def enter() -> None:
        try:
            with network.open("rb") as name:
                if ctypes.CDLL(None, use_errno=True).setns(name.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(network))
            opened.append(_netlink())
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=enter, name="enters a network")  # its namespace ends with it
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return opened[0]


def _netlink() -> socket.socket:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)


def _dump(asked: socket.socket, family: int, request: bytes) -> Iterator[memoryview]:
    header = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, family, 0)
    asked.send(header + request)
    received = 0
    while received < ANSWER_BYTES:
        data = asked.recv(1 << 18)
        received += len(data)
        for kind, body in _messages(data):
            if kind == _DONE:
                return
            if kind == _ERROR:
                code = -struct.unpack_from("=i", body)[0]
                raise OSError(code, f"the kernel does not list its connections: {os.strerror(code)}")
            if kind == _SOCK_DIAG_BY_FAMILY:
                yield body
    raise OSError(errno.EMSGSIZE, f"the kernel's list of connections is longer than {ANSWER_BYTES:,} bytes")


def _messages(data: bytes) -> Iterator[tuple[int, memoryview]]:
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind = _HEADER.unpack_from(data, at)[:2]
        if length < _HEADER.size:
            return
        yield kind, memoryview(data)[at + _HEADER.size : at + length]
        at += (length + 3) & ~3


def _connection(body: memoryview) -> Connection:
    family, state, source_port, target_port, source, target, _, read, written, _, inode = _ANSWER.unpack_from(body)
    readings = {"state": state, "receive_queue_bytes": read, "send_queue_bytes": written, **_tcp_info(body)}
    return Connection(inode, _end(family, source, source_port), _end(family, target, target_port), readings)


def _tcp_info(body: memoryview) -> dict[str, int]:
    info = _attributes(body, _ANSWER.size).get(_INET_DIAG_INFO, memoryview(b""))
    return {
        name: min(form.unpack_from(info, offset)[0], (1 << 63) - 1)
        for name, (offset, form) in _FIELDS.items()
        if offset + form.size <= len(info)
    }


def _attributes(body: memoryview, at: int) -> dict[int, memoryview]:
    """Return the attributes of an answer by their kind."""
    found = {}
    while at + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, at)
        if length < _ATTRIBUTE.size:
            break
        found[kind] = body[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
    return found


def _end(family: int, address: bytes, port: bytes) -> str:
    """Write an end as a job's log does; an IPv4-mapped IPv6 address is written as IPv4."""
    number = int.from_bytes(port, "big")
    if family == socket.AF_INET:
        return f"{socket.inet_ntop(socket.AF_INET, address[:4])}:{number}"
    if address.startswith(b"\0" * 10 + b"\xff\xff"):
        return f"{socket.inet_ntop(socket.AF_INET, address[12:])}:{number}"
    return f"[{socket.inet_ntop(socket.AF_INET6, address)}]:{number}"
