"""Whether a job runs on GPUs, as far as its agents have looked or its traces show it."""

from __future__ import annotations

from collections.abc import Collection

from analyzers.model.window import Window
from collectors.records import Coverage, Device, OpTimings


def has_gpus(window: Window, nodes: Collection[str] = ()) -> bool | None:
    """Return whether these nodes have GPUs, or any where none is given; None where neither an agent nor a trace shows it."""
    if any(one.type == "gpu" and (not nodes or one.node in nodes) for one in window.records_of(Device)):
        return True
    looks = [one for one in window.records_of(Coverage) if not nodes or one.node in nodes]
    looked = [one for look in looks for one in look.collectors if one.name == "gpu" and one.runs]
    if looked:
        return any(one.nothing < one.runs for one in looked)
    # The profiler lists the devices that it finds; other traces may leave them out.
    traces = [
        one for one in window.records_of(OpTimings) if one.told_by == "kineto" and (not nodes or one.node in nodes)
    ]
    return any(one.device_model for one in traces) if traces else None
