"""What a run of the gpu collector gave."""

from __future__ import annotations

from typing import Any

from collectors.agent.worker import Worker as AgentWorker
from collectors.live import Cursor
from collectors.live.sources.host import Host
from tests.support.nvml_stub import of

LOST, NOT_SUPPORTED, NO_PERMISSION, UNKNOWN = 15, 3, 4, 999
THERMAL = 0x40  # nvmlClocksEventReasonHwThermalSlowdown


def uuid(index: int) -> str:
    """The UUID that the stub gives a GPU."""
    return f"GPU-00000000-0000-0000-0000-0000000000{index:02x}"


def states(said: list[dict[str, Any]]) -> dict[str, str]:
    """Which GPU changed to which state."""
    return {one["device"]: one["state"] for one in of(said, "DeviceState")}


def kept(agents: AgentWorker, host: Host) -> list[object]:
    """Run once, keeping every cursor at once, as the agent does."""
    yielded: list[object] = []
    for one in agents(None):
        yielded.append(one)
        if isinstance(one, Cursor):
            host.cursors["gpu"] = one.value
    return yielded
