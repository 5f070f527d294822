"""Which instances of a directory are missing, and which are of the attempt that runs."""

from __future__ import annotations

from typing import Any

from service.roles.directory import Slot
from service.roles.readings import missing, running

NOW, HOURS = 1_795_230_000.0, 3_600.0


def slot(instance: str, *, began: float = 10 * HOURS, heard: float = 5.0, **more: Any) -> Slot:
    """Return a rollout that registered and renewed so many seconds ago."""
    return Slot(
        role="rollout", instance=instance, epoch=1, process=instance, lease_seconds=30.0, registered_at=NOW - began,
        renewed_at=NOW - heard, **more,
    )  # fmt: skip


def missed(*slots: Slot, listening: float = 100 * HOURS, rounds: int = 0) -> list[str]:
    """Return the instances that are missing."""
    return [one.instance for one, _ in missing(slots, NOW, NOW - listening, rounds)]


def test_what_is_missing_stays_missing_while_its_peers_are_heard() -> None:
    """For hours, and less often; not what left, nor of a run before, nor what was abandoned before the service listened."""
    peers = slot("0"), slot("1"), slot("2")
    lost = slot("3", heard=2 * HOURS)
    assert missed(*peers, lost) == ["3"]
    assert missed(*peers, lost, rounds=1) == []
    assert missed(*peers, slot("3", heard=60.0), rounds=1) == ["3"]
    assert missed(*peers, slot("3", heard=2 * HOURS, state="left")) == []
    assert missed(lost) == []
    anew = slot("0", began=HOURS), slot("1", began=HOURS), slot("2")
    assert missed(*anew, lost) == []
    assert missed(*peers, slot("3", heard=9 * HOURS), listening=60.0) == []
    assert missed(*peers, slot("3", heard=0.5 * HOURS), listening=60.0) == ["3"]


def test_an_earlier_attempt_runs_while_it_renews_beside_a_newer_one() -> None:
    """One rollout has a number of its own: the others are of its job. What was not heard since is over."""
    newer = slot("1", began=HOURS, attempt=1)
    assert running([slot("0"), newer, slot("3", heard=HOURS + 5.0), slot("4", heard=HOURS - 20.0)]) == [
        slot("0"),
        newer,
    ]
    assert missed(slot("0"), newer, slot("3", heard=60.0)) == ["3"]
