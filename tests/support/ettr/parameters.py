"""The numbers of the simulation, each with where it is from: measured by us, published, or taken for want of one ("ours")."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from service.evaluation.proportions import interval
from tests.bench.measure import REPOSITORY

Restarts = Literal["requeue", "standbys"]
MEASURED = REPOSITORY / "docs" / "measured"
# ByteRobust's times at 128, 256, 512 and 1,024 machines. Beyond, the last doubling goes on.
REQUEUE_SECONDS = (454.0, 545.0, 635.0, 768.0)
IN_PLACE_SECONDS = (46.0, 51.0, 54.0, 65.0)
FEWEST_MACHINES = 128
STANDBY_GAIN, RESCHEDULE_GAIN = 10.87, 5.36  # a standby is woken so many times faster than a requeue, than a reschedule


@dataclass(frozen=True, slots=True)
class Quality:
    """How well a kind of fault is reported, and how fast. ``exact``: its one machine is named with proof enough to evict it."""

    exact: float
    named_seconds: float
    proposed_seconds: float  # the look that may evict
    document: str


@dataclass(frozen=True, slots=True)
class Parameters:
    """All of it. Times are seconds."""

    hang: Quality
    event: Quality
    crash: Quality
    innocent: float  # a healthy machine is named with proof: none was measured, this is the upper bound of 95 %
    hang_of_numbers_seconds: float = (
        600.0  # until a NaN or a lasting slowness is acted upon: ours, no detector was measured
    )
    checkpoint_stall_seconds: float = 4.0  # RobustRL: 3 to 5 s from GPU to memory
    recurs_seconds: float = 600.0  # until what was not cured strikes again, in the mean: as plan.toml
    network_lasts: float = 0.5  # a cable or port that a restart does not cure: ours
    schedule_seconds: float = 4.0  # a scheduler polls, drains and requeues: ours, beside the restart itself
    person_seconds: float = 900.0  # until somebody on call has read a proposal and answers: ours
    probe_seconds: float = 600.0  # checks of named machines, or of all at once: MegaScale, less than 10 min
    probe_recall: float = 0.7  # ByteRobust, of silent corruption
    probe_false: float = 0.01  # that the check of all takes one healthy machine out: RSC, of good jobs
    by_hand_seconds: Mapping[str, float] = field(
        default_factory=lambda: {"hang": 5_400.0, "slow": 5_400.0, "numeric": 28_800.0, "": 900.0}
    )  # ByteRobust before its system: 2 to 15 min explicit, more than 1.5 h a hang, more than 8 h silent corruption
    replay_seconds: float = 4_289.0  # ByteRobust: a NaN, from localization to restart, in the mean
    repair_hours: float = 24.0  # of a faulty machine: ours
    innocent_hours: float = 4.0  # that a healthy machine is out: as plan.toml
    pool_nodes: int = 256  # cold machines of the partition, enough for all who are compared: ours
    verify_seconds: float = 120.0  # ten good steps: ours
    tries: int = 3  # restarts, before those who only restart look by hand: ours

    def document(self) -> dict[str, Any]:
        """Return them for a measured document."""
        return asdict(self) | {"by_hand_seconds": dict(self.by_hand_seconds)}


def measured() -> Parameters:
    """Read how well verdicts are from the documents that say so."""
    live = {row["fault"]: row for row in _read("live_verdicts")["rows"] if row["topology"] == "all"}
    stuck = [live[fault] for fault in ("spin", "gil", "sigstop")]
    lost = _read("healthy_fleet")["faults"]["gpu_lost"]
    job = _read("engine")["one_job"][-1]
    evictions = _read("simulated_hangs")["total"]["innocent_evictions"]
    return Parameters(
        hang=Quality(
            exact=_share(sum(row["right"] for row in stuck), sum(row["trials"] for row in stuck)),
            named_seconds=job["named_seconds"],
            proposed_seconds=job["proposed_seconds"],
            document="live_verdicts.json (machine hangs, real jobs); engine.json (seconds at 16,384 ranks)",
        ),
        event=Quality(
            exact=_share(lost["evicted"], lost["seeds"]),
            named_seconds=lost["named_seconds"]["median"],
            proposed_seconds=lost["evicted_seconds"]["median"],
            document="healthy_fleet.json (gpu_lost, the simulator)",
        ),
        crash=Quality(
            exact=0.0,
            named_seconds=live["exception"]["median_seconds"],
            proposed_seconds=live["exception"]["median_seconds"],
            document="live_verdicts.json (an exception, real jobs)",
        ),
        innocent=interval(evictions["count"], evictions["n"])[1],
    )


def _share(right: int, of: int) -> float:
    """Return what is to be expected of the next one (rule of succession): that all were right is no certainty."""
    return (right + 1) / (of + 2)


def restart_seconds(restarts: Restarts, machines: int, out: int, warm: int) -> float:
    """Return how long a restart takes that takes ``out`` machines out, with so many standbys awake."""
    requeue = at_scale(REQUEUE_SECONDS, machines)
    if restarts == "requeue":
        return requeue
    if out == 0:
        return at_scale(IN_PLACE_SECONDS, machines)
    return requeue / STANDBY_GAIN * (1.0 if out <= warm else RESCHEDULE_GAIN)


def at_scale(seconds: tuple[float, ...], machines: int) -> float:
    """Return a published time at another number of machines: straight between two doublings, and on after the last."""
    place = max(0.0, math.log2(machines / FEWEST_MACHINES))
    low = min(int(place), len(seconds) - 2)
    return seconds[low] + (place - low) * (seconds[low + 1] - seconds[low])


def checkpoint_seconds(stall_seconds: float, interruptions_a_day: float) -> float:
    """Return the best time between two checkpoints, √(2 · stall / rate of interruptions) (Young 1974; RSC, HPCA 2025)."""
    return math.sqrt(2.0 * stall_seconds * 86_400.0 / interruptions_a_day)


def _read(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((MEASURED / f"{name}.json").read_text(encoding="utf-8"))
    return document
