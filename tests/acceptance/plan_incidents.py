"""Simulated incidents, judged and planned: how many nodes go for one that is faulty, beside two cruder rules.

An incident is identifiable where the dumps determine the culprit (simulation/oracle.py), it is one machine, and the
job has others. Beside the plan stand, on the same incidents, "evict the whole parallel group" of the guilty rank and "restart
and hope". Each is planned as a live one whose two evidence rounds found every process where it stands. The simulator does not
play those, and without them nothing is evicted (docs/decisions/0056). Downtime is reckoned with the packaged costs, not
simulated: a fault that a restart does not cure strikes again.

    python -m tests.acceptance.plan_incidents [--smallest] [--workers 2] [--seeds 440]

Each seed's row is kept in out/plan_incidents.jsonl beside a digest of the code that it was made with.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.progress import track

from analyzers.model.topology import Topology, infer
from analyzers.model.window import Window
from analyzers.remediation.plan import Costs, Situation, choose_plan
from analyzers.verdict.judge import judge
from collectors.records import ProcessState
from service.evaluation.proportions import interval
from simulation import oracle
from simulation.scenarios import Played, draw, node_of, play
from tests.bench.measure import REPOSITORY, provenance
from tests.support.simulated_hangs import knowledge
from tests.support.waits_alone import evicting

SEEDS = {256: 440, 1024: 30}  # most ranks → seeds
SMALLEST = {256: 28}
SPARES = 2
KEPT = REPOSITORY / "out" / "plan_incidents.jsonl"
SHARE_MIN = 0.95


@dataclass(frozen=True, slots=True)
class Row:
    """One seed's incident and what each rule does about it. ``why_not``: what keeps it from being identifiable."""

    seed: int
    kind: str
    ranks: int
    nodes: int
    why_not: str
    asked: str  # the verdict's action
    planned: str
    faulty: tuple[str, ...]
    evicted: tuple[str, ...]
    loss_gpu_hours: float | None
    group_evicted: int = 0
    group_innocent: int = 0
    plan_seconds: float = 0.0
    hope_seconds: float = 0.0

    @property
    def exact(self) -> bool:
        """Tell whether the faulty node goes and nobody else."""
        return self.planned == "evict" and self.evicted == self.faulty

    @property
    def innocent(self) -> int:
        """Count the healthy nodes that go."""
        return len(set(self.evicted) - set(self.faulty))


def run_one(most_ranks: int, seed: int) -> tuple[int, Row]:
    """Play one seed, judge it, plan, and hold all three rules against the truth."""
    played = play(replace(draw(seed, most_ranks), placed=True))
    window = Window.build([*played.records(), *processes(played)])
    topology, costs = infer(window), Costs.from_knowledge(knowledge())
    truth = oracle.judge(played)
    with evicting():
        verdict = judge(window, topology, knowledge())
    nodes = tuple(sorted(set(topology.nodes.values())))
    plan = choose_plan(verdict, Situation(nodes=nodes, spares=SPARES, groups=groups_of(topology)), costs)
    faulty = tuple(sorted({node_of(rank) for rank in truth.evictable}))
    row = Row(
        seed=seed,
        kind=played.scenario.kind,
        ranks=played.scenario.shape.world,
        nodes=len(nodes),
        why_not=why_not_identifiable(truth, faulty, len(nodes)),
        asked=verdict.action.kind,
        planned=plan.kind,
        faulty=faulty,
        evicted=plan.nodes,
        loss_gpu_hours=plan.expected_loss_gpu_hours,
    )
    return most_ranks, row if row.why_not else with_controls(row, played, topology, costs)


def processes(played: Played) -> Iterator[ProcessState]:
    """Yield what the agents tell beside the dumps: which processes there are. Without that a lost dump is only looked into."""
    gone = {fault.rank for fault in played.scenario.faults if fault.kind == "gone"}
    for rank in range(played.scenario.shape.world):
        reported: dict[str, Any] = {"state": "X", "signal": 9} if rank in gone else {"state": "S"}
        yield ProcessState(source="process", node=node_of(rank), rank=rank, pid=1_000 + rank, **reported)


