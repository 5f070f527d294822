"""Which descriptors a thread is blocked on, by /proc/PID/task/TID/syscall: the system call and its arguments.

The file is readable by who may trace the process (proc(5)), which py-spy needs too. Descriptors of poll(2) and select(2)
lie in the process's memory, those of an epoll(7) in the epoll's own fdinfo.
"""

from __future__ import annotations

import os
import platform
import struct
from contextlib import suppress

from collectors.live.sources.system_files import text

MOST_DESCRIPTORS = 64  # of one poll, select or epoll; a thread that watches more waits for no particular one
_BY_MACHINE = {  # system call numbers (asm/unistd_64.h; asm-generic/unistd.h)
    "x86_64": {
        0: "read", 1: "write", 7: "poll", 19: "readv", 20: "writev", 23: "select", 42: "connect", 44: "sendto",
        45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 219: "poll", 232: "epoll_wait", 270: "select", 271: "poll",
        281: "epoll_wait", 299: "recvmsg", 441: "epoll_wait",
    },
    "aarch64": {
        22: "epoll_wait", 63: "read", 64: "write", 65: "readv", 66: "writev", 72: "select", 73: "poll", 203: "connect",
        206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 243: "recvmsg", 441: "epoll_wait",
    },
}  # fmt: skip
_CALLS = _BY_MACHINE.get(platform.machine(), {})  # 219 is restart_syscall: a poll that a stop interrupted
_POLL = struct.Struct("=ihh")


def blocked_on(proc: str, pid: int, thread: int) -> tuple[str, tuple[int, ...]]:
    """Return the system call that a thread is blocked in, and its descriptors; empty where it is another or may not be read."""
    words = (text(f"{proc}/{pid}/task/{thread}/syscall") or "").split()
    name = _CALLS.get(int(words[0]), "") if len(words) > 6 and words[0].isdigit() else ""
    if not name:
        return "", ()
    first, second, third, fourth = (int(word, 16) for word in words[1:5])
    with suppress(OSError, ValueError):
        if name == "poll":
            return name, _polled(f"{proc}/{pid}/mem", first, second & 0xFFFFFFFF)
        if name == "select":
            return name, _selected(f"{proc}/{pid}/mem", first & 0xFFFFFFFF, (second, third, fourth))
        if name == "epoll_wait":
            return name, _watched(f"{proc}/{pid}/fdinfo/{first & 0xFFFFFFFF}")
        return name, (first & 0xFFFFFFFF,)
    return name, ()


def _memory(path: str, at: int, size: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, size, at)
    finally:
        os.close(descriptor)


def _polled(memory: str, at: int, count: int) -> tuple[int, ...]:
    if not 0 < count <= MOST_DESCRIPTORS:
        return ()
    data = _memory(memory, at, count * _POLL.size)
    whole = len(data) // _POLL.size * _POLL.size
    return tuple(dict.fromkeys(one for one, _, _ in _POLL.iter_unpack(data[:whole]) if one >= 0))


def _selected(memory: str, count: int, sets: tuple[int, int, int]) -> tuple[int, ...]:
    found: dict[int, None] = {}
    for at in sets:
        if at and 0 < count <= 1024:  # FD_SETSIZE
            bits = int.from_bytes(_memory(memory, at, (count + 63) // 64 * 8), "little")
            found |= {number: None for number in range(count) if bits >> number & 1}
    return tuple(found) if len(found) <= MOST_DESCRIPTORS else ()


def _watched(info: str) -> tuple[int, ...]:
    lines = (line.split() for line in (text(info) or "").splitlines())
    found = [int(words[1]) for words in lines if words[:1] == ["tfd:"] and len(words) > 1 and words[1].isdigit()]
    return tuple(found) if len(found) <= MOST_DESCRIPTORS else ()
