"""Whose a listening TCP port of this node is: a stranger may listen where a job or an exporter would be asked."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from collectors.live.sources.socket_requests import RequestFailed

OWN_NETWORK = Path("/proc/self/net")  # where the agent connects from
LISTEN = "0A"
_LOOPBACK_6, _MAPPED = b"\0" * 15 + b"\1", b"\0" * 10 + b"\xff\xff"


class ForeignListener(RequestFailed):
    """Another user listens there."""


def refuse_strangers(address: str, users: Collection[int | None], network: Path = OWN_NETWORK) -> None:
    """Raise ``ForeignListener`` where any but these users listens at ``host:port`` of this node's loopback.

    An address on another machine is not checked: only the configuration may name one.
    """
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or not (host.strip("[]") in {"localhost", "::1"} or host.startswith("127.")):
        return
    if strangers := owners(int(port), network) - set(users):
        mine = " or ".join(map(str, sorted(user for user in users if user is not None)))
        raise ForeignListener(
            f"not asked: user {min(strangers)} listens there, not {mine or 'the user of the process'}"
        )


def owners(port: int, network: Path = OWN_NETWORK) -> set[int]:
    """Return the users whose sockets listen at a port where this node's loopback reaches them."""
    return {user for at, number, user in _listening(network) if number == port and _is_reached(at)}


def _is_reached(address: bytes) -> bool:
    mapped = address.removeprefix(_MAPPED)
    return not any(mapped) or address == _LOOPBACK_6 or (len(mapped) == 4 and mapped[0] == 127)


def _listening(network: Path) -> Iterator[tuple[bytes, int, int]]:
    """Yield (address, port, user) of the listening sockets, which the kernel lists before all others [proc_pid_net(5)]."""
    for name in ("tcp", "tcp6"):
        with suppress(FileNotFoundError), (network / name).open(encoding="ascii", errors="replace") as lines:
            next(lines, None)
            for line in lines:
                words = line.split(None, 8)
                if len(words) < 8 or words[3] != LISTEN:
                    break
                address, _, port = words[1].partition(":")
                # Each word of four bytes is printed as a number of the machine's own order.
                parts = (int(address[at : at + 8], 16) for at in range(0, len(address), 8))
                yield b"".join(part.to_bytes(4, sys.byteorder) for part in parts), int(port, 16), int(words[7])