def groups_of(topology: Topology) -> dict[str, tuple[str, ...]]:
    """Return the nodes of each parallel group."""
    members = {group.key: {topology.nodes[rank] for rank in group.members} for group in topology.groups}
    return {key: tuple(sorted(nodes)) for key, nodes in members.items()}


def why_not_identifiable(truth: oracle.ExpectedAnswer, faulty: tuple[str, ...], nodes: int) -> str:
    """Say what keeps an incident from being one faulty machine among others that the dumps determine; "": nothing."""
    if not faulty:
        return "no machine is faulty"
    if not truth.decided:
        return truth.reason
    if len(faulty) > 1:
        return "several machines are faulty"
    return "the job has no other node" if nodes == 1 else ""


def with_controls(row: Row, played: Played, topology: Topology, costs: Costs) -> Row:
    """Add what the two cruder rules do, and the expected seconds until the job runs well again."""
    culprit = min(fault.rank for fault in played.scenario.faults if node_of(fault.rank) in row.faulty)
    group = group_of(culprit, topology)
    missed = not set(row.faulty) <= set(row.evicted)
    once = costs.restart_seconds
    cured = costs.cured_by_restart("")
    # Each restart cures with the same chance: (1 - cured) / cured more rounds are needed on average.
    hope = once + (1 - cured) / cured * (costs.redetect_seconds + costs.restart_seconds)
    waits = costs.unattended_seconds * (row.planned == "none")
    return replace(
        row,
        group_evicted=len(group),
        group_innocent=len(group - set(row.faulty)),
        plan_seconds=hope + waits if missed else once,
        hope_seconds=hope,
    )


def group_of(rank: int, topology: Topology) -> set[str]:
    """Return the nodes of the culprit's pipeline group, else of its data-parallel, else of its tensor-parallel group."""
    mine = [group for group in topology.groups if rank in group.members and len(group.members) > 1]
    for dimension in ("pp", "dp", "tp"):
        for group in mine:
            if group.dimension == dimension:
                return {topology.nodes[member] for member in group.members}
    return {topology.nodes[rank]}


def report(rows: list[Row]) -> dict[str, Any]:
    """Sum up: the claim with its bounds, the controls on the same incidents, and each that was not exact."""
    known = [row for row in rows if not row.why_not]
    exact, innocent = sum(row.exact for row in known), sum(row.innocent for row in rows)
    low, high = interval(exact, len(known)) if known else (0.0, 1.0)
    harmed = sum(row.innocent > 0 for row in rows)
    return {
        "what_it_is": "simulated incidents; downtime is reckoned with analyzers/knowledge/plan.toml, not measured",
        "n": len(rows),
        "identifiable": {
            "n": len(known),
            "exactly_the_faulty_node": exact,
            "share": round(exact / len(known), 4) if known else None,
            "low_95": low,
            "high_95": high,
        },
        "innocent_nodes_evicted": innocent,
        "incidents_with_an_innocent_eviction": {
            "n": len(rows),
            "count": harmed,
            "high_95": interval(harmed, len(rows))[1],
        },
        "on_the_identifiable": {
            "plan": rule(
                [len(row.evicted) for row in known], [row.innocent for row in known], [r.plan_seconds for r in known]
            ),
            "evict_the_parallel_group": rule(
                [row.group_evicted for row in known],
                [row.group_innocent for row in known],
                [Costs.from_knowledge(knowledge()).restart_seconds] * len(known),
            ),
            "restart_and_hope": rule([0] * len(known), [0] * len(known), [row.hope_seconds for row in known]),
        },
        "not_identifiable": dict(sorted(Counter(row.why_not for row in rows if row.why_not).items())),
        "by_kind": by_kind(known),
        "identifiable_and_not_exact": [asdict(row) for row in known if not row.exact],
    }


def rule(evicted: list[int], innocent: list[int], seconds: list[float]) -> dict[str, float]:
    """Return one rule's nodes and expected downtime, an incident on average."""
    n = len(evicted) or 1
    return {
        "nodes_evicted": sum(evicted),
        "healthy_nodes_evicted": sum(innocent),
        "healthy_nodes_an_incident": round(sum(innocent) / n, 3),
        "expected_downtime_seconds": round(sum(seconds) / n, 1),
    }


