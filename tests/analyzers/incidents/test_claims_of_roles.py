"""What a published version claims, and which judgement contradicts it, where each role counts its ranks from 0."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from analyzers.incidents.standing_claim import claim_of, drops_restart, remember_claim, weigh_claim
from analyzers.model.incident import Incident, Symptom, VersionClaim
from analyzers.model.verdict import Action, Culprit, Verdict

OPENED = Incident(
    id="inc-1", kind="hang", job="rl", attempt=0, opened_at=10.0, onset_at=0.0, after=0,
    symptoms=(Symptom(kind="hang", detector="no_progress", at=0.0, text="no step"),),
)  # fmt: skip


def naming(role: str | None, *ranks: int, id: str = "n1") -> VersionClaim:
    """The claim of a verdict that names one node for these ranks of a role."""
    one = Culprit(root="r1", kind="node", id=id, ranks=ranks, role=role, probability=0.9)
    return claim_of(Verdict(symptom="hang", cause="machine", abstained=False, culprits=(one,)), 0.0)


def changes(*claims: VersionClaim) -> int:
    """How often versions with these claims contradict one another."""
    incident = OPENED
    for one in claims:
        incident = remember_claim(incident, one)
    return incident.changes


def test_rank_0_of_another_role_is_another_rank() -> None:
    """On one node, too: the trainer's and the rollout's."""
    assert changes(naming("trainer", 0), naming("rollout", 0)) == 1
    assert changes(naming("trainer", 0, 1), naming("rollout", 0, id="n2")) == 1
    turns = remember_claim(remember_claim(OPENED, naming("trainer", 0)), naming("rollout", 0))
    assert weigh_claim(turns, naming("trainer", 0), ()) == "contest"


@pytest.mark.parametrize(
    ("before", "after"), [(None, "trainer"), ("trainer", None), ("trainer", "trainer"), (None, None)]
)
def test_a_role_that_becomes_known_contradicts_nothing(before: str | None, after: str | None) -> None:
    """Nor one that is known no more; and fewer of the same ranks are more exact."""
    assert changes(naming(before, 0), naming(after, 0)) == 0
    assert changes(naming(before, 0, 1), naming(after, 0, id="n2")) == 0


def test_a_restart_that_is_asked_for_no_more_is_no_other_name() -> None:
    """Of the same instance, and neither of another one nor where its machine is taken out."""
    spins = Culprit(root="r1", kind="node", id="n1", ranks=(1,), role="trainer", probability=0.9)

    def claim(kind: str, *named: Culprit) -> VersionClaim:
        verdict = Verdict(symptom="hang", cause="unknown", abstained=False, culprits=named, action=Action(kind=kind))
        return claim_of(verdict, 0.0)

    asked = remember_claim(OPENED, claim("restart_role", spins))
    assert drops_restart(asked, claim("probe", spins))
    assert not drops_restart(asked, claim("restart_role", spins))
    assert not drops_restart(asked, claim("evict", spins))
    assert not drops_restart(asked, claim("probe", replace(spins, id="n2", ranks=(0,))))
    assert not drops_restart(remember_claim(OPENED, claim("probe", spins)), claim("none", spins))
