"""One spinning rank that never changes, for an hour in which answers come late or not at all: one claim, and it stays."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from analyzers.incidents.messages import Publish
from analyzers.incidents.replay import ReplayCase, rejudge_cuts
from analyzers.model.verdict import to_json
from collectors.records import Frame
from tests.support.late_answers import START, Delay, SpinningJob, at_random, by_turns, prompt
from tests.support.live_hangs import KNOWLEDGE, REDUCE, SPIN, inside

HOUR = 3_700.0
ALL = ("gpu-0", "gpu-1", "gpu-2", "gpu-3")
DELAYS: dict[str, Delay] = {
    "prompt": prompt,
    **{f"random {seed}": at_random(seed, late=0.35, lost=0.2) for seed in range(3)},
    "the culprit every second round": by_turns([ALL, ("gpu-0", "gpu-1", "gpu-3")]),
    "never all at once": by_turns([ALL, ("gpu-2",), ("gpu-0", "gpu-3")]),
}


def own(job: SpinningJob) -> list[Publish]:
    """Return the versions of the job's own incident: silent agents have another."""
    return [one for one in job.published if one.incident == job.opened.incident.id]


@pytest.mark.system
@pytest.mark.parametrize("dumps", [False, True], ids=["stacks", "stacks and dumps"])
@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=pytest.mark.acceptance if one in ("random 1", "random 2") else ()) for one in DELAYS],
)
def test_what_never_changes_is_claimed_once(name: str, dumps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """No later round takes back what an earlier one has shown: each version names more exactly or acts on more proof."""
    job = SpinningJob(monkeypatch, DELAYS[name], dumps=dumps).run(HOUR)

    versions = [one.verdict for one in own(job)]
    assert [one.id for one in versions[-1].culprits] == ["gpu-2"]
    assert versions[-1].action.kind == ("evict" if dumps else "probe")
    assert len(versions) <= 4
    strength = ["none", "probe", "evict"]
    for before, after in pairwise(versions):
        assert strength.index(before.action.kind) <= strength.index(after.action.kind)
        assert {one.id for one in before.culprits} <= {"gpu-2", "rank 0", "rank 1", "rank 3"}
        assert not after.abstained


@pytest.mark.system
@pytest.mark.parametrize("silent", [("gpu-2",), ("gpu-0", "gpu-1", "gpu-3")], ids=["the culprit", "its peers"])
def test_a_node_that_falls_silent_takes_nothing_away(silent: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its agent sends nothing for five minutes, again and again: the verdict stands."""

    def cut_off(node: str, seconds: float) -> bool:
        return node in silent and seconds % 700.0 > 400.0

    job = SpinningJob(monkeypatch, prompt, dumps=True, cut_off=cut_off).run(HOUR)

    assert [one.verdict.action.kind for one in own(job)] == ["probe", "evict"]


@pytest.mark.system
def test_no_machine_is_blamed_by_waits_alone_while_its_stack_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorders answer at once, stacks after the round's bound: the first word is the loader's, and not its machine's."""
    loader = inside("_try_get_data", file="/x/site-packages/torch/utils/data/dataloader.py")
    job = SpinningJob(
        monkeypatch, prompt, dumps=True, stacks_late=12.0, stands=lambda _number: loader, minutely=False
    ).run(300.0)

    assert own(job)[0].verdict.cause == "data"
    assert own(job)[0].cut.at - START < 90.0


@pytest.mark.system
def test_a_verdict_that_changes_twice_abstains_and_states_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that is now in the collective and now outside of it: named, not named, named, and then the verdict abstains."""
    job = SpinningJob(monkeypatch, prompt, stands=_any_of(REDUCE, SPIN), minutely=False).run(HOUR)

    newest = own(job)[-1].verdict
    assert newest.abstained
    assert newest.action.kind == "none"
    assert any("changed twice" in one.what and "gpu-2" in one.what for one in newest.missing)
    assert len(own(job)) <= 5


@pytest.mark.system
def test_an_eviction_that_is_for_and_against_twice_is_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its dumps never change, its stacks do: the node stays named, and is not evicted."""
    stands = _any_of(SPIN, inside("f", "check_loss_scale"), inside("g", "check_loss_scale"))
    job = SpinningJob(monkeypatch, at_random(3, late=0.3, lost=0.3), stands=stands, dumps=True).run(HOUR)

    versions = [one.verdict for one in own(job)]
    assert {one.id for version in versions for one in version.culprits} == {"gpu-2"}
    assert versions[-1].action.kind == "probe"
    assert sum(one.action.kind == "evict" for one in versions) <= 2


@pytest.mark.system
def test_what_is_published_replays_to_the_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut holds why its verdict abstains: live and replay are the same bytes."""
    stands = _any_of(REDUCE, SPIN, inside("g", "check_loss_scale"))
    job = SpinningJob(monkeypatch, at_random(5, late=0.35, lost=0.2), stands=stands, minutely=False).run(HOUR)
    opened, versions = job.opened, own(job)
    incident = job.state.incidents[opened.incident.id]

    case = ReplayCase(incident.id, incident.job, incident.attempt, incident.nodes, opened.context)
    after = [batch for batch in job.log if batch.sequence > opened.incident.after]
    again = list(rejudge_cuts(case, [one.cut for one in versions], after, KNOWLEDGE))

    assert len(versions) > 1
    assert [to_json(one.verdict) for one in again] == [to_json(one.verdict) for one in versions]


def _any_of(*stacks: tuple[Frame, ...]) -> Callable[[int], tuple[Frame, ...]]:
    noise = random.Random(5)
    return lambda _number: noise.choice(stacks)
