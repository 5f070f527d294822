"""What the kinds of sources of a verdict are called, one and several. Pure."""

from __future__ import annotations

_SOURCES = {
    "flight_recorder": ("flight-recorder dump", "flight-recorder dumps"),
    "flight_recorder_earlier": ("older dump of the same ranks", "older dumps of the same ranks"),
    "stacks": ("stack dump", "stack dumps"),
    "stacks_without_rank": ("stack dump of no known rank", "stack dumps of no known rank"),
    "profile": ("sample of stacks", "samples of stacks"),
    "process": ("process-table row", "process-table rows"),
    "kernel_event": ("kernel event", "kernel events"),
    "log_event": ("job-log event", "job-log events"),
    "ras_communicator": ("RAS communicator", "RAS communicators"),
    "ras_peer_dead": ("RAS report of a dead process", "RAS reports of dead processes"),
    "placement": ("host list", "host lists"),
    "ring": ("probe ring", "probe rings"),
    "samples": ("block of readings", "blocks of readings"),
    "steps": ("step series", "step series"),
    "collective_timings": ("series of timings", "series of timings"),
    "op_timings": ("trace of a rank", "traces of ranks"),
    "straggler_reports": ("log with reports of stragglers", "logs with reports of stragglers"),
    "device": ("device", "devices"),
    "device_state": ("device's state", "devices' states"),
    "role_state": ("reading of a role", "readings of roles"),
    "coverage": ("coverage report of an agent", "coverage reports of agents"),
    "command_result": ("answer of an agent", "answers of agents"),
    "unread": ("file not read", "files not read"),
}


def counted(name: str, count: int) -> str:
    """Return how many of a kind of sources there are, in words."""
    one, many = _SOURCES.get(name, (name.replace("_", " "), name.replace("_", " ")))
    return f"{count:,} {one if count == 1 else many}"
