"""When bytes last moved over a job's ports and connections: the only sign of a job that reports no steps.

A port is never quite still: daemons, the store and the launcher of a hung job still send. So a node moves as long as its rate
is above 1 % of its usual rate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from zlib import crc32

import numpy as np

from analyzers.incidents.job_views.node import NodeView
from collectors.records import NOT_READ, Samples

SCOPES = frozenset({"infiniband", "socket"})
"""Network interfaces carry the traffic of all programs; these carry the job's."""
METRICS = frozenset({
    "port_rcv_data_words_total", "port_xmit_data_words_total", "bytes_received_total", "bytes_sent_total",
})  # fmt: skip
STILL_SHARE = 0.01
NEWEST_RATES = 16


@dataclass(slots=True)
class _Counters:
    """One node's counters of one scope at the newest tick."""

    at: float
    devices: int  # a sum over their names: totals over different devices are not compared
    total: int
    rates: list[float] = field(default_factory=list)  # while it moved


class Traffic:
    """The byte counters of one attempt's nodes."""

    def __init__(self) -> None:
        self.moved_at: float | None = None  # None: nothing has moved yet
        self.until = 0.0  # counters were read until then
        self._of: dict[tuple[str, str], _Counters] = {}

    def take(self, samples: Samples, node: NodeView, received_at: float) -> None:
        """Take a node's samples of one scope."""
        chosen = [index for index, name in enumerate(samples.metrics) if name in METRICS]
        ticks = np.frombuffer(samples.ticks, "<f8", len(samples.ticks) // 8)
        if samples.scope not in SCOPES or samples.type != "<i8" or not chosen or not len(ticks) or not samples.devices:
            return
        shape = (len(samples.devices), len(samples.metrics), len(ticks))
        if len(samples.values) != 8 * shape[0] * shape[1] * shape[2]:
            return
        values = np.frombuffer(samples.values, "<i8").reshape(shape)[:, chosen, :]
        totals = np.where(values == NOT_READ, 0, values).sum(axis=(0, 1)).tolist()
        names = crc32("\0".join(samples.devices).encode())
        for at, total in zip(ticks.tolist(), totals, strict=True):
            self._tick((node.node, samples.scope), node.here(at, received_at), names, total)

    def _tick(self, key: tuple[str, str], at: float, devices: int, total: int) -> None:
        before = self._of.get(key)
        if before is not None and at <= before.at:
            return
        self.until = max(self.until, at)
        if before is None or before.devices != devices or total < before.total:
            rates = [] if before is None else before.rates
            self._of[key] = _Counters(at, devices, total, rates)
            return
        rate = (total - before.total) / (at - before.at)
        usual = sorted(before.rates)[len(before.rates) // 2] if before.rates else 0.0
        if rate > STILL_SHARE * usual:
            before.rates = [*before.rates[1 - NEWEST_RATES :], rate]
            self.moved_at = max(at, self.moved_at or 0.0)
        before.at, before.total = at, total
