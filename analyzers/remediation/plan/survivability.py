"""If these nodes go, does every checkpoint shard survive? Asked of the holders that a job has registered.

A job that keeps its newest checkpoint in memory backs each node's shards up on others, so that no node's loss is the loss
of the checkpoint. [ByteRobust, SOSP 2025: backups across parallel
groups, so that a whole group can be evicted]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def find_lost_shards(out: Iterable[str], holders: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the nodes whose shards nobody would hold any more. ``out``: all nodes that go or are gone already.

    ``holders``: node → nodes with a copy of its shards; it holds them itself, listed or not. A node that is no key has
    registered nothing, and nothing is said of it.
    """
    gone = frozenset(out)
    return tuple(sorted(node for node in gone & holders.keys() if gone.issuperset(holders[node])))
