"""Liars at work: a scene of the simulated fleet, and a voice that tells a lie into it through the real intake.

Voices: a token that is bound to a node outside the job; a token that is bound to none, under three names of its own; a user
of a node, whose honest agent reports its processes and files. Their batches go through the inspection of the intake, the
block codec and the engine's own step; what comes out is held against what the same scene comes to without a liar.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from random import Random
from typing import Any

import msgspec

from analyzers.model.verdict import Verdict
from analyzers.remediation.plan import Costs, Situation, choose_plan
from collectors.records import Placement, Record, block
from service.api.inspection import NotYours, inspect
from simulation.live.course import Course, Interruption, Span
from simulation.live.fleet import Delivery, Fleet
from simulation.live.job import Attempt
from simulation.live.scene_list import BEGAN_AT, FAULTS, Scene, play
from simulation.live.scenes import Truth, sketch
from tests.attacks.lies import A_USER, EARLY, LIES, Target
from tests.support.simulated_fleet import REPLACING, Drive, Seen, knowledge

VOICES: dict[str, tuple[str, ...]] = {
    "bound": ("outsider",),
    "unbound": ("made-up-0", "made-up-1", "made-up-2"),
    "user": ("login-node",),
}
INSIDERS = ("insider", "colluders")  # nodes of the job that are not the accused's: one, or both that are left
SLOWER = "slower"  # steps take longer, and nothing shows why
SCENES = ("healthy", *FAULTS, SLOWER)
NODES, RANKS_A_NODE = 3, 2
EVERY_SECONDS = 7.0
BEFORE_SECONDS, AFTER_SECONDS = 30.0, 120.0
SETTLED_SECONDS = 400.0
APART_SECONDS = 1.5  # between an instant by a node's clock and by the service's
SLOWER_TIMES, SLOW_SECONDS = 1.6, 420.0


def scene_of(kind: str, seed: int) -> Scene:
    """Return a scene with three nodes of two ranks."""
    if kind == SLOWER:
        return _slower(seed)
    if kind != "healthy":
        return play(kind, seed, NODES, RANKS_A_NODE)
    drawn = sketch(seed, kind, nodes=NODES, ranks_a_node=RANKS_A_NODE)
    at = BEGAN_AT + SETTLED_SECONDS
    return drawn.scene([Attempt(1, drawn.course())], Truth("healthy", at), at + 2 * AFTER_SECONDS)


def _slower(seed: int) -> Scene:
    drawn = sketch(seed, SLOWER, nodes=NODES, ranks_a_node=RANKS_A_NODE)
    quick = 0.5 + drawn.habits.step_seconds % 1.5
    drawn.habits = replace(
        drawn.habits, step_seconds=quick, law="jitter", checkpoint_every=0, evaluation_every=0, collection_every=0,
        reported_by=drawn.random.choice(("log", "logs", "probe")), log_every=1, first_step_seconds=quick + 2.0,
    )  # fmt: skip
    at = drawn.strikes_at() + SETTLED_SECONDS
    course = _Slowing(
        drawn.habits, Random(drawn.random.random()), BEGAN_AT, interruptions=(Interruption(at, "collection", 0.1),)
    )
    return drawn.scene([Attempt(1, course)], Truth(SLOWER, at, symptom="slow"), at + SLOW_SECONDS)


class _Slowing(Course):
    """Steps take longer since the interruption."""

    _is_slow = False

    def _train(self, begin: float, step: int) -> Span:
        if not self._interruptions and not self._is_slow:
            self._is_slow = True
            self.habits = replace(self.habits, step_seconds=SLOWER_TIMES * self.habits.step_seconds)
        return super()._train(begin, step)


def target_in(scene: Scene) -> Target:
    """Choose whom to accuse: the first rank of a node that nothing happens to."""
    job, guilty = scene.job, set(scene.truth.nodes)
    rank = next(rank for rank in range(job.world) if job.node_of(rank) not in guilty)
    return Target(scene, rank, scene.truth.at)


@dataclass
class Reported:
    """What a liar has sent: batches that the intake took, and that it refused."""

    taken: int = 0
    refused: int = 0


class LyingFleet:
    """A fleet in whose batches those of liars are mixed; it is driven as the fleet is."""

    def __init__(self, fleet: Fleet, batches: Iterable[tuple[float, str, list[Record]]]) -> None:
        self._fleet, self.reported = fleet, Reported()
        self._lies = deque(sorted(batches, key=lambda one: one[0]))
        self._count = 0
        self._sent: dict[tuple[str, str], list[float]] = defaultdict(list)

    @property
    def next_at(self) -> float:
        """Return when the next batch is received, of anybody."""
        return min(self._fleet.next_at, self._lies[0][0] if self._lies else float("inf"))

    def receive(self) -> Delivery | None:
        """Return the next batch as the log has it."""
        if not self._lies or self._fleet.next_at <= self._lies[0][0]:
            delivered = self._fleet.receive()
        else:
            delivered = self._taken_in(*self._lies.popleft())
        if delivered is None:
            return None
        self._count += 1
        for record in delivered.records:
            self._sent[delivered.node, record.source].append(record.at or 0.0)
        return delivered._replace(sequence=self._count)

    def senders(self, source: str, at: float) -> set[str]:
        """Return the nodes that have sent a record of a source about then."""
        return {
            node
            for (node, of_source), ats in self._sent.items()
            if of_source == source and any(abs(at - one) < APART_SECONDS for one in ats)
        }

    def ask(self, at: float, nodes: Iterable[str], verb: str, command: str) -> None:
        """Ask the honest agents."""
        self._fleet.ask(at, nodes, verb, command)

    def _taken_in(self, at: float, node: str, records: list[Record]) -> Delivery | None:
        data = block.encode(records, pack=True)
        try:
            inspect(data, node, most_records=50_000, largest_bytes=64 << 20)
        except NotYours:
            self.reported.refused += 1
            return None
        self.reported.taken += 1
        return Delivery(at, 0, node, at, tuple(block.decode(data)))


def batches_of(name: str, voice: str, target: Target) -> Iterator[tuple[float, str, list[Record]]]:
    """Yield a liar's batches: when, from which node, and what."""
    first = BEGAN_AT + 60.0 if name in EARLY else target.at - BEFORE_SECONDS
    at = first
    after = SLOW_SECONDS if target.scene.truth.kind == SLOWER else AFTER_SECONDS
    while at < min(target.at + after, target.scene.until):
        records = list(LIES[name](target, at))
        for number, node in enumerate(speakers(voice, target)):
            yield at + 0.1 * number, node, [_as_sent(record, node, named=voice == "user") for record in records]
        at += EVERY_SECONDS


