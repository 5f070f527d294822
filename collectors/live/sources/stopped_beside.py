"""Stopped processes beside the ranks: what a rank waits for may be no rank, and have no connection while it is stopped.

A worker that polls a queue has one for moments only. It is looked for by what it shares with the ranks of its node, their user.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from collectors.live.sources.host import Host
from collectors.live.sources.proc_stat import stat_of
from collectors.live.sources.ranks import user_of
from collectors.live.sources.system_files import process_ids
from collectors.records import BESIDE, ProcessState

MOST_LOOKED_AT = 8_192  # processes; those with the lowest ids are left out
MOST_STOPPED = 16


def stopped_beside(host: Host) -> Iterator[ProcessState]:
    """Yield the stopped processes of the ranks' users that are no rank, neither above nor below one, and have no terminal."""
    root, ranks = host.roots.proc, host.training()
    users = {one.uid for one in ranks if one.uid is not None}
    pids = sorted(process_ids(root))[-MOST_LOOKED_AT:] if users else []
    stats = {pid: stat for pid in pids if (stat := stat_of(str(root), pid)) is not None}
    below = {stat.pid for one in ranks for stat in host.process_table.descendants(one.pid)}
    own, left = {one.pid for one in ranks} | below, MOST_STOPPED
    for pid in [one.pid for one in ranks]:
        while pid in stats and (pid := stats[pid].parent_pid) not in own:
            own.add(pid)
    for pid, stat in stats.items():
        if stat.state != "T" or stat.has_terminal or pid in own or not left:
            continue
        with suppress(OSError):
            if user_of((root / str(pid) / "status").read_bytes()) in users:
                left -= 1
                yield ProcessState(source=BESIDE, pid=pid, state=stat.state, command=stat.name)
