"""Simulated reinforcement-learning jobs, watched: what the rules say and when, what the verdict names, and what controls do.

The controls are those that role-based detection has to beat (RobustRL, arXiv 2512.22492, section 2): *peers* restarts an instance
that is idle for 30 s while most of its role are not; *silence* waits until nothing in the job moves for 30 s, and names no role.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from analyzers.diagnosis.roles.processes import seen_processes
from analyzers.knowledge import Knowledge
from analyzers.knowledge.role_rules import role_rules
from analyzers.model.frames import FrameRules
from analyzers.model.role_instances import Instance, Seat, fold
from analyzers.model.role_look import Stall
from analyzers.model.role_ranks import Statement, match_ranks, seen_in
from analyzers.model.role_stalls import stalled
from analyzers.model.topology import infer
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.records import Record, RoleState
from service.packaged_knowledge import load
from simulation.roles import BEGAN_AT, EVERY, FAULTS, RlJob

IDLE_SECONDS = 30.0  # of both controls
REPEAT_SECONDS = 300.0  # a control restarts an instance again after so long
WATCH_SECONDS = 2_400.0  # after a fault, at most
WINDOW_SECONDS = 400.0
LOOK_EVERY = 3  # readings
SURE = 0.75  # of what restarts


@dataclass
class Control:
    """What a control did: restarts of innocents, and what it did first after the fault."""

    wrong: int = 0
    right: bool = False
    seconds: float | None = None


@dataclass
class Watched:
    """What was said of one job. ``named``: role, instances and node of each culprit of the verdict."""

    kind: str
    gpus: int
    seed: int
    heard: bool = True
    followed: bool = True
    seconds: float | None = None  # from the fault to a verdict with a culprit
    named: list[tuple[str, tuple[str, ...], str]] = field(default_factory=list)
    action: str = ""
    role_right: bool = False
    machine_right: bool | None = None  # None: no one instance is at fault
    false_restarts: int = 0  # before the fault, or in a healthy job
    false_names: int = 0  # the same, where what was said is not sure enough to restart
    peers: Control = field(default_factory=Control)
    silence: Control = field(default_factory=Control)
    days: float = 0.0
    judge_seconds: float = 0.0
    why: str = ""


@cache
def knowledge() -> Knowledge:
    """Return the packaged knowledge."""
    return load()


def job_of(kind: str, gpus: int, seed: int) -> RlJob:
    """Return one job of a kind: every fifth has no client, every other fifth no agents that see its processes."""
    return RlJob(seed, gpus, kind, heard=seed % 5 != 3, followed=seed % 5 != 4, one_step_off=seed % 2 == 1)


class Controls:
    """Both controls: they see when an instance's counters last moved, and not what it waits for."""

    def __init__(self, said: Watched, job: RlJob) -> None:
        self._said, self._job = said, job
        self._last: dict[Seat, float] = {}
        self._counts: dict[Seat, tuple[int | None, int | None]] = {}
        self._restarted: dict[Seat, float] = {}
        self._quiet = False

    def take(self, readings: Iterable[RoleState], after: float) -> None:
        """Add the readings of one instant, and act."""
        for one in readings:
            seat, counts = (one.role or "", one.instance), (one.tokens_total, one.steps_total)
            if (
                self._last.setdefault(seat, after) is not None
                and counts != (None, None)
                and self._counts.get(seat) != counts
            ):
                self._counts[seat], self._last[seat] = counts, after
        truth = self._job.truth
        for seat in self._idle(after):
            if after - self._restarted.get(seat, -1e9) > REPEAT_SECONDS:
                self._restarted[seat] = after
                self._act(self._said.peers, after, guilty=seat == (truth.role, truth.instance))
        quiet = all(after - at >= IDLE_SECONDS for at in self._last.values())
        if quiet and not self._quiet:
            self._act(self._said.silence, after, guilty=False)
        self._quiet = quiet

    def _act(self, control: Control, after: float, *, guilty: bool) -> None:
        faulty = after > self._job.truth.at
        control.wrong += not (guilty and faulty) and (control is self._said.peers or not faulty)
        if faulty and control.seconds is None:
            control.seconds, control.right = after - self._job.truth.at, guilty

    def _idle(self, after: float) -> Iterator[Seat]:
        for role in sorted({role for role, _ in self._last}):
            mine = [seat for seat in self._last if seat[0] == role]
            still = [seat for seat in mine if after - self._last[seat] >= IDLE_SECONDS]
            if still and 2 * len(still) < len(mine):
                yield from still


