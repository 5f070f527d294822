"""A simulated hang as a folder of flight-recorder dumps, and its label by what the dumps determine."""

from __future__ import annotations

import os
from pathlib import Path

from simulation import oracle
from simulation.cases.labels import CaseLabel, named_ranks
from simulation.files import NAMES, encode
from simulation.recorder import dumps
from simulation.scenarios import HEALTHY, Played, Scenario, draw, node_of, play

CODE = frozenset({"operation", "size", "skip", "deadlock"})


def write_hang(folder: Path, seed: int, most_ranks: int) -> CaseLabel:
    """Draw, run and write one seed into a new folder; return its label."""
    played = play(draw(seed, most_ranks))
    name = NAMES[seed % len(NAMES)] if played.scenario.placed else NAMES[seed % (len(NAMES) - 1)]
    for number, recording in enumerate(played.recordings, 1):
        into = folder if len(played.recordings) == 1 else folder / str(number)
        into.mkdir(parents=True)
        for dump in dumps(played.trace, recording):
            rank = dump.rank or 0
            path = into / name.format(rank=rank, host=node_of(rank))
            path.write_bytes(encode(dump, "pickle"))
            if dump.at is not None:  # a dump's instant is its file's
                os.utime(path, (dump.at, dump.at))
    world = played.scenario.shape.world
    if played.scenario.placed:
        (folder / "hosts.txt").write_text("".join(f"{node_of(rank)}\n" for rank in range(world)), encoding="utf-8")
    return label_of(played, folder.name)


def label_of(played: Played, path: str) -> CaseLabel:
    """Return what the dumps determine of a run, with its true cause."""
    scenario, truth = played.scenario, oracle.judge(played)
    # One snapshot of a job that runs, or waits outside of any collective, shows no more than that nothing is outstanding.
    open_case = scenario.kind in ("healthy", "pause", "outside")
    return CaseLabel(
        path=path,
        fault=_fault(scenario),
        cause=_causes(scenario),
        culprits=() if scenario.kind == "outside" else named_ranks(truth.ranks),
        masked=() if scenario.kind == "outside" else named_ranks(truth.guilty - truth.ranks),
        decidable=truth.decided and not open_case,
    )


def _fault(scenario: Scenario) -> str:
    return "two_faults" if scenario.kind not in HEALTHY and _kinds(scenario) > 1 else scenario.kind


def _kinds(scenario: Scenario) -> int:
    return len(scenario.faults) if scenario.kind != "outside" else 1


def _causes(scenario: Scenario) -> tuple[str, ...]:
    if scenario.kind in HEALTHY:
        return ("none", "unknown")
    if scenario.kind == "outside":
        return ("storage", "unknown")
    if scenario.kind in CODE:
        return ("code",)
    return ("network",) if scenario.kind == "network" else ("machine",)
