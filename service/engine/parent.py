"""A process that must not outlive the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1  # prctl(2)


def die_with_parent(number: signal.Signals, parent: int) -> None:
    """Have the kernel send this process a signal when its parent ends; at once if it has ended already."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)
