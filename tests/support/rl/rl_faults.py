"""What happens to an instance of a role in the example's job, and who is to be named for it."""

from __future__ import annotations

import signal
from dataclasses import dataclass


@dataclass(frozen=True)
class RlFault:
    """One row. ``how``: a signal, or what a file of that name orders (examples/rl_job/faults.py)."""

    role: str
    instance: str
    how: int | str
    healthy: bool = False  # nothing is to be proposed, and nobody named

    @property
    def name(self) -> str:
        """Return it in words."""
        how = signal.Signals(self.how).name if isinstance(self.how, int) else self.how
        return f"{self.role} {self.instance} {how}"

    @property
    def stays(self) -> bool:
        """Whether the process lives on with it, so that a launcher that restarts what has ended does nothing."""
        return self.how not in (signal.SIGKILL, "raise", "memory")


KILL, STOP = int(signal.SIGKILL), int(signal.SIGSTOP)
FAULTS = (
    RlFault("rollout", "2", "dead"),
    RlFault("rollout", "2", STOP),
    RlFault("rollout", "2", KILL),
    RlFault("tool", "0", "hung"),
    RlFault("trainer", "0", "stalled"),
    RlFault("trainer", "1", STOP),
    RlFault("trainer", "1", KILL),
    RlFault("trainer", "1", "dead"),
    RlFault("reward", "0", STOP),
    RlFault("reward", "0", KILL),
    RlFault("reward", "0", "hung"),
    RlFault("rollout", "1", "raise"),
    RlFault("trainer", "0", "raise"),
    RlFault("reward", "0", "raise"),
    RlFault("rollout", "3", "memory"),
    RlFault("reward", "0", "memory"),
    RlFault("tool", "0", STOP),
    RlFault("tool", "0", KILL),
    RlFault("rollout", "0", "slow"),
    RlFault("trainer", "1", "slow"),
)
HEALTHY = RlFault("tool", "0", "tail", healthy=True)
