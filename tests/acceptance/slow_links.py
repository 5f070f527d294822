"""A real gloo job of four nodes, one of whose links is limited after some minutes: whose network the verdict names, and when.

Each node has a network namespace, an agent at its usual settings and one rank; the link is limited in one direction by the
kernel's token bucket filter. Right is: one incident of kind slow, which names that node and its network, and proposes nothing.
The smallest form judges nothing: it shows that the agents read longer round trips to and from that node alone.

    python -m tests.acceptance.slow_links [--smallest] [--culprits 1 2]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from analyzers.incidents.job_views.connections import METRICS, SENT_BYTES
from collectors.live.sources.sockets import connections
from tests.acceptance.slow_jobs import CALM_SECONDS, STEADY_SECONDS, Lane, instant, wait_for, wait_until_known
from tests.bench.measure import REPOSITORY, provenance
from tests.support.jobs import live
from tests.support.slow_jobs import linked_nodes
from tests.support.slow_jobs.linked_nodes import INCOMING, NODES, OUTGOING, LinkedNodes

Row = dict[str, Any]
SMALLEST_SECONDS, SENDING_SECONDS, RUNNING_STEPS = 20.0, 4.0, 20


def trial(lane: Lane, nodes: LinkedNodes, culprit: int, way: str) -> Row:
    """Limit one link until its incident names somebody or its time is over, and watch the incident close."""
    before, began_at = lane.job.seconds_a_step(30.0), time.time()
    with nodes.limited(culprit, way):
        slow = lane.job.seconds_a_step(60.0)
        opened, _, named_at = lane.judged(began_at)
    lane.wait_for_end(began_at)
    row = lane.found(began_at) | {
        "culprit": nodes.names[culprit], "way": way, "seconds_before": round(before, 3), "seconds_since": round(slow, 3),
        "opened_seconds": round(instant(opened["opened_at"]) - began_at, 1) if opened else None,
        "named_seconds": round(named_at - began_at, 1) if named_at else None, "load": round(os.getloadavg()[1], 1),
    }  # fmt: skip
    wrong = [f"{kind} is proposed" for kind in row["proposed"]]
    wrong += [f"rank {rank} is named" for rank in row["named"] if rank != culprit]
    wrong += [f"{name} is named" for name in row["named_otherwise"] if name != nodes.names[culprit]]
    return row | {"wrong": wrong, "right": not wrong and nodes.names[culprit] in row["named_otherwise"]}


def measure(folder: Path, culprits: list[tuple[int, str]], rows: list[Row]) -> None:
    """Run the job below an agent a node, and limit one link after another."""
    with ExitStack() as stack:
        nodes = stack.enter_context(linked_nodes.linked_nodes())
        cluster = stack.enter_context(live.cluster(folder / "cluster", nodes.names))
        client = stack.enter_context(httpx.Client(base_url=cluster.url, timeout=60))
        job = linked_nodes.start(stack, nodes, cluster.farm, folder / "job", f"linked-{os.getpid()}")
        wait_until_known(client, job)
        time.sleep(STEADY_SECONDS)
        draws = random.Random(7)
        for culprit, way in culprits:
            rows.append(trial(Lane(client, job, "ddp+probe", 0.0), nodes, culprit, way))
            print("right" if rows[-1]["right"] else "not right", json.dumps(rows[-1]), flush=True)
            time.sleep(draws.uniform(*CALM_SECONDS))


def read(nodes: LinkedNodes) -> dict[frozenset[int], float]:
    """Return the milliseconds of a round trip between each two nodes whose connections send; of the others it is old."""
    sent = {edge: total for _, edge, _, total in _edges(nodes)}
    time.sleep(SENDING_SECONDS)
    found: dict[frozenset[int], float] = {}
    for pair, edge, trip, total in _edges(nodes):
        if total - sent.get(edge, total) > SENT_BYTES:
            found[pair] = max(found.get(pair, 0.0), trip)
    return found


def _edges(nodes: LinkedNodes) -> list[tuple[frozenset[int], str, float, int]]:
    """Return of each connection between nodes: its nodes, its name, its round trip in milliseconds, and the bytes it has sent."""
    found = []
    for number in range(NODES):
        for one in connections(Path(f"/proc/{nodes.pids(number)[0]}/ns/net")):
            if one.leaves_the_node:
                other = int(one.remote.rpartition(":")[0].rpartition(".")[2]) - 1
                trip, total = (one.readings.get(name, 0) for name in METRICS)
                found.append((frozenset((number, other)), one.edge, trip / 1000, total))
    return found


def smallest(folder: Path) -> bool:
    """Return whether round trips become longer to and from the node whose link is limited, and nowhere else."""
    with ExitStack() as stack:
        nodes = stack.enter_context(linked_nodes.linked_nodes())
        cluster = live.Farm(folder / "nodes", nodes.names)
        job = linked_nodes.start(stack, nodes, cluster, folder / "job", "linked")
        wait_for(lambda: job.step() >= RUNNING_STEPS or None, time.time() + 240.0)
        usual = read(nodes)
        with nodes.limited(1, OUTGOING):
            time.sleep(SMALLEST_SECONDS)
            limited = read(nodes)
    shown = {name: {"-".join(map(str, sorted(pair))): ms for pair, ms in found.items()} for name, found in
             (("usual", usual), ("limited", limited))}  # fmt: skip
    print(json.dumps(shown))
    apart = [ms for pair, ms in limited.items() if 1 in pair]
    return len(apart) > 1 and min(apart) > 2 * max(ms for pair, ms in limited.items() if 1 not in pair)


def main() -> int:
    """Measure and write the document; 0 only if every limited link was named and nothing else."""
    parser = argparse.ArgumentParser(description="Limit the link of one node of a real job.")
    parser.add_argument("--smallest", action="store_true", help="only whether the round trips show it")
    parser.add_argument("--culprits", nargs="*", type=int, default=[1, 2], help="nodes, each in both directions")
    given = parser.parse_args()
    if lacking := linked_nodes.why_not():
        print(f"not measured: {lacking}")
        return 0
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="slow-links-") as folder:
        if given.smallest:
            return 0 if smallest(Path(folder)) else 1
        measure(Path(folder), [(one, way) for one in given.culprits for way in (OUTGOING, INCOMING)], rows)
    command = " ".join(["python -m tests.acceptance.slow_links", *sys.argv[1:]])
    document = provenance(command) | {"right": sum(row["right"] for row in rows), "n": len(rows), "rows": rows}
    (REPOSITORY / "docs" / "measured" / "slow_links.json").write_text(json.dumps(document, indent=1) + "\n")
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
