"""The messages to systemd over its datagram socket: READY, WATCHDOG while the supervising loop turns, STOPPING [sd_notify(3)].

A second watch is inside: where one thread keeps the interpreter for ``HELD_SECONDS`` of the process's own processor time, so
that neither the loop nor a handler written in Python can run, a signal prints every thread's stack and ends the process. It is
started again by its init system, and its spool has everything. Only processor time counts: a slow disk, an overloaded machine
and a suspended one keep all threads from running, and no thread is to blame.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import MutableMapping

HELD_SECONDS = 20.0  # of processor time
PING_SHARE = 3.0  # pings in one WatchdogSec


def watch_the_interpreter() -> None:
    """Let this process end by SIGPROF where it works for ``HELD_SECONDS`` and this watch's thread cannot run."""
    faulthandler.register(signal.SIGPROF, file=sys.__stderr__ or 2, chain=True)  # then what the signal does by itself

    def put_off() -> None:
        while True:
            signal.setitimer(signal.ITIMER_PROF, HELD_SECONDS)
            time.sleep(HELD_SECONDS / 4)

    threading.Thread(target=put_off, name="watch", daemon=True).start()


class Notify:
    """The socket of the service manager, where there is one."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        """Take the variables out of the environment: no child may answer for the agent."""
        address = environment.pop("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        microseconds = environment.pop("WATCHDOG_USEC", "")
        mine = environment.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.every_seconds = int(microseconds) / 1e6 / PING_SHARE if microseconds.isdigit() and mine else float("inf")
        self._next_at = 0.0  # time.monotonic()

    def ready(self) -> None:
        """State that the agent runs."""
        self._send("READY=1")

    def alive(self) -> None:
        """Ping where a ping is due."""
        if self.every_seconds != float("inf") and (now := time.monotonic()) >= self._next_at:
            self._next_at = now + self.every_seconds
            self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """State that the agent leaves."""
        self._send("STOPPING=1")

    def _send(self, text: str) -> None:
        if self._address:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
                connection.setblocking(False)
                connection.sendto(text.encode(), self._address)
