"""Simulated reinforcement-learning jobs of 256 and 4,096 GPUs: role and instance named, false restarts, two controls.

Each job's result is kept in out/simulated_roles.jsonl beside a digest of the code that it was made with, so that a second
call runs only what is missing or was made by other code. ``--first-try`` keeps the totals of this run as the first ones.

    python -m tests.acceptance.simulated_roles [--smallest] [--workers 1] [--only 256] [--seeds 4] [--first-try]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from simulation.roles import FAULTS
from tests.acceptance.simulated_hangs import code_digest
from tests.bench.measure import REPOSITORY, provenance
from tests.support.simulated_roles import Watched, by_kind, summary, watch

SEEDS = {256: 10, 4096: 1}  # GPUs → jobs of each kind of fault
HEALTHY = {256: (4, 43_200.0), 4096: (1, 3_600.0)}  # jobs, and seconds of each
SMALLEST = ({256: 1}, {256: (1, 2_400.0)})
KEPT = REPOSITORY / "out" / "simulated_roles.jsonl"
ROLE_SHARE, MACHINE_SHARE = 0.95, 0.90
_Wanted = tuple[str, int, int, float]  # kind, GPUs, seed, seconds


def wanted(options: argparse.Namespace) -> list[_Wanted]:
    """Return the jobs to watch."""
    seeds, healthy = SMALLEST if options.smallest else (SEEDS, HEALTHY)
    if options.seeds is not None:
        seeds = {gpus: min(count, options.seeds) for gpus, count in seeds.items()}
        healthy = {gpus: (min(count, options.seeds), seconds) for gpus, (count, seconds) in healthy.items()}
    sizes = [gpus for gpus in seeds if gpus in (options.only or seeds)]
    jobs = [("healthy", gpus, seed, healthy[gpus][1]) for gpus in sizes for seed in range(healthy[gpus][0])]
    return jobs + [(kind, gpus, seed, 0.0) for gpus in sizes for seed in range(seeds[gpus]) for kind in FAULTS]


def kept(digest: str) -> dict[_Wanted, Watched]:
    """Return what this code found before."""
    if not KEPT.exists():
        return {}
    rows = (json.loads(line) for line in KEPT.read_text(encoding="utf-8").splitlines())
    return {tuple(row["job"]): msgspec.convert(row["watched"], Watched) for row in rows if row["digest"] == digest}


def run_missing(jobs: list[_Wanted], digest: str, workers: int) -> Iterator[tuple[_Wanted, Watched]]:
    """Watch what is not kept yet, keeping each as it comes."""
    KEPT.parent.mkdir(exist_ok=True)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool, KEPT.open("a", encoding="utf-8") as keep:
        running = {pool.submit(watch, *job): job for job in jobs}
        for done in as_completed(running):
            job, said = running[done], done.result()
            keep.write(json.dumps({"digest": digest, "job": job, "watched": asdict(said)}) + "\n")
            keep.flush()
            yield job, said


def report(every: list[Watched]) -> dict[str, Any]:
    """Sum up in all, by size and by kind, and list what was not right."""
    wrong = [one for one in every if one.false_restarts or (one.kind != "healthy" and not _right(one))]
    sizes = {gpus: [one for one in every if one.gpus == gpus] for gpus in sorted({one.gpus for one in every})}
    return {
        "total": summary(every),
        "with_client_and_agents": summary([one for one in every if one.heard and one.followed]),
        "by_gpus": {str(gpus): summary(of) for gpus, of in sizes.items()},
        "by_kind": by_kind(every),
        "not_right": [asdict(one) for one in wrong],
    }


def _right(one: Watched) -> bool:
    return one.role_right and one.machine_right is not False


def holds(total: dict[str, Any], seen: dict[str, Any]) -> bool:
    """Tell whether the claims hold of jobs ``seen`` by a client and agents, and whether both controls lose.

    A share of few jobs is rounded down to whole ones.
    """
    roles, machines = int(ROLE_SHARE * seen["faults"]), int(MACHINE_SHARE * seen["machines"])
    right = seen["role_right"] >= roles and seen["machine_right"] >= machines
    beaten = all(
        total[name]["right"] < total["machine_right"] and total[name]["false_restarts"] for name in ("peers", "silence")
    )
    return bool(right and total["false_restarts"] == 0 and beaten)


def main() -> int:
    """Run what is missing, write the document; 0 only if the claims hold."""
    parser = argparse.ArgumentParser(description="Watch simulated jobs of several roles.")
    parser.add_argument("--smallest", action="store_true", help="one job of each kind, written to out/")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--only", type=int, nargs="*", choices=sorted(SEEDS), help="only these sizes")
    parser.add_argument("--seeds", type=int, help="no more jobs than this of each kind and size")
    parser.add_argument("--first-try", action="store_true", help="keep this run's totals as those of the first try")
    options = parser.parse_args()
    digest, jobs = code_digest(), wanted(options)
    done = {job: said for job, said in kept(digest).items() if job in set(jobs)}
    for job, said in run_missing([job for job in jobs if job not in done], digest, options.workers):
        done[job] = said
        print(job[:3], said.named, said.seconds, "" if job[0] == "healthy" or _right(said) else "WRONG", flush=True)
    target = Path(REPOSITORY / ("out" if options.smallest else "docs/measured")) / "simulated_roles.json"
    found = report([done[job] for job in jobs])
    before = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
    first = found["total"] if options.first_try or "first_try" not in before else before["first_try"]
    command = " ".join(["python -m tests.acceptance.simulated_roles", *sys.argv[1:]])
    document = {**provenance(command), "code": digest, "first_try": first, **found}
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps(found["total"], indent=1))
    return 0 if holds(found["total"], found["with_client_and_agents"]) else 1


if __name__ == "__main__":
    sys.exit(main())