def speakers(voice: str, target: Target) -> tuple[str, ...]:
    """Return the nodes that tell the lie."""
    if voice in VOICES:
        return VOICES[voice]
    others = tuple(node for node in target.job.nodes if node != target.node)
    return others if voice == "colluders" else others[-1:]


def _as_sent(record: Record, node: str, *, named: bool) -> Record:
    """Return a record as the liar's node sends it: an honest agent names its node in each, a liar in placements alone."""
    if isinstance(record, Placement) and record.nodes:
        record = msgspec.structs.replace(record, nodes=(node,) * len(record.nodes))
    return msgspec.structs.replace(record, node=node) if named else record


Words = dict[str, Any]


@dataclass
class Outcome:
    """What the engine made of a scene: the job's last verdict, everybody whom it would ever have replaced, its incidents."""

    verdict: Words | None
    replaced: set[str]  # by its verdicts, or by the plans that these come to
    named: set[str]  # nodes that any of its verdicts names, on which its ranks stand or as what they are
    groups: list[set[str]]  # nodes of each process group that is named: its dumps cannot distinguish its ranks
    opened: int
    of_other_attempts: int  # incidents of attempts that the job has never had


def outcome_of(seen: Seen, scene: Scene) -> Outcome:
    """Sum up a run for the scene's job."""
    of_job = [one for one in seen.opened if one.job == scene.job.name]
    ids = {one.id for one in of_job if one.attempt == scene.job.attempts[-1].number}
    reported = [one for one in seen.published if one.incident in ids]
    replaced = {node for one in seen.published for node in (*one.replaces, *_planned(one.verdict, scene))}
    culprits = [culprit for one in reported for culprit in one.verdict.culprits]
    named = {node for one in culprits if one.kind != "group" for node in _nodes_of(one, scene)}
    groups = [_nodes_of(one, scene) for one in culprits if one.kind == "group"]
    return Outcome(
        _words(reported[-1].verdict) if reported else None, replaced, named, groups, len(ids), len(of_job) - len(ids)
    )


