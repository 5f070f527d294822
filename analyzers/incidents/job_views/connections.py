"""Round trips of a job's connections between its nodes, by the minute: which node all that became slower have in common.

A slow or lossy link keeps every rank waiting alike. What is sent over it waits in a queue, and so do the acknowledgements of what
comes over it: the round trips to and from its node become longer, and those between the others stay as they were. A node has as
its own reading the connection whose round trips rose least. Only connections that send count: of the others the kernel has no
newer round trip.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from analyzers.incidents.job_views.minutes import Minutes
from analyzers.incidents.job_views.node import NodeView
from analyzers.model.sample_values import sample_values
from collectors.records import NOT_READ, Samples

MOST_PAIRS = 4_096  # of addresses
SENT_BYTES = 1 << 14  # between two readings
METRICS = ("round_trip_us", "bytes_sent_total")


class Connections:
    """The pairs of addresses that send to each other, and whose addresses they are."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], int] = {}
        self._minutes = Minutes(self._rows)
        self._nodes: dict[str, str] = {}  # address → its node, "" where several have it
        self._sent: dict[int, int] = {}  # row → bytes in all

    def take(self, samples: Samples, node: NodeView, received_at: float) -> None:
        """Take the newest reading of each connection of a node."""
        read = sample_values(samples)
        if read is None or samples.type != "<i8" or not set(METRICS) <= set(samples.metrics):
            return
        ticks, values = read
        at = node.here(float(ticks[-1]), received_at)
        columns = [values[:, samples.metrics.index(name), -1].tolist() for name in METRICS]
        found: dict[int, list[tuple[int, int]]] = {}
        for edge, trip, sent in zip(samples.devices, *columns, strict=True):
            row = self._row(edge, node.node)
            if row is not None and NOT_READ not in (trip, sent):
                found.setdefault(row, []).append((trip, sent))
        for row, readings in found.items():
            total = sum(sent for _, sent in readings)
            gained = total - self._sent.get(row, total)
            self._sent[row] = total
            if gained >= SENT_BYTES:
                self._minutes.add(row, at, 1e-6 * sum(trip for trip, _ in readings), len(readings))

    def _row(self, edge: str, node: str) -> int | None:
        local, _, remote = (one.rpartition(":")[0] for one in edge.partition(">"))
        if local == remote or not local or not remote:
            return None
        if self._nodes.setdefault(local, node) != node:
            self._nodes[local] = ""
        row = self._rows.get((local, remote))
        if row is None and len(self._rows) < MOST_PAIRS:
            row = self._rows[local, remote] = len(self._rows)
        return row

    def compare(
        self, before: tuple[float, float], since: tuple[float, float], earlier: Sequence[tuple[float, float]]
    ) -> tuple[list[tuple[str, int]], NDArray[np.float64], NDArray[np.float64]]:
        """Return nodes, and their round trips in two spans, in seconds: of each node those of the pair that rose least.

        A node of which one pair is known is left out: which of its two ends a long round trip is of does not show.
        """
        of: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for pair, trips in self._pairs(before, since, earlier).items():
            for node in sorted(pair):
                of[node].append(trips)
        least = {node: min(pairs, key=_rise) for node, pairs in of.items() if len(pairs) > 1}
        values = np.array(list(least.values())).reshape(-1, 2)
        return [(node, -1) for node in least], values[:, 0], values[:, 1]

    def _pairs(
        self, before: tuple[float, float], since: tuple[float, float], earlier: Sequence[tuple[float, float]]
    ) -> dict[frozenset[str], tuple[float, float]]:
        """Return the round trips between each two nodes, in two spans; the longer of both directions."""
        first, last = self._minutes.means(*before, earlier), self._minutes.means(*since)
        found: dict[frozenset[str], tuple[float, float]] = {}
        for (local, remote), row in self._rows.items():
            pair = frozenset((self._nodes.get(local, ""), self._nodes.get(remote, "")))
            if len(pair) == 2 and "" not in pair and np.isfinite(first[row]) and np.isfinite(last[row]):
                one = (float(first[row]), float(last[row]))
                found[pair] = max(found.get(pair, one), one, key=_rise)
        return found


def _rise(trips: tuple[float, float]) -> float:
    return trips[1] - trips[0]
