"""What becomes of a new judgement beside the one that stands: two answers that take turns end in an abstention."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from analyzers.incidents import moving_again
from analyzers.incidents.standing_claim import contest_claims, remember_claim, weigh_claim
from analyzers.model.incident import Incident, VersionClaim


def claim(rank: int, symptom: str = "hang", **more: object) -> VersionClaim:
    """A claim on one rank's machine."""
    known = {"named": (f"node n{rank}",), "nodes": (f"n{rank}",), "ranks": (rank,), "cause": "machine"}
    return VersionClaim(symptom=symptom, **{"at": 0.0, **known, **more})  # type: ignore[arg-type]


def weighed(*claims: VersionClaim) -> list[str]:
    """What becomes of each, all nodes having answered; after the first that is contested the incident abstains."""
    incident, found = (
        Incident(id="inc-1", kind="hang", job="llama", attempt=1, opened_at=0.0, onset_at=0.0, symptoms=(), after=0),
        list[str](),
    )
    for one in claims:
        found.append(weigh_claim(incident, one, ()))
        if found[-1] == "contest":
            incident = contest_claims(incident, one)
        elif found[-1] == "publish":
            incident = remember_claim(incident, one)
    return found


@pytest.mark.parametrize("other", ["hang", "slow"])
def test_two_answers_that_take_turns_are_contested(other: str) -> None:
    """Whether they are of one symptom or of two: each was a new fact once."""
    turns = [claim(2), claim(1, other)] * 3

    assert "contest" in weighed(*turns)[:4]


def test_a_new_symptom_is_a_new_fact() -> None:
    """A hang after which the same machine loses a device, and one after which another rank crashes."""
    assert weighed(claim(2), claim(2, "crash"), claim(2, "crash", takes=True)) == ["publish"] * 3
    assert weighed(claim(2), claim(1, "crash"), claim(1, "crash", takes=True)) == ["publish"] * 3


def test_a_crash_of_nobody_takes_nothing_back_from_the_hang_before_it() -> None:
    """A person ends a job that stands still; a hang of which later looks name nobody is in doubt."""
    nobody = {"named": (), "nodes": (), "ranks": (), "cause": "unknown"}

    assert weighed(claim(2), claim(2, "crash", **nobody)) == ["publish", "keep"]
    assert weighed(claim(2), claim(2, **nobody)) == ["publish", "publish"]


@pytest.mark.parametrize(
    ("alive", "symptom", "becomes"),
    [(False, "unknown", "keep"), (True, "unknown", "publish"), (False, "hang", "publish"), (False, "crash", "keep")],
)
def test_after_the_end_of_a_job_no_symptom_takes_nothing_back(alive: bool, symptom: str, becomes: str) -> None:
    """Nothing of it stands still any more. While it runs, or by a judgement that has a symptom, the names are taken back."""
    first, nothing = claim(2), claim(2, symptom, named=(), nodes=(), ranks=(), cause="unknown")
    started = Incident(
        id="inc-1", kind="hang", job="llama", attempt=1, opened_at=0.0, onset_at=0.0, symptoms=(), after=0
    )
    incident = replace(remember_claim(started, first), published=1)
    view = SimpleNamespace(processes=SimpleNamespace(alive={2} if alive else set()))
    state = SimpleNamespace(silent={}, jobs={("llama", 1): view}, now=100.0)
    judged = SimpleNamespace(cut=SimpleNamespace(at=90.0, moved_at=None))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moving_again, "moved_again_at", lambda *_: None)
        patch.setattr(moving_again, "witnessed_until", lambda *_: 1e9)
        weighed = moving_again.weigh_judgement(state, incident, judged, nothing)[1]  # type: ignore[arg-type]
    assert weighed == becomes


def test_what_a_process_or_a_device_shows_itself_is_published() -> None:
    """Also after the verdict has changed as often as it may."""
    assert weighed(claim(2), claim(1), claim(2), claim(3, proven=True))[-1] == "publish"
