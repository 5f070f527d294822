"""Whole climbs of the ladder: they end, repeat nothing and find the one fault, also where diagnosis and checks err."""

from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from analyzers.remediation.dual_phase import intersect_groups
from analyzers.remediation.ladder import (
    JobAttempt,
    JobHistory,
    Rung,
    TriedRung,
    next_rung,
)
from tests.analyzers.remediation.test_dual_phase import replayed
from tests.analyzers.remediation.test_ladder import AT, BOUNDS, HANG, LAYOUT, NODES, WELL


class Trouble:
    """A job with one hidden fault, and a diagnosis that errs: it climbs the ladder until it runs or a person is called."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.fault = self.chance.choice(["machine", "code", "passing", "beyond"])
        self.faulty = self.chance.choice(NODES)
        self.rate = {kind: self.chance.random() for kind in ("right", "wrong", "suspect", "check", "refused")}
        self.out: set[str] = set()
        self.code = "b"
        self.proven: set[str] = set()
        self.found: set[str] = set()

    def fails(self) -> bool:
        """Whether the job fails again as it stands."""
        gone = {"machine": self.faulty in self.out, "code": self.code == "a", "passing": True, "beyond": False}
        return not gone[self.fault]

    def attempt(self, number: int) -> JobAttempt:
        """An attempt that failed: proof that may be wrong, suspects that may be anybody."""
        left = [node for node in NODES if node not in self.out]
        names = [self.faulty] if self.fault == "machine" and self.chance.random() < self.rate["right"] else []
        names += [self.chance.choice(left)] if self.chance.random() < self.rate["wrong"] / 3 else []
        suspects = [self.chance.choice(left)] if self.chance.random() < self.rate["suspect"] else []
        proven = tuple(node for node in dict.fromkeys(names) if node in left)
        self.proven |= set(proven)
        symptom = self.chance.choice(["hang", "hang", "crash"])
        return replace(
            HANG, number=number, code_version=self.code, proven=proven, suspects=tuple(suspects), symptom=symptom
        )

    def take(self, rung: Rung, attempt: int) -> TriedRung:
        """Take a rung: people refuse some, checks miss some."""
        taken = TriedRung(kind=rung.kind, attempt=attempt, nodes=rung.nodes, code_version=rung.code_version)
        if self.chance.random() < self.rate["refused"] / 4:
            return replace(taken, outcome="refused")
        if rung.kind == "evict":
            self.out |= set(rung.nodes)
        elif rung.kind == "rollback":
            self.code = rung.code_version or ""
        elif rung.kind == "probe" and self.fault == "machine" and self.chance.random() < self.rate["check"]:
            taken = replace(taken, found=tuple(node for node in rung.nodes if node == self.faulty))
        elif rung.kind == "replay" and rung.replay is not None and self.fault == "machine":
            taken = replace(taken, found=intersect_groups(rung.replay, replayed(rung.replay, self.faulty)))
        self.found |= set(taken.found)
        return taken


def climbed(trouble: Trouble) -> tuple[list[Rung], list[TriedRung]]:
    """Climb until the job runs or a person is called."""
    attempts = [WELL, trouble.attempt(2)]
    taken: list[TriedRung] = []
    rungs: list[Rung] = []
    while len(rungs) < 100:
        nodes = tuple(node for node in NODES if node not in trouble.out)
        history = JobHistory(at=AT, attempts=tuple(attempts), taken=tuple(taken), nodes=nodes, layout=LAYOUT)
        rung = next_rung(history, BOUNDS)
        rungs.append(rung)
        if rung.kind == "none":
            break
        taken.append(trouble.take(rung, attempts[-1].number))
        restarted = rung.kind in ("evict", "reattempt", "rollback") and taken[-1].outcome == "done"
        if restarted and not trouble.fails():
            break
        if restarted:
            attempts.append(trouble.attempt(attempts[-1].number + 1))
    return rungs, taken


@given(st.integers(0, 10**6))
def test_every_climb_ends_and_repeats_nothing(seed: int) -> None:
    """Whatever is wrong and whoever is named, the climb ends, says nothing twice, and takes out only what was proven."""
    trouble = Trouble(seed)

    rungs, taken = climbed(trouble)

    assert len(rungs) <= 3 * len(NODES)
    for kind in ("evict", "probe"):
        nodes = [node for one in taken if one.kind == kind for node in one.nodes]
        assert len(nodes) == len(set(nodes))
    assert [one.kind for one in taken].count("reattempt") <= 2
    assert [one.kind for one in taken].count("rollback") <= 1
    assert [one.kind for one in taken].count("replay") <= 1
    assert trouble.out <= trouble.proven | trouble.found
    for before, after in itertools.pairwise(rungs):
        assert before != after


@given(st.integers(0, 10**6))
def test_good_checks_and_right_verdicts_take_one_machine(seed: int) -> None:
    """Where verdicts and checks do not err and nobody refuses, one faulty machine costs one machine, and code none."""
    trouble = Trouble(seed)
    trouble.rate = {"right": trouble.rate["right"], "wrong": 0.0, "suspect": 0.0, "check": 1.0, "refused": 0.0}

    climbed(trouble)

    assert trouble.out <= {trouble.faulty}
    assert trouble.fault != "code" or trouble.code == "a"


def test_the_ladder_finds_what_no_proof_names() -> None:
    """Two hundred faulty machines that no verdict names, and whose checks pass, are all found by the replay, and no other."""
    for seed in range(200):
        trouble = Trouble(seed)
        trouble.fault = "machine"
        trouble.rate = {"right": 0.0, "wrong": 0.0, "suspect": 0.0, "check": 0.0, "refused": 0.0}
        climbed(trouble)

        assert trouble.out == {trouble.faulty}
