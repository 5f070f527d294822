"""Reinforcement-learning jobs as their roles report them: steps of generation with published tails, training, weight syncs.

A step is a table of segments (a sequence decodes on an engine, or waits for a call of an environment); a fault edits the
table from its instant on, and what depends on it waits, as it does in a job. Lengths: a step's longest sequence takes up to
1,050 s (RobustRL's SWE trace, arXiv 2512.22492); decoding and calls are lognormal; engines of a node, groups of sequences and
the share of long calls are ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from collectors.records import KernelEvent, Members, Placement, ProcessState, Record, RoleState

EVERY = 10.0  # seconds between two readings
BEGAN_AT = 1_795_000_000.0
TAIL_SECONDS = 1_050.0
GROUP = 24  # sequences of one engine in a step
SLOW_SECONDS = 2_000.0  # that a slow reward takes for all of a step
TOKENS_A_SECOND = 30.0  # of one sequence
DECODE, CALL = 0, 1
FAULTS = (
    "dead_engine", "stuck_tool", "slow_reward", "sync_point_to_point", "sync_collective", "killed_rollout",
    "stopped_trainer", "lost_future", "out_of_memory", "hung_trainer",
)  # fmt: skip
_NEVER = 1e12
_ROLES = {
    "stuck_tool": "environment", "slow_reward": "reward", "sync_collective": "trainer", "stopped_trainer": "trainer",
    "hung_trainer": "trainer", "lost_future": "controller", "out_of_memory": "reward",
}  # fmt: skip
_TRAINERS = ("stopped_trainer", "hung_trainer")


@dataclass(frozen=True, slots=True)
class RoleFault:
    """What is wrong, since when. ``instance`` or ``node`` empty: no one instance or machine is."""

    kind: str
    role: str = ""
    instance: str = ""
    node: str = ""
    at: float = _NEVER  # seconds after the job's beginning


@dataclass(frozen=True, slots=True)
class RoleLayout:
    """A job's instances: half of the GPUs train, on nodes of eight; two engines a node generate."""

    gpus: int

    @property
    def counts(self) -> dict[str, int]:
        """Return how many instances each role has."""
        return {
            "trainer": self.gpus // 16, "rollout": self.gpus // 8, "reward": max(2, self.gpus // 256),
            "environment": max(4, self.gpus // 64), "controller": 1,
        }  # fmt: skip

    @property
    def seats(self) -> list[tuple[str, str]]:
        """Return role and instance of all."""
        return [(role, str(number)) for role, count in self.counts.items() for number in range(count)]

    def node(self, role: str, instance: str) -> str:
        """Return an instance's node: a reward runs beside the engines of a node."""
        number = int(instance)
        return {"trainer": f"t{number:03d}", "rollout": f"r{number // 2:03d}", "reward": f"r{number:03d}"}.get(
            role, f"c{number:03d}"
        )


@dataclass(slots=True)
class RoleStep:
    """One step: columns by segment, and when each part of it begins. Instants are seconds after the job's beginning."""

    number: int
    begin: float
    segments: dict[str, Any]
    finish: Any  # of each engine
    scored: list[tuple[Any, Any, Any]] = field(default_factory=list)  # of each reward: arrivals, starts, ends
    ready: float = _NEVER
    sync: float = _NEVER  # trained, and the weights go out
    end: float = _NEVER


@dataclass
class RlJob:
    """A job, what is true of it, and what its sources state of it at any instant."""

    seed: int
    gpus: int
    kind: str = "healthy"
    heard: bool = True  # the instances have a client: phases, waits, heartbeats
    followed: bool = True  # agents see processes
    one_step_off: bool = False
    shape: RoleLayout = field(init=False)
    truth: RoleFault = field(init=False)
    steps: list[RoleStep] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Draw the first step, and where a fault strikes."""
        self.random = np.random.default_rng([self.seed, self.gpus])
        self.shape, self.truth = RoleLayout(self.gpus), RoleFault("healthy")
        self.train_seconds = float(self.random.uniform(90, 280))
        self.sync_seconds = float(self.random.uniform(6, 70))
        self.switch_seconds = float(self.random.uniform(5, 60))
        self.score_seconds = float(self.random.uniform(1.5, 4.0))
        self._add(float(self.random.uniform(60, 500)))  # warm-up before it
        if self.kind != "healthy":
            self._add(self.steps[-1].end)
            self.truth = self._strike(self.steps[-1])

    # -- the course of a step ---------------------------------------------------------------------------------------

    def _add(self, begin: float) -> None:
        counts = self.shape.counts
        sequences = counts["rollout"] * GROUP
        rounds = self.random.integers(1, 7, sequences)
        whose = np.repeat(np.arange(sequences), 2 * rounds - 1)
        order = np.concatenate([np.arange(2 * n - 1) for n in rounds])
        kind = order % 2
        lengths = np.where(
            kind == DECODE, self.random.lognormal(2.9, 0.6, len(whose)), self.random.lognormal(2.0, 1.1, len(whose))
        )
        long = self.random.random(len(whose)) < 0.5 / GROUP / counts["rollout"] * 4
        lengths = np.where(long, self.random.uniform(200, TAIL_SECONDS, len(whose)), lengths)
        until = np.cumsum(lengths)
        first = np.searchsorted(whose, np.arange(sequences))
        before = np.concatenate([[0.0], until])[first]
        ends = np.minimum(until - before[whose], TAIL_SECONDS - 1.0)
        starts = np.minimum(until - lengths - before[whose], TAIL_SECONDS - 1.0)
        step = RoleStep(
            len(self.steps), begin,
            {
                "sequence": whose, "kind": kind, "start": begin + starts, "end": begin + ends,
                "engine": whose // GROUP, "environment": self.random.integers(0, counts["environment"], len(whose)),
            },
            np.zeros(counts["rollout"]),
        )  # fmt: skip
        self.steps.append(step)
        self._finish(step)

    def _finish(self, step: RoleStep, slow: int = -1, since: float = _NEVER) -> None:
        """Find when each engine, each score and the step itself end."""
        counts, table = self.shape.counts, step.segments
        last = np.full(counts["rollout"] * GROUP, step.begin)
        np.maximum.at(last, table["sequence"], table["end"])
        step.finish = last.reshape(counts["rollout"], GROUP).max(axis=1)
        step.scored = []
        for reward in range(counts["reward"]):
            arrivals = np.sort(last[reward :: counts["reward"]])
            step.scored.append(self._score(arrivals, since if reward == slow else _NEVER))
        step.ready = float(max(ends[-1] for _, _, ends in step.scored))
        trained = self.steps[step.number - 1].sync if self.one_step_off and step.number else step.begin
        step.sync = max(step.ready, trained) + (0 if self.one_step_off else self.train_seconds)
        if self.one_step_off:
            step.sync = max(step.ready, step.begin + self.train_seconds)
        step.end = step.sync + self.switch_seconds + self.sync_seconds

    def _score(self, arrivals: Any, slow_from: float) -> tuple[Any, Any, Any]:
        """Score sequences, sixteen at a time; from ``slow_from`` on so slowly that the step waits for them."""
        slowly = 16 * SLOW_SECONDS / len(arrivals)
        starts, ends = np.empty(len(arrivals)), np.empty(len(arrivals))
        for place, arrival in enumerate(arrivals):
            starts[place] = max(arrival, ends[place - 16]) if place >= 16 else arrival
            ends[place] = starts[place] + (slowly if starts[place] >= slow_from else self.score_seconds)
        return arrivals, starts, ends

    def extend(self, until: float) -> None:
        """Add steps until an instant; a step that never ends is the last."""
        while self.steps[-1].end < until:
            self._add(self.steps[-1].end)

    def _strike(self, step: RoleStep) -> RoleFault:
        """Edit the step from an instant in it on, and say what is true then."""
        counts, kind, random = self.shape.counts, self.kind, self.random
        span = {"slow_reward": (0.05, 0.3), "lost_future": (0.1, 0.5)}.get(kind, (0.05, 0.7))
        at = step.begin + float(random.uniform(*span)) * float(np.median(step.finish) - step.begin)
        if kind in _TRAINERS:
            at = (step.begin if self.one_step_off else step.ready) + float(
                random.uniform(0.1, 0.6)
            ) * self.train_seconds
        if kind.startswith("sync"):
            at = step.sync + self.switch_seconds
        role = _ROLES.get(kind, "rollout")
        number = int(random.integers(0, counts[role]))
        table = step.segments
        if kind in ("dead_engine", "killed_rollout"):
            busy = np.unique(table["engine"][(table["kind"] == DECODE) & (table["start"] <= at) & (table["end"] > at)])
            number = int(random.choice(busy)) if len(busy) else number
        truth = RoleFault(kind, role, str(number), self.shape.node(role, str(number)), at)
        engine = 2 * number if kind == "out_of_memory" else number  # an engine beside the reward that leaks
        if kind in ("dead_engine", "killed_rollout", "out_of_memory"):
            self._hold(step, (table["engine"] == engine), at)
        elif kind == "stuck_tool":
            self._hold(step, (table["environment"] == number) & (table["kind"] == CALL), at)
        elif kind == "lost_future":  # one sequence's answer never comes
            last = table["sequence"] == int(random.integers(0, counts["rollout"])) * GROUP
            at = float(table["end"][last].max())
            truth = replace(truth, node="", at=at)
            step.ready = step.sync = step.end = _NEVER
        elif kind == "slow_reward":
            self._finish(step, number, at)
        elif kind in _TRAINERS:
            step.sync = step.end = _NEVER
        else:
            step.end = _NEVER
        if kind == "sync_collective":
            truth = replace(truth, instance="", node="")
        return replace(truth, node="") if kind == "out_of_memory" else truth  # no machine is at fault

    def _hold(self, step: RoleStep, on: Any, at: float) -> None:
        """These segments never end if they have not by then; what follows on them never begins."""
        table = step.segments
        stuck = on & (table["end"] > at)
        first = np.full(table["sequence"].max() + 1, _NEVER)
        np.minimum.at(first, table["sequence"][stuck], table["start"][stuck])
        begins = first[table["sequence"]]
        table["start"] = np.where(table["start"] > np.maximum(begins, at), _NEVER, table["start"])
        table["end"] = np.where((table["end"] > at) & (table["start"] >= begins), _NEVER, table["end"])
        self._finish(step)
        step.ready = step.sync = step.end = _NEVER

    # -- what is stated of it ---------------------------------------------------------------------------------------

    def step_at(self, at: float) -> RoleStep:
        """Return the step that an instant is in; the first before it begins."""
        return next((step for step in reversed(self.steps) if step.begin <= at), self.steps[0])

    def readings(self, at: float) -> Iterator[RoleState]:
        """Yield what the instances' sources state at an instant."""
        self.extend(at)
        step, counts = self.step_at(at), self.shape.counts
        table = step.segments
        begun, on, decodes = table["start"] <= at, table["end"] > at, table["kind"] == DECODE
        running = np.bincount(table["engine"][begun & on & decodes], minlength=counts["rollout"])
        spent = np.clip(np.minimum(table["end"], at) - table["start"], 0.0, None)
        if self.truth.kind in ("dead_engine", "killed_rollout") and at > self.truth.at:
            before = np.clip(np.minimum(table["end"], self.truth.at) - table["start"], 0.0, None)
            spent = np.where(table["engine"] == int(self.truth.instance), before, spent)
        tokens = np.bincount(table["engine"], weights=spent * decodes * begun, minlength=counts["rollout"])
        calls = begun & ~decodes
        in_calls = np.bincount(table["environment"][calls & on], minlength=counts["environment"])
        ended = np.bincount(table["environment"][calls & ~on], minlength=counts["environment"])
        for role, instance in self.shape.seats:
            number, said = int(instance), dict[str, Any]()
            if role == "rollout":
                done = int(tokens[number] * TOKENS_A_SECOND) + step.number * 100_000_000
                said = {"requests_running": int(running[number]), "tokens_total": done, "answers": True}
            elif role == "environment":
                done = int(ended[number]) + step.number * 1_000_000
                said = {"requests_running": int(in_calls[number]), "steps_total": done}
            elif role == "reward":
                arrived, started, scored = (int((column <= at).sum()) for column in step.scored[number])
                said = {
                    "requests_running": started - scored, "requests_waiting": arrived - started,
                    "steps_total": scored + step.number * 1_000_000,
                }  # fmt: skip
            elif role == "trainer":
                said = {"steps_total": self._minibatches(step, at)}
            yield from self._stated(role, instance, step, at, said)

    def _minibatches(self, step: RoleStep, at: float) -> int:
        begin = step.begin if self.one_step_off else step.ready
        until = min(at, self.truth.at) if self.truth.kind in _TRAINERS else at
        share = min(max(until - begin, 0.0) / self.train_seconds, 1.0) if begin < _NEVER else 0.0
        return 16 * step.number + int(16 * share)

    def _phase(self, role: str, instance: str, step: RoleStep, at: float) -> tuple[str, float, str | None]:
        """Return phase, since when, and what it waits for."""
        if at < step.begin:
            return "warm_up", 0.0, None
        if at >= step.sync and role in ("trainer", "rollout"):
            return self._syncs(role, instance, step, at)
        if role == "rollout":
            finished = float(step.finish[int(instance)])
            return ("generate", step.begin, None) if at < finished else ("wait", finished, "trainer")
        if role == "trainer":
            begin = step.begin if self.one_step_off else step.ready
            trained = self.one_step_off and at > begin + self.train_seconds and self.truth.kind not in _TRAINERS
            return ("wait", step.begin, "queue:experience") if at < begin or trained else ("update_actor", begin, None)
        if role == "controller":
            lost = self.truth.kind == "lost_future" and at > float(step.finish.max())
            return "wait", step.begin, "rollout 0" if lost else "rollout" if at < step.ready else "trainer"
        return ("score" if role == "reward" else "tool"), step.begin, None

    def _syncs(self, role: str, instance: str, step: RoleStep, at: float) -> tuple[str, float, str | None]:
        switched = step.sync + self.switch_seconds
        if at < switched:
            return "context_switch", step.sync, None
        if not self._goes_on(role, instance, step, at):
            return "weight_sync", switched, None
        since = switched + self.sync_seconds
        return ("generate", since, None) if role == "rollout" else ("wait", since, "queue:experience")

    def _goes_on(self, role: str, instance: str, step: RoleStep, at: float) -> bool:
        """Whether it has the weights that one other instance never gets."""
        hit = self.truth.kind == "sync_point_to_point" and (role, instance) != (self.truth.role, self.truth.instance)
        return hit and at > step.sync + self.switch_seconds + self.sync_seconds

    def _is(self, role: str, instance: str, at: float) -> bool:
        """Whether the fault ended or stopped this process."""
        own = (role, instance) == (self.truth.role, self.truth.instance)
        return at > self.truth.at and (
            (own and self.truth.kind in ("killed_rollout", "stopped_trainer")) or self._killed_beside(role, instance)
        )

    def _killed_beside(self, role: str, instance: str) -> bool:
        leaks = self.truth.kind == "out_of_memory"
        return leaks and (role, instance) == ("rollout", str(2 * int(self.truth.instance)))

    def _stated(self, role: str, instance: str, step: RoleStep, at: float, said: dict[str, Any]) -> Iterator[RoleState]:
        gone, node = self._is(role, instance, at), self.shape.node(role, instance)
        whose: dict[str, Any] = {"job": "rl", "attempt": 1, "role": role, "instance": instance, "node": node}
        whose |= {"at": BEGAN_AT + at, "received_at": BEGAN_AT + at + 1}
        metrics = "requests_running" in said
        if metrics and role == "rollout" and self._goes_on(role, instance, step, at):
            later = at - step.sync - self.switch_seconds - self.sync_seconds
            tokens = (step.number + 1) * 100_000_000 + int(later * 8 * TOKENS_A_SECOND)
            said = {**said, "requests_running": 8, "tokens_total": tokens}
        if not gone and (metrics or not self.heard):
            yield RoleState(**whose, source=f"metrics/{role}/{instance}", **said)
        elif metrics and role == "rollout":
            yield RoleState(**whose, source=f"metrics/{role}/{instance}", answers=False)
        if not self.heard:
            return
        phase, since, target = self._phase(role, instance, step, min(at, self.truth.at) if gone else at)
        idle = role in ("reward", "environment") and not said.get("requests_running")
        out = at >= step.sync + self.switch_seconds and role == "trainer"
        beat = self.truth.at if gone else at - (self.seed + int(instance)) % 10
        yield RoleState(
            **whose, source=f"roles/{role}/{instance}", pid=self.pid(role, instance), epoch=1, state="serving",
            phase="idle" if idle else phase, phase_since=BEGAN_AT + since, waiting_for=target,
            waiting_since=BEGAN_AT + since if target else None, renewed_at=BEGAN_AT + beat,
            weights=step.number + (out or self._goes_on(role, instance, step, at)) if role in ("trainer", "rollout") else None,
            steps_total=None if metrics or gone else said.get("steps_total"),
        )  # fmt: skip

    def pid(self, role: str, instance: str) -> int:
        """Return an instance's process."""
        return 1_000 * (1 + list(self.shape.counts).index(role)) + int(instance)

    def processes(self, at: float) -> Iterator[Record]:
        """Yield what agents see of the instances' processes at an instant."""
        truth = self.truth
        for role, instance in self.shape.seats if self.followed else ():
            own, hit = (role, instance) == (truth.role, truth.instance), at > truth.at
            gone = self._is(role, instance, at)
            killed = gone and truth.kind != "stopped_trainer"
            if killed and at - truth.at >= EVERY:
                continue  # its end was reported
            frozen = gone or (hit and own and truth.kind == "hung_trainer")
            leaks = own and truth.kind == "out_of_memory"
            grown = 40 * max(0.0, min(1.0, (at - truth.at + 300) / 300)) if leaks else 0.0
            yield ProcessState(
                source="process", node=self.shape.node(role, instance), job="rl", attempt=1, role=role, rank=int(instance),
                boot_id="b", pid=self.pid(role, instance), at=BEGAN_AT + (truth.at if killed else at),
                received_at=BEGAN_AT + at + 1, state="X" if killed else "T" if gone else "S", signal=9 if killed else None,
                cpu_seconds=0.6 * (truth.at if frozen else at), resident_bytes=int((8 + grown) * 2**30),
                oom_kills_total=int(hit and truth.kind == "out_of_memory"),
            )  # fmt: skip

    def context(self) -> Iterator[Record]:
        """Yield the placements, and what the kernels logged by the end."""
        for role, instance in self.shape.seats if self.followed else ():
            node = self.shape.node(role, instance)
            yield Placement(
                source="placement", node=node, job="rl", attempt=1, at=BEGAN_AT, received_at=BEGAN_AT + 1,
                ranks=Members.of([int(instance)]), roles=(role,), nodes=(node,), pids=(self.pid(role, instance),),
            )  # fmt: skip
        if self.truth.kind == "out_of_memory":
            engine = str(2 * int(self.truth.instance))
            at = BEGAN_AT + self.truth.at
            yield KernelEvent(
                source="kernel", node=self.shape.node("reward", self.truth.instance), event="oom_kill", at=at, received_at=at + 1,
                pid=self.pid("rollout", engine), text="Out of memory: killed process",
            )  # fmt: skip
