"""One simulated hang from seed to score: what was answered, held against what the dumps determine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from analyzers.knowledge import Knowledge
from analyzers.model.topology import infer
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.records import FlightRecorderDump
from service.evaluation.proportions import interval
from service.packaged_knowledge import load
from simulation import oracle
from simulation.scenarios import HEALTHY, Played, Scenario, draw, node_of, play
from tests.support.waits_alone import evicting

REPLACING = frozenset({"evict", "drain_after_job", "reset_gpu", "reboot_node"})
SILENT = frozenset({"outside", *HEALTHY})


@dataclass(frozen=True, slots=True)
class Score:
    """One seed's outcome. ``outcome``: exact, superset, abstained, misled, wrong.

    ``exact`` counts where the dumps decide: all culprits that they determine are named and nobody innocent. Elsewhere a
    ``superset`` holds the culprits and gives a reason; ``abstained`` names nobody and says what would decide. ``misled``:
    an innocent rank whose dump is lost explains all that is shown, and it was named instead of the culprit, to be probed.
    """

    seed: int
    kind: str
    ranks: int
    decided: bool
    outcome: str
    cause_right: bool
    innocent_evicted: int
    named: tuple[int, ...]
    truth: tuple[int, ...]
    why_undecided: str
    symptom: str
    cause: str
    action: str
    seconds: float

    @property
    def good(self) -> bool:
        """Tell whether this outcome is the best that the dumps allow, or for two of a kind as good."""
        return self.outcome == "exact" if self.decided else self.outcome in ("superset", "abstained")

    def row(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return asdict(self)


@cache
def knowledge() -> Knowledge:
    """Return the packaged knowledge, read once."""
    return load()


def run_seed(seed: int, most_ranks: int = 256, least_ranks: int = 8) -> tuple[Score, Played, Verdict]:
    """Draw, play, analyse and score one seed."""
    played = play(draw(seed, most_ranks, least_ranks))
    records = played.records()
    started_at = time.perf_counter()
    window = Window.build(records)
    with evicting():
        verdict = judge(window, infer(window), knowledge())
    return score(played, verdict, time.perf_counter() - started_at), played, verdict


def score(played: Played, verdict: Verdict, seconds: float) -> Score:
    """Hold a verdict against the oracle."""
    scenario, truth = played.scenario, oracle.judge(played)
    named = frozenset(rank for culprit in verdict.culprits for rank in culprit.ranks)
    return Score(
        seed=scenario.seed,
        kind="+".join(fault.kind for fault in scenario.faults[:2]) if scenario.kind != "outside" else "outside",
        ranks=scenario.shape.world,
        decided=truth.decided,
        outcome=_outcome(scenario, truth, verdict, named),
        cause_right=verdict.abstained or verdict.cause in truth.causes,
        innocent_evicted=len(_innocent_evicted(scenario, truth, verdict)),
        named=tuple(sorted(named))[:64],
        truth=tuple(sorted(truth.ranks))[:64],
        why_undecided=truth.reason,
        symptom=verdict.symptom,
        cause=verdict.cause,
        action=verdict.action.kind,
        seconds=round(seconds, 3),
    )


def _outcome(scenario: Scenario, truth: oracle.ExpectedAnswer, verdict: Verdict, named: frozenset[int]) -> str:
    if scenario.kind in SILENT:
        silent = not named and (verdict.abstained or verdict.symptom == "healthy")
        certain = scenario.kind != "healthy_twice" or verdict.symptom == "healthy"
        false_peace = scenario.kind == "outside" and verdict.symptom == "healthy"
        return "exact" if silent and certain and not false_peace else "wrong"
    explained = any(item.what for item in verdict.missing) or any(culprit.why for culprit in verdict.culprits)
    if truth.decided and truth.ranks <= named <= truth.guilty:
        return "exact"
    if verdict.abstained and verdict.missing:
        return "abstained"
    if truth.ranks <= named and explained:
        return "superset"
    misled = bool(named & truth.instead) and verdict.action.kind not in REPLACING and not truth.decided
    return "misled" if misled else "wrong"


def _innocent_evicted(scenario: Scenario, truth: oracle.ExpectedAnswer, verdict: Verdict) -> set[object]:
    """Return the machines, or ranks where no machine is known, that would be replaced and hold no culprit."""
    if verdict.action.kind not in REPLACING:
        return set()
    guilty_nodes = {node_of(rank) for rank in truth.evictable} if scenario.placed else set()
    innocent: set[object] = set(verdict.action.nodes) - guilty_nodes
    if not verdict.action.nodes:
        innocent |= set(verdict.action.ranks) - truth.evictable
    return innocent


Naive = Callable[[list[FlightRecorderDump]], frozenset[int]]


def control_is_right(played: Played, named: Iterable[int]) -> bool:
    """Tell whether a naive answer is as good as the dumps allow; a healthy job must name nobody."""
    truth, answer = oracle.judge(played), frozenset(named)
    return truth.ranks <= answer <= truth.guilty if truth.decided else truth.ranks <= answer


def totals(scores: list[Score]) -> dict[str, Any]:
    """Sum up many scores, each proportion with its n and 95 % bounds."""
    decided = [score for score in scores if score.decided]
    others = [score for score in scores if not score.decided]
    return {
        "n": len(scores),
        "decided": _proportion([score.outcome == "exact" for score in decided]),
        "undecided_superset": _proportion([score.outcome == "superset" for score in others]),
        "undecided_misled": _proportion([score.outcome == "misled" for score in others]),
        "undecided_abstained": _proportion([score.outcome == "abstained" for score in others]),
        "innocent_evictions": _proportion([score.innocent_evicted > 0 for score in scores]),
        "innocent_machines_evicted": sum(score.innocent_evicted for score in scores),
        "cause_right": _proportion([score.cause_right for score in decided]),
    }


def _proportion(outcomes: list[bool]) -> dict[str, Any]:
    low, high = interval(sum(outcomes), len(outcomes)) if outcomes else (0.0, 1.0)
    share = round(sum(outcomes) / len(outcomes), 4) if outcomes else None
    return {"n": len(outcomes), "count": sum(outcomes), "share": share, "low_95": low, "high_95": high}
