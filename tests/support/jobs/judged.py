"""What `faulthound diagnose` says of a job's files, and what is wrong with it, given what was done to the job."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from analyzers.model.fault_classes import has
from analyzers.model.verdict import TAKES_NODES
from tests.support.jobs.scenarios import Scenario

REPOSITORY = Path(__file__).resolve().parents[3]
ANSWERED = (0, 3)  # 3: it abstains
LIMIT_SECONDS = 120
EVICTIONS = TAKES_NODES
SUSPECTED = 0.01  # a suspect below this probability is not part of the set that the verdict leaves


def verdict_of(folder: Path) -> dict[str, Any]:
    """Return the verdict document on a folder, by the command line, as a user would get it."""
    program = "from service.cli import main; main()"
    command = [sys.executable, "-c", program, "diagnose", str(folder), "--json", "--quiet"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    if done.returncode not in ANSWERED:
        raise RuntimeError(f"diagnose {folder} left with {done.returncode}: {done.stderr[-2000:]}")
    verdict: dict[str, Any] = json.loads(done.stdout)
    return verdict


def complaints(scenario: Scenario, verdict: dict[str, Any]) -> list[str]:
    """Return what the verdict gets wrong about a scenario; empty where it is right."""
    fault = scenario.truth
    classes = {root["class"] for root in verdict["roots"]}
    # Where stacks alone show a rank in its own code, nothing decides between its code, its data and its machine.
    undecided = classes and all(has(one, "own_code") and not has(one, "own_input") for one in classes)
    cause = "unknown" if undecided else fault.cause
    wrong = [
        f"{field} is {verdict[field]!r}, not {wanted!r}"
        for field, wanted in (("symptom", fault.symptom), ("cause", cause))
        if verdict[field] != wanted
    ]
    if fault.classes and not classes & set(fault.classes):
        wrong.append(f"classes are {sorted(classes)}, none of {list(fault.classes)}")
    if fault.names_ranks and named(verdict) != set(scenario.culprits):
        wrong.append(f"it names ranks {sorted(named(verdict))}, not {list(scenario.culprits)}")
    if scenario.truth.symptom == "healthy" and verdict["culprits"]:
        wrong.append(f"it names {[culprit['id'] for culprit in verdict['culprits']]} in a healthy job")
    return wrong + [f"it would evict {innocent}" for innocent in innocents_evicted(scenario, verdict)]


def complaints_about_nodes(scenario: Scenario, verdict: dict[str, Any]) -> list[str]:
    """Return where the verdict names another node than the culprit's, or none for a machine or for what one rank reads."""
    if scenario.truth.cause not in ("machine", "data") or not scenario.truth.names_ranks:
        return []
    nodes = {culprit["id"] for culprit in verdict["culprits"] if culprit["kind"] == "node"}
    wanted = {scenario.host_of(rank) for rank in scenario.culprits}
    return [] if nodes == wanted else [f"it names nodes {sorted(nodes)}, not {sorted(wanted)}"]


def complaints_about_set(scenario: Scenario, verdict: dict[str, Any]) -> list[str]:
    """Return what is wrong with an answer from dumps alone: a set with the culprits in it, and what would split it.

    Two culprits in two replicas of a pipeline stop everybody in sends and receives: on gloo the dumps then hold no wait
    at all, and to abstain, saying what is missing, is the right answer.
    """
    if verdict["abstained"] and len(scenario.culprits) > 1:
        return [] if verdict["missing"] else ["it abstains and does not say what is missing"]
    wrong = []
    if verdict["symptom"] != "hang":
        wrong.append(f"symptom is {verdict['symptom']!r}, not 'hang'")
    suspected = left_over(verdict)
    if not suspected >= set(scenario.culprits):
        wrong.append(f"its set {sorted(suspected)} does not contain {list(scenario.culprits)}")
    if len(suspected) == scenario.ranks:
        wrong.append("its set is everybody")
    if len(suspected) > len(scenario.culprits) and not verdict["missing"]:
        wrong.append("it does not say what would split its set")
    return wrong + [f"it would evict {innocent}" for innocent in innocents_evicted(scenario, verdict)]


def named(verdict: dict[str, Any]) -> set[int]:
    """Return the ranks that the verdict names."""
    return {rank for culprit in verdict["culprits"] for rank in culprit["ranks"]}


def left_over(verdict: dict[str, Any]) -> set[int]:
    """Return the ranks that the verdict names, or else still suspects."""
    suspects = (suspect for suspect in verdict["suspects"] if suspect["probability"] >= SUSPECTED)
    return named(verdict) or {rank for suspect in suspects for rank in suspect["ranks"]}


def innocents_evicted(scenario: Scenario, verdict: dict[str, Any]) -> list[str]:
    """Return the nodes and ranks that the action would take out though their machine did nothing."""
    action = verdict["action"]
    if action["kind"] not in EVICTIONS:
        return []
    machine = scenario.truth.cause == "machine"
    guilty = {scenario.host_of(rank) for rank in scenario.culprits} if machine else set()
    nodes = set(action["nodes"]) | {scenario.host_of(rank) for rank in action["ranks"]}
    return sorted(nodes - guilty)


def dumps_alone(folder: Path, target: Path) -> Path:
    """Copy a folder without stacks, process table and logs: the flight recorder and the hosts are left."""
    target.mkdir(parents=True)
    for pattern in ("fr_rank*.json", "nccl_trace_rank_*", "hosts.txt"):
        for path in folder.glob(pattern):
            shutil.copy2(path, target / path.name)
    return target


def summary(verdict: dict[str, Any]) -> str:
    """Return a verdict's answer in a few lines, for a failed test."""
    suspects = [(suspect["id"], suspect["ranks"], suspect["probability"]) for suspect in verdict["suspects"][:9]]
    lines = [
        f"symptom {verdict['symptom']}, cause {verdict['cause']}, abstained {verdict['abstained']}",
        f"roots {[(root['root'], root['cause'], root['class']) for root in verdict['roots']]}",
        *(f"culprit {culprit['kind']} {culprit['id']} {culprit['ranks']}: {culprit['why']}" for culprit in verdict["culprits"]),
        f"suspects {suspects}",
        f"action {verdict['action']['kind']} {verdict['action']['nodes']}",
        *(f"missing: {missing['what']}" for missing in verdict["missing"]),
    ]  # fmt: skip
    return "\n".join(lines)
