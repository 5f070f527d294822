"""When and how a process ended: from the kernel's process events where they can be received, from a pidfd everywhere.

The events (the proc connector, over netlink) have code and instant of every exit to the nanosecond, in order. They need
CAP_NET_ADMIN and the machine's own network and pid namespaces. A pidfd needs no privilege and reports that its process has
ended, from Linux 6.15 on also how. Before 6.15 a zombie still has its exit status.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

MOST_WATCHED = 512  # a descriptor each
MOST_EVENTS = 65_536  # in one run
RECEIVE_BYTES = 4 << 20  # some 8,000 exits between two runs
ANSWER_SECONDS = 0.5

_NETLINK_CONNECTOR = 11
_MESSAGE = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_CONNECTOR = struct.Struct("=IIIIHH")  # cn_msg: index, value, sequence, acknowledgement, length, flags
_EVENT = struct.Struct("=IIQ")  # proc_event: what, processor, monotonic nanoseconds
_EXIT = struct.Struct("=IIII")  # thread, process, status, signal to the parent
_HEAD_BYTES = _MESSAGE.size + _CONNECTOR.size
_NLMSG_DONE = 3
_CN_PROC = 1  # index, value and multicast group alike
_LISTEN = 1
_NONE, _EXITED = 0, 0x80000000
_SO_ATTACH_FILTER = 26
_PIDFD_GET_INFO = 0xC040FF0B
_PIDFD_INFO = struct.Struct("=QQ11Ii")  # what is wanted and given, control group, ids, exit status
_PIDFD_INFO_EXIT = 1 << 3


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """The end of a process. ``status`` is wait(2)'s, None where unknown; ``ago_seconds``: 0 where the instant is unknown."""

    status: int | None
    ago_seconds: float

    @property
    def exit_code(self) -> int | None:
        """Return its exit code, None where a signal ended it."""
        return None if self.status is None or self.status & 0x7F else self.status >> 8 & 0xFF

    @property
    def signal(self) -> int | None:
        """Return the signal that ended it."""
        return self.status & 0x7F or None if self.status is not None else None


class ExitEvents:
    """The kernel's events of every exit of the machine. Raises OSError where they cannot be received."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _NETLINK_CONNECTOR)
        try:
            self._socket.bind((0, _CN_PROC))
            self._listen()
            self._only_exits()
        except BaseException:
            self._socket.close()
            raise

    def _listen(self) -> None:
        request = struct.pack("=I", _LISTEN)
        connector = _CONNECTOR.pack(_CN_PROC, _CN_PROC, 0, 0, len(request), 0) + request
        self._socket.settimeout(ANSWER_SECONDS)
        self._socket.send(_MESSAGE.pack(_MESSAGE.size + len(connector), _NLMSG_DONE, 0, 0, 0) + connector)
        until = time.monotonic() + ANSWER_SECONDS
        # Other events may come before the answer; in a pid namespace of its own no answer ever comes.
        while _what(self._socket.recv(1024)) != _NONE:
            if time.monotonic() > until:
                raise TimeoutError("the kernel does not answer the request for process events")
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)

    def _only_exits(self) -> None:
        """Have the kernel drop every event but the exit of a whole process."""
        at = _HEAD_BYTES
        program = b"".join(
            struct.pack("=HBBI", *step)
            for step in (
                (0x20, 0, 0, at),  # what
                (0x15, 0, 5, socket.htonl(_EXITED)),
                (0x20, 0, 0, at + _EVENT.size),  # thread
                (0x07, 0, 0, 0),
                (0x20, 0, 0, at + _EVENT.size + 4),  # process
                (0x1D, 0, 1, 0),
                (0x06, 0, 0, 0xFFFFFFFF),
                (0x06, 0, 0, 0),
            )
        )
        steps = ctypes.create_string_buffer(program, len(program))
        self._socket.setsockopt(
            socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(program) // 8, ctypes.addressof(steps))
        )

    def drain(self) -> Iterator[tuple[int, int, int]]:
        """Yield (process, status, monotonic nanoseconds) of the exits since the last call."""
        for _ in range(MOST_EVENTS):
            try:
                data = self._socket.recv(1024)
            except BlockingIOError:
                return
            except OSError:
                continue  # the buffer overflowed: those events are lost, and the pidfds still report the ends
            if _what(data) == _EXITED and len(data) >= _HEAD_BYTES + _EVENT.size + _EXIT.size:
                _, _, at_ns = _EVENT.unpack_from(data, _HEAD_BYTES)
                thread, process, status, _ = _EXIT.unpack_from(data, _HEAD_BYTES + _EVENT.size)
                if thread == process:
                    yield process, status, at_ns

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


def _what(data: bytes) -> int:
    return int(_EVENT.unpack_from(data, _HEAD_BYTES)[0]) if len(data) >= _HEAD_BYTES + _EVENT.size else -1


class ExitWatcher:
    """Reports the ends of the processes that it watches."""

    def __init__(self, *, events: bool = True) -> None:
        self._poll = select.epoll()
        self._descriptors: dict[int, int] = {}  # process → pidfd
        self._processes: dict[int, int] = {}
        self._exits: dict[int, tuple[int | None, int]] = {}  # process → status and instant of its newest exit
        self._events: ExitEvents | None = None
        if events:
            try:
                self._events = ExitEvents()
            except OSError:
                self._events = None

    @property
    def exact(self) -> bool:
        """Whether the kernel reports the instants of exits."""
        return self._events is not None

    def watch(self, pid: int) -> bool:
        """Begin to watch a process; return False where it has ended or the system allows no more."""
        if pid in self._descriptors:
            return True
        if len(self._descriptors) >= MOST_WATCHED:
            return False
        try:
            descriptor = os.pidfd_open(pid)
        except (OSError, AttributeError):
            return False
        self._descriptors[pid], self._processes[descriptor] = descriptor, pid
        self._poll.register(descriptor, select.EPOLLIN)
        self._exits.pop(pid, None)  # of an earlier process with this id
        return True

    def forget(self, pid: int) -> None:
        """Stop watching a process."""
        descriptor = self._descriptors.pop(pid, None)
        if descriptor is not None:
            del self._processes[descriptor]
            os.close(descriptor)  # which removes it from the poll, too

    def ended(self, wait_seconds: float = 0.0) -> dict[int, ProcessExit]:
        """Return the watched processes that have ended, and forget them; wait at most so long for the first."""
        ready = self._poll.poll(wait_seconds, maxevents=MOST_WATCHED)
        for pid, code, exited_at_ns in self._events.drain() if self._events else ():
            if pid in self._descriptors:
                self._exits[pid] = code, exited_at_ns
        now_ns = time.monotonic_ns()
        found = {}
        for descriptor, _ in ready:
            pid = self._processes[descriptor]
            status, at_ns = self._exits.pop(pid, (_status(descriptor), now_ns))
            found[pid] = ProcessExit(status, max(0, now_ns - at_ns) / 1e9)
            self.forget(pid)
        return found

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Stop watching everything."""
        for pid in tuple(self._descriptors):
            self.forget(pid)
        self._poll.close()
        if self._events is not None:
            self._events.close()


def _status(descriptor: int) -> int | None:
    """Return the exit status that a pidfd reports, None before Linux 6.15."""
    data = bytearray(_PIDFD_INFO.size)
    struct.pack_into("=Q", data, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(descriptor, _PIDFD_GET_INFO, data)
    except OSError:
        return None
    found = _PIDFD_INFO.unpack(data)
    return int(found[-1]) if found[0] & _PIDFD_INFO_EXIT else None
