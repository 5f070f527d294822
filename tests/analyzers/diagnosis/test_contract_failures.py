"""An analyzer that fails costs its own claims only, and a healthy cluster names no machine, whichever analyzer runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from analyzers import diagnosis
from analyzers.diagnosis import Registered
from analyzers.knowledge import Knowledge
from analyzers.model import finding
from analyzers.model.finding import Finding
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import (
    KernelEvent,
    ProcessState,
    Record,
)
from simulation.recorder import EPOCH_NS
from simulation.scenarios import HEALTHY, KINDS, draw, play
from tests.analyzers.diagnosis.test_contract import (
    ANALYZERS,
    bundles,
    claimed,
    judged,
)

SEEDS_OF_A_HEALTHY_JOB = range(24)

MACHINES = ("node", "device", "rank", "link", "switch")


@pytest.mark.parametrize("seed", SEEDS_OF_A_HEALTHY_JOB)
def test_a_healthy_cluster_names_no_machine(seed: int) -> None:
    """A running job, with its stacks, its processes and a day of ordinary kernel lines, accuses nobody."""
    index = [place for place, kind in enumerate(KINDS) if kind in HEALTHY][seed % len(HEALTHY)]
    played = play(draw(index + len(KINDS) * (seed + 1), most_ranks=64))
    world = played.scenario.shape.world
    at = (EPOCH_NS + played.recordings[-1].dumped_at_ns[0]) / 1e9
    records = [*played.records(), *_ordinary_day(world, at)]
    verdict = judged(records)
    assert verdict.culprits == ()
    assert verdict.action.kind == "none"
    accused = [
        suspect
        for name in ANALYZERS
        for one in claimed(name, records)
        for suspect in one.suspects
        if suspect.kind in MACHINES
    ]
    assert accused == []


def _ordinary_day(world: int, at: float) -> Iterator[Record]:
    for rank in range(world):
        yield ProcessState(
            source=f"ps:{rank}", rank=rank, pid=100 + rank, state="SR"[rank % 2], command="python train.py"
        )
    for hour, code in enumerate((13, 31, 43, 45, 13, 31)):
        known = {"node": "node-0000", "pci": "0000:9b:00", "source": f"kern.log:{hour}", "text": f"Xid {code}"}
        yield KernelEvent(**known, event="xid", code=code, at=at - 80_000 + 3600 * hour)  # type: ignore[arg-type]


def test_a_crashing_analyzer_is_a_recorded_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs its own claims only: the verdict stands, and says what it had to do without."""

    def broken(_window: Window, _topology: Topology, _knowledge: Knowledge) -> Iterator[Finding]:
        raise ZeroDivisionError("by no fault of the cluster")

    records = bundles()["hang and all else"]
    expected = judged(records)
    monkeypatch.setitem(diagnosis.registry(), "broken", Registered(frozenset({"flight_recorder"}), lambda: broken))
    verdict = judged(records)
    assert verdict.culprits == expected.culprits
    assert [item.what for item in verdict.missing if "broken" in item.what] == [
        "analyzer broken failed (ZeroDivisionError: by no fault of the cluster): its evidence is not in this verdict"
    ]


def test_a_claim_made_before_the_crash_is_not_half_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an analyzer yielded before it crashed is dropped with the rest: half a claim may be the wrong half."""

    def half(_window: Window, _topology: Topology, _knowledge: Knowledge) -> Iterator[Finding]:
        suspect = finding.Suspect(kind="rank", strength=0.99, why="half a thought", ranks=(0,))
        yield Finding(
            analyzer="half",
            family="log",
            symptom="crash",
            cause="machine",
            fault_class="device_lost",
            suspects=(suspect,),
        )
        raise KeyError("the other half")

    monkeypatch.setitem(diagnosis.registry(), "half", Registered(frozenset({"flight_recorder"}), lambda: half))
    monkeypatch.delitem(diagnosis.registry(), "hang")
    verdict = judged(bundles()["hang"])
    assert verdict.culprits == ()
    assert "half" in verdict.missing[0].what