def by_kind(known: list[Row]) -> dict[str, dict[str, int]]:
    """Count the plans of each kind of fault."""
    counts: dict[str, Counter[str]] = {}
    for row in known:
        counts.setdefault(row.kind, Counter())["exact" if row.exact else f"{row.planned} for {row.asked}"] += 1
    return {kind: dict(sorted(counted.items())) for kind, counted in sorted(counts.items())}


def code_digest() -> str:
    """Name the code that a row depends on."""
    digest = hashlib.sha256()
    for folder in ("analyzers", "collectors"):
        for path in sorted((REPOSITORY / folder).rglob("*")):
            if path.suffix in (".py", ".toml"):
                digest.update(path.relative_to(REPOSITORY).as_posix().encode() + path.read_bytes())
    digest.update(Path(__file__).read_bytes())
    return digest.hexdigest()[:16]


def kept(digest: str) -> dict[tuple[int, int], Row]:
    """Return the rows that this code made before, by most ranks and seed."""
    if not KEPT.exists():
        return {}
    rows = (json.loads(line) for line in KEPT.read_text(encoding="utf-8").splitlines())
    return {(row["most_ranks"], row["row"]["seed"]): _row(row["row"]) for row in rows if row["digest"] == digest}


def _row(reported: dict[str, Any]) -> Row:
    return Row(**(reported | {name: tuple(reported[name]) for name in ("faulty", "evicted")}))


def run_missing(wanted: list[tuple[int, int]], digest: str, workers: int) -> Iterator[tuple[int, Row]]:
    """Run what is not kept yet, keeping each as it comes."""
    KEPT.parent.mkdir(exist_ok=True)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool, KEPT.open("a", encoding="utf-8") as keep:
        running = [pool.submit(run_one, *one) for one in wanted]
        for done in track(as_completed(running), "planned incidents", total=len(running)):
            most_ranks, row = done.result()
            keep.write(json.dumps({"digest": digest, "most_ranks": most_ranks, "row": asdict(row)}) + "\n")
            keep.flush()
            yield most_ranks, row


def holds(document: dict[str, Any]) -> bool:
    """Tell whether the claims hold: exactly the faulty node in ≥ 95 % of the identifiable, no innocent node in any."""
    known = document["identifiable"]
    return bool(known["n"] and known["share"] >= SHARE_MIN and document["innocent_nodes_evicted"] == 0)


def main() -> int:
    """Run what is missing, write the document; 0 only if the claims hold."""
    parser = argparse.ArgumentParser(description="Plan simulated incidents and hold the plans against the truth.")
    parser.add_argument("--smallest", action="store_true", help="two seeds of each kind, written to out/")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument("--seeds", type=int, help="no more seeds than this a size, written to out/")
    options = parser.parse_args()
    sizes = SMALLEST if options.smallest else SEEDS
    wanted = [(size, seed) for size, n in sizes.items() for seed in range(min(n, options.seeds or n))]
    digest = code_digest()
    done = {one: row for one, row in kept(digest).items() if one in set(wanted)}
    for most_ranks, row in run_missing([one for one in wanted if one not in done], digest, options.workers):
        done[most_ranks, row.seed] = row
    document = report([done[one] for one in wanted])
    full = not (options.smallest or options.seeds)
    target = Path(REPOSITORY / ("docs/measured" if full else "out")) / "plan_incidents.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    command = " ".join(["python -m tests.acceptance.plan_incidents", *sys.argv[1:]])
    target.write_text(json.dumps(provenance(command) | {"code": digest} | document, indent=1) + "\n", encoding="utf-8")
    reported = ("identifiable", "innocent_nodes_evicted", "on_the_identifiable")
    print(json.dumps({name: document[name] for name in reported}, indent=1))
    print(f"{len(document['identifiable_and_not_exact'])} identifiable and not exact: {target}")
    return 0 if holds(document) else 1


if __name__ == "__main__":
    sys.exit(main())
