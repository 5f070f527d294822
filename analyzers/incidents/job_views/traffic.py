"""When bytes last moved over a job's ports and connections: the first sign of a job that reports no steps.

A port is never quite still: daemons, the store and the launcher of a hung job still send. So a node moves as long as its rate
is above 1 % of its usual rate. Connections that come and go are no bytes: each is compared with itself. A connection belongs to
the process whose id its row states, which separates jobs that share a node. Ports carry the bytes of all of them.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from analyzers.incidents.job_views.node import NodeView
from analyzers.incidents.job_views.pace import APART_SECONDS, Paces
from analyzers.model.sample_values import sample_values
from collectors.records import NOT_READ, Samples

SCOPES = frozenset({"infiniband", "socket"})
"""Network interfaces carry the traffic of all programs; these carry the job's."""
METRICS = frozenset({
    "port_rcv_data_words_total", "port_xmit_data_words_total", "bytes_received_total", "bytes_sent_total",
})  # fmt: skip


class Traffic:
    """The byte counters of one attempt's nodes."""

    def __init__(self) -> None:
        self.until = 0.0  # counters were read until then
        self.paces = Paces()  # of each node and scope: of the bytes that its ports and connections have moved
        self._read_since = 0.0  # without a span that no agent read
        self._totals: dict[tuple[str, str], dict[str, int]] = {}
        self._moved: dict[tuple[str, str], int] = {}

    @property
    def moved_at(self) -> float | None:
        """Return when bytes last moved; None: not yet."""
        return self.paces.moved_at

    @property
    def still_seconds(self) -> float:
        """Return for how long none have moved. Time without an agent is no standstill."""
        return self.until - max(self.moved_at or 0.0, self._read_since)

    def take(self, samples: Samples, node: NodeView, received_at: float, pids: Collection[int] = ()) -> None:
        """Take a node's samples of one scope; ``pids``: of the job's processes there, none where they are not known."""
        chosen = [index for index, name in enumerate(samples.metrics) if name in METRICS]
        read = sample_values(samples)
        if samples.scope not in SCOPES or samples.type != "<i8" or not chosen or read is None:
            return
        ticks, every = read
        values = every[:, chosen, :]
        totals = np.where(values == NOT_READ, 0, values).sum(axis=1).T.tolist()
        owners = every[:, samples.metrics.index("pid"), :].T.tolist() if pids and "pid" in samples.metrics else None
        for index, (at, row) in enumerate(zip(ticks.tolist(), totals, strict=True)):
            here = dict(zip(samples.devices, row, strict=True))
            if owners is not None:
                here = {
                    name: here[name] for name, pid in zip(samples.devices, owners[index], strict=True) if pid in pids
                }
            self._tick((node.node, samples.scope), node.here(at, received_at), here)

    def _tick(self, key: tuple[str, str], at: float, totals: dict[str, int]) -> None:
        before = self._totals.get(key, {})
        gained = sum(max(0, total - before[name]) for name, total in totals.items() if name in before)
        self._totals[key] = totals
        self._moved[key] = self._moved.get(key, 0) + gained
        if at - self.until > APART_SECONDS:
            self._read_since = at
        self.until = max(self.until, at)
        self.paces.take(key, at, float(self._moved[key]))
