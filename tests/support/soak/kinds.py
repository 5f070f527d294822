"""What can happen to a job, and what is true then: what must be reported, who may be named, what may be proposed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from analyzers.model.verdict import TAKES_NODES

NAMES_NODES = TAKES_NODES | {"probe"}
RESTARTS = frozenset({"reattempt", "restart_job", "restart_role"})
NOBODY = frozenset({"none", "unknown"})


@dataclass(frozen=True)
class Kind:
    """One row. ``reported``: an incident must open, may open without naming anybody, or is itself wrong."""

    reported: Literal["must", "may", "never"]
    incidents: frozenset[str] = frozenset({"hang"})  # the kinds that an incident of it may have
    causes: frozenset[str] = NOBODY
    names: Literal["rank", "nobody"] = "nobody"  # "rank": the guilty ones, no other
    proposals: frozenset[str] = frozenset()
    ends: bool = False  # the job does not go on
    by_order: bool = False  # the program does it at a step; otherwise a person or the system, from outside


_CRASH, _STOPS = frozenset({"crash"}), frozenset({"hang", "silence", "slow"})
_CODE, _OUTSIDE = NOBODY | {"code", "data"}, NOBODY | {"platform"}

KINDS: dict[str, Kind] = {
    # A machine's, as far as anybody can tell from outside: one rank stands while its peers run the same code.
    "stop": Kind("must", _STOPS, NOBODY | {"machine", "platform"}, "rank", NAMES_NODES | RESTARTS),
    "deadlock": Kind("must", _STOPS, _CODE | {"machine"}, "rank", NAMES_NODES | RESTARTS, by_order=True),
    "kill_rank": Kind("must", _CRASH, NOBODY | {"machine", "platform"}, "rank", NAMES_NODES | RESTARTS, ends=True),
    # The job's own.
    "raise": Kind("must", _CRASH, _CODE, "rank", RESTARTS, ends=True, by_order=True),
    "raise_all": Kind("must", _CRASH, _CODE, "rank", RESTARTS, ends=True, by_order=True),
    "raise_restarted": Kind("must", _CRASH, _CODE, "rank", RESTARTS, by_order=True),
    "exit": Kind("must", _CRASH, _CODE, "rank", RESTARTS, ends=True, by_order=True),
    # A wait for a process elsewhere: reported, and no machine is named for it.
    "network": Kind("must", _STOPS, _OUTSIDE | {"code", "network", "storage"}, "nobody", RESTARTS, by_order=True),
    # People.
    "stop_all": Kind("may", _STOPS, _OUTSIDE | {"code"}),
    "debugger": Kind("may", _STOPS, _OUTSIDE | {"code"}, by_order=True),
    # Ordinary pauses, which the program makes by itself.
    "save": Kind("may", _STOPS, NOBODY),
    "evaluate": Kind("may", _STOPS, NOBODY),
    "busy": Kind("may", _STOPS, NOBODY),  # nobody did anything: the machine below had no processor for it
    # Ends that somebody wanted.
    "finish": Kind("never", _CRASH | _STOPS, ends=True, by_order=True),
    "kill": Kind("never", _CRASH | _STOPS, _OUTSIDE, ends=True),
    "ctrl_c": Kind("never", _CRASH | _STOPS, _OUTSIDE, ends=True),
    "time_limit": Kind("never", _CRASH | _STOPS, _OUTSIDE, ends=True),
    # Our own.
    "agent_down": Kind("may", frozenset({"silence", "infrastructure"})),
    "service_down": Kind("may", frozenset({"silence", "infrastructure"})),
}