class Watch:
    """One job under the rules, as a service keeps it: a fold of all readings, and the records of the last minutes."""

    def __init__(self, job: RlJob) -> None:
        self.job, self.truth = job, job.truth
        self.said = Watched(job.truth.kind, job.gpus, job.seed, job.heard, job.followed)
        self.controls = Controls(self.said, job)
        self._rules = role_rules(knowledge())
        self._instances: dict[Seat, Instance] = {}
        self._recent: deque[list[Record]] = deque(maxlen=int(WINDOW_SECONDS / EVERY))

    def run(self, seconds: float) -> Watched:
        """Watch a healthy job for so long, another until both its verdict and the silence of its cluster have come."""
        healthy = self.truth.kind == "healthy"
        begin = 0.0 if healthy else max(0.0, self.truth.at - WINDOW_SECONDS)
        end = seconds if healthy else self.truth.at + WATCH_SECONDS
        tick, after = 0, begin
        while (after := begin + tick * EVERY) < end:
            tick += 1
            readings = list(self.job.readings(after))
            rows = list(self.job.processes(after)) if not healthy or tick % LOOK_EVERY == 0 else []
            self._recent.append([*readings, *rows])
            fold(readings, self._instances)
            self.controls.take(readings, after)
            if self.said.seconds is None and tick % LOOK_EVERY == 0:
                self._look(after)
            if self.said.seconds is not None and self.said.silence.seconds is not None:
                break
        self.said.days = (after - begin) / 86_400.0
        return self.said

    def _look(self, after: float) -> None:
        recent = Window(tuple(one for batch in self._recent for one in batch))
        frames = recent.once(FrameRules.of, knowledge())
        said = {seat: Statement(one.rank, one.pid, one.node) for seat, one in self._instances.items()}
        ranks = match_ranks(said, seen_in(recent.records))
        seen = seen_processes(recent, self._instances, ranks, self._rules.bounds.grown_share, frames)
        stalls = stalled(self._instances, BEGAN_AT + after, self._rules, seen)
        if not stalls:
            return
        if after <= self.truth.at:
            self.said.false_restarts += stalls[0].strength >= SURE
            self.said.false_names += stalls[0].strength < SURE
            self.said.why = self.said.why or f"after {after:.0f} s: {_shown(stalls[0])}"
        elif (verdict := self._judged()).culprits:
            self.said.seconds, self.said.why = after - self.truth.at, _shown(stalls[0])
            self._score(verdict)

    def _judged(self) -> Verdict:
        began = time.process_time()
        records = [*self.job.context(), *(one for batch in self._recent for one in batch)]
        window = Window.build(records, live=True)
        verdict = judge(window, infer(window), knowledge(), rounds=2)
        self.said.judge_seconds = max(self.said.judge_seconds, time.process_time() - began)
        return verdict

    def _score(self, verdict: Verdict) -> None:
        said, truth = self.said, self.truth
        said.named = [(one.role or "", one.instances, one.id if one.kind == "node" else "") for one in verdict.culprits]
        said.action = f"{verdict.action.kind} {verdict.action.role or ''}".strip()
        said.role_right = all(role == truth.role for role, _, _ in said.named)
        if truth.instance:
            said.machine_right = said.named == [(truth.role, (truth.instance,), truth.node)]


def _shown(stall: Stall) -> str:
    return f"{stall.fault_class}, {stall.role} {stall.instance}: {stall.why}"


def watch(kind: str, gpus: int, seed: int, seconds: float = 0.0) -> Watched:
    """Watch one job."""
    return Watch(job_of(kind, gpus, seed)).run(seconds)


def summary(every: list[Watched]) -> dict[str, object]:
    """Sum up the faults and the healthy time of some jobs."""
    faults = [one for one in every if one.kind != "healthy"]
    days, machines = sum(one.days for one in every), [one for one in faults if one.machine_right is not None]
    return {
        "faults": len(faults),
        "role_right": sum(one.role_right for one in faults),
        "machines": len(machines),
        "machine_right": sum(bool(one.machine_right) for one in machines),
        "not_found": sum(one.seconds is None for one in faults),
        **_spread([one.seconds for one in faults]),
        "job_days": round(days, 2),
        "false_restarts": sum(one.false_restarts for one in every),
        "false_names": sum(one.false_names for one in every),
        "judge_seconds_most": round(max((one.judge_seconds for one in every), default=0.0), 2),
        "peers": _control([one.peers for one in faults], every_wrong=[one.peers.wrong for one in every], days=days),
        "silence": _control(
            [one.silence for one in faults], every_wrong=[one.silence.wrong for one in every], days=days
        ),
    }


def _control(found: list[Control], every_wrong: list[int], days: float) -> Mapping[str, object]:
    return {
        "right": sum(one.right for one in found), "not_found": sum(one.seconds is None for one in found),
        **_spread([one.seconds for one in found]), "false_restarts": sum(every_wrong),
        "false_restarts_a_job_day": round(sum(every_wrong) / days, 1) if days else None,
    }  # fmt: skip


def _spread(found: Iterable[float | None]) -> dict[str, float | None]:
    seconds = sorted(one for one in found if one is not None)
    middle, most = (seconds[len(seconds) // 2], seconds[-1]) if seconds else (None, None)
    return {"seconds_median": middle, "seconds_most": most}


def by_kind(every: list[Watched]) -> dict[str, dict[str, object]]:
    """Sum up each kind by itself."""
    return {kind: summary([one for one in every if one.kind == kind]) for kind in ("healthy", *FAULTS)}
