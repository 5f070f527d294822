"""A judgement that meets what an analyzer cannot take: it costs that node's records, and evicts no innocent machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from analyzers import diagnosis
from analyzers.diagnosis import Registered
from analyzers.incidents import judgement
from analyzers.incidents.judgement import judge_cut
from analyzers.incidents.messages import Judge
from analyzers.model.incident import Cut
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from collectors.records import DeviceState, Record
from service.packaged_knowledge import load
from tests.support.recorded_incident import CONTEXT, CUTS, ID, NODES, records

STRANGER = "gpu-0666"
POISON = DeviceState(device="x", state="ok", node=STRANGER, source="poison")


def judged(*more: Record, cut: Cut = CUTS[1]) -> Verdict:
    """Return the verdict on the recorded incident, rank 3 of which never entered, and what others sent."""
    inside = [record for sequence, (_, _, own) in records().items() if sequence <= cut.through for record in own]
    return judge_cut(Judge(incident=ID, cut=cut, records=(*CONTEXT, *inside, *more), attempt=1), load()).verdict


def named(verdict: Verdict) -> tuple[Any, ...]:
    """Return what a verdict names, and what it would do."""
    return verdict.symptom, verdict.cause, [(one.kind, one.id) for one in verdict.culprits], verdict.action


@pytest.fixture
def brittle(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return what makes the hang analyzer fail where a record of a source is in the window."""
    real = diagnosis.registry()["hang"]

    def make(source: str) -> None:
        def analyze(window: Window, *rest: Any) -> Iterator[Any]:
            if any(record.source == source for record in window.records):
                raise ZeroDivisionError("a rule that nobody thought of")
            return real.load()(window, *rest)

        monkeypatch.setitem(diagnosis.registry(), "hang", Registered(real.reads | {"device_state"}, lambda: analyze))

    return make


def test_a_stranger_s_record_ends_no_verdict(brittle: Callable[[str], None]) -> None:
    """One node outside the job sends what an analyzer fails on: the verdict is the same, and states what was left out."""
    brittle("poison")

    plain, attacked = judged(), judged(POISON)

    assert named(attacked) == named(plain)
    assert plain.culprits
    assert any(STRANGER in item.what for item in attacked.missing)
    assert not any("failed (" in item.what for item in attacked.missing)


def test_a_window_that_cannot_be_built_costs_its_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no window can be built, the other nodes' records are judged; where all are odd, it abstains and says why."""
    real = Window.build

    def build(records: Any, *arguments: Any, **named: Any) -> Window:
        if any(record.source == "poison" for record in records):
            raise OverflowError("Python integer out of bounds")
        return real(records, *arguments, **named)

    monkeypatch.setattr(judgement.Window, "build", build)

    assert named(judged(POISON)) == named(judged())
    everywhere = judged(*(msgspec.structs.replace(POISON, node=node) for node in (*NODES, STRANGER)))
    assert everywhere.abstained
    assert "could not be judged" in everywhere.missing[0].what


def test_a_machine_whose_records_were_left_out_is_not_evicted(brittle: Callable[[str], None]) -> None:
    """The rank that never entered is on a node whose own record is odd: without its dump nothing is held against it."""
    brittle("poison")

    verdict = judged(msgspec.structs.replace(POISON, node=NODES[3]))

    assert verdict.action.kind in ("none", "probe")


def test_a_machine_whose_records_were_shed_is_not_evicted() -> None:
    """What the engine gave up for want of memory is stated, and proves nothing against its node."""
    plain = judged()
    shed = judged(cut=msgspec.structs.replace(CUTS[1], shed={NODES[3]: 101}))

    assert (plain.coverage.shed, shed.coverage.shed) == ((), (NODES[3],))
    assert shed.action.kind in ("none", "probe")
    assert any(NODES[3] in item.what and "memory" in item.what for item in shed.missing)