def _planned(verdict: Verdict, scene: Scene) -> tuple[str, ...]:
    """Return the nodes that the plan takes out: of one dead process's machine it may where the verdict asks for checks."""
    plan = choose_plan(verdict, Situation(nodes=scene.job.nodes, spares=len(scene.job.nodes)), _costs())
    return plan.nodes if plan.kind in REPLACING else ()


@cache
def _costs() -> Costs:
    return Costs.from_knowledge(knowledge())


def _nodes_of(culprit: Any, scene: Scene) -> set[str]:
    """Return the nodes that a culprit is, or whose ranks it is; code, platform and ranks of invented roles are none's."""
    if culprit.kind in ("code", "platform") or culprit.role:  # the job has one role, without a name
        return set()
    own = {node for node in scene.job.nodes if culprit.id == node or culprit.id.startswith(f"{node}/")}
    return own or {scene.job.node_of(rank) for rank in culprit.ranks if rank < scene.job.world}


def _words(verdict: Any) -> Words:
    return {
        "symptom": verdict.symptom,
        "cause": verdict.cause,
        "culprits": sorted((one.kind, one.id) for one in verdict.culprits),
        "action": (verdict.action.kind, sorted(verdict.action.nodes)),
    }


def _by_its_own_word(node: str, seen: Seen, scene: Scene, fleet: LyingFleet) -> bool:
    """Whether a node is named by readings of its own agent alone: a liar has only opened the incident, while the job ran."""
    for verdict in (one.verdict for one in seen.published):
        shown = {one.id: one for one in verdict.evidence}
        for culprit in verdict.culprits:
            if node not in _nodes_of(culprit, scene):
                continue
            ats = [(shown[id].source, _seconds(shown[id].at)) for id in culprit.evidence]
            if not ats or any(fleet.senders(source, at) != {node} for source, at in ats):
                return False
    return True


def _seconds(at: str | None) -> float:
    return datetime.fromisoformat(at).timestamp() if at else 0.0


@cache
def honest(kind: str, seed: int) -> Outcome:
    """Return what a scene comes to without a liar."""
    scene = scene_of(kind, seed)
    driver = Drive(Fleet([scene.job], seed, BEGAN_AT), naive=False)
    return outcome_of(driver.run(scene.until), scene)


def run_one(name: str, voice: str, kind: str, seed: int) -> dict[str, Any]:
    """Tell one lie in one voice into one scene; say whom it hurt."""
    scene = scene_of(kind, seed)
    fleet = LyingFleet(Fleet([scene.job], seed, BEGAN_AT), batches_of(name, voice, target_in(scene)))
    seen = Drive(fleet, naive=False).run(scene.until)  # type: ignore[arg-type]
    lied = outcome_of(seen, scene)
    true = honest(kind, seed)
    liars = set(speakers(voice, target_in(scene)))
    innocent = sorted(lied.replaced - set(scene.truth.nodes) - liars)
    others = set(scene.job.nodes) - set(scene.truth.nodes) - liars
    # A group that holds ranks of a liar is named by what these report of themselves: whether it is true no other rank knows.
    third = lied.named.union(*(group for group in lied.groups if not group & liars)) - true.named.union(*true.groups)
    by_itself = {node for node in third & others if _by_its_own_word(node, seen, scene, fleet)}
    grouped = set().union(*(group for group in lied.groups if group & liars)) - true.named.union(*true.groups)
    changed = lied.verdict != true.verdict
    return {
        "lie": name, "voice": voice, "scene": kind, "seed": seed, "innocent": innocent,
        "third": sorted(third & others - by_itself), "by_itself": sorted(by_itself), "grouped": sorted(grouped & others),
        "changed": changed,
        "replaces_the_liar": bool(lied.replaced & liars), "opened": lied.opened,
        "opened_without": true.opened, "of_other_attempts": lied.of_other_attempts,
        "verdict": lied.verdict if changed else None, "honest": true.verdict if changed else None,
        "taken": fleet.reported.taken, "refused": fleet.reported.refused,
    }  # fmt: skip


def matrix(seeds: Iterable[int], names: Iterable[str] = LIES, voices: Iterable[str] = VOICES,
           scenes: Iterable[str] = SCENES) -> Iterator[tuple[str, str, str, int]]:  # fmt: skip
    """Yield every lie in every voice that can tell it, in every scene."""
    for seed in seeds:
        for kind in scenes:
            for voice in voices:
                yield from ((name, voice, kind, seed) for name in names if voice != "user" or name in A_USER)
