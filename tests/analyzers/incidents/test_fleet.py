"""Agents that fall silent together: one infrastructure incident, nobody evicted, and nothing where it is chance."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.support.fleet_world import (
    FOUR_SWITCHES,
    START,
    World,
    evicts_nobody,
    incident,
    links_down,
    only,
)
from tests.support.sentences import numbers_in


def test_nothing_is_told_of_nodes_that_report() -> None:
    """Sixty-four staggered agents and an hour: no incident, no alarm, nobody silent."""
    world = World(jobs=[("a", range(32)), ("b", range(32, 64))])
    world.run(3600)

    assert world.opened == {}
    assert world.alarms == []
    assert all(not report.silent for report in world.reports)


def test_thirty_percent_of_the_agents_cut_is_one_incident_that_names_no_node() -> None:
    """Nineteen of 64 fall silent: one incident after about a minute, abstained, and over when they are back."""
    world = World(jobs=[("a", range(64))])
    world.run(120)
    world.cut = set(world.names[::3][:19])
    cut_at = world.now
    world.run(300)
    shared = only(world)

    assert shared.symptom.detector == "silent_together"
    assert shared.nodes == frozenset(world.cut)
    assert world.reports[-1].silent == frozenset(world.cut)
    opened_at = next(index for index, report in enumerate(world.reports) if report.shared)
    assert world.reports[opened_at].shared[0].nodes == frozenset(world.cut)  # nothing is reported before all are in it
    assert START + 10 * (opened_at + 1) - cut_at <= 90
    assert shared.verdict.abstained
    assert evicts_nobody(shared)
    assert any("[domains]" in missing.what for missing in shared.verdict.missing)
    world.cut = set()
    assert world.run(30).shared == ()
    assert {key: numbers_in(why) for key, why in world.over.items()} == {shared.key: [19]}


def test_one_silent_agent_is_nobodys_infrastructure() -> None:
    """A machine that died alone is not explained away, not even of a small job, nor are two of a large job's."""
    world = World(jobs=[("a", range(60)), ("small", range(60, 64))])
    world.run(120)
    world.cut = {"n07"}
    assert world.run(300).silent == {"n07"}
    world.cut = {"n61"}
    world.run(300)
    world.cut = {"n07", "n08"}
    world.run(300)
    assert world.opened == {}


def test_a_fifth_of_a_small_job_counts() -> None:
    """Two of a job's eight nodes falling silent together are one incident; the same two of no job are not."""
    for jobs, expected in (([("small", range(8))], 1), ([], 0)):
        world = World(jobs=jobs)
        world.run(120)
        world.cut = {"n03", "n04"}
        world.run(200)
        assert len(world.opened) == expected


def test_nodes_that_fall_silent_apart_are_no_incident() -> None:
    """Five nodes of one fleet that die a minute apart from each other share nothing."""
    world = World()
    world.run(120)
    for number in range(5):
        world.cut.add(f"n{number:02d}")
        world.run(60)
    world.run(120)
    assert world.opened == {}


def test_a_switch_is_named_where_its_nodes_fell_silent_and_others_did_not() -> None:
    """All sixteen nodes of a leaf silent and 48 others not: the switch, cause network; its job's stall is explained."""
    world = World(site=FOUR_SWITCHES, jobs=[("a", range(16, 32)), ("b", range(32, 64))])
    world.run(120)
    world.cut = {f"n{number}" for number in range(16, 32)}
    world.run(200)
    shared = only(world)
    culprit = shared.verdict.culprits[0]

    assert (culprit.kind, culprit.id, shared.verdict.cause) == ("switch", "leaf-1", "network")
    assert shared.jobs == {"a"}
    assert evicts_nobody(shared)
    assert shared.explains(incident("a", "no_progress", world.now, ("n16",)))
    assert not shared.explains(incident("b", "no_progress", world.now, ("n40",)))
    assert not shared.explains(incident("a", "rank_dead", world.now, ("n16",)))
    assert not shared.explains(incident("a", "no_progress", shared.symptom.at - 600, ("n16",)))


def test_a_node_that_reports_again_hides_no_fault_of_its_jobs() -> None:
    """One of sixteen silent nodes is back: what its own job shows is judged, and a job with a silent node waits."""
    world = World(site=FOUR_SWITCHES, jobs=[("a", range(16, 24)), ("b", [17])])
    world.run(120)
    world.cut = {f"n{number}" for number in range(16, 32)}
    world.run(200)
    on_its_own = incident("b", "no_progress", world.now, ("n17",))
    unseen = incident("b", "rank_silent", world.now, ("n17",))
    assert [only(world).explains(one) for one in (on_its_own, unseen)] == [True, True]

    world.cut.remove("n17")
    world.run(30)
    shared = only(world)
    assert [shared.explains(one) for one in (on_its_own, unseen)] == [False, False]
    assert shared.explains(incident("a", "no_progress", world.now, ("n17",)))
    assert shared.explains(incident("a", "rank_silent", world.now, ("n17",)))
    assert not shared.explains(incident("a", "rank_stopped", world.now, ("n17",)))
    assert "n17" in shared.nodes

    world.cut.clear()
    world.run(30)
    assert shared.key in world.over


@pytest.mark.parametrize(
    "silent",
    [range(16, 24), [*range(16, 32), *range(40, 48)]],
    ids=["half of it is spared", "a third of them lie elsewhere"],
)
def test_a_switch_that_explains_half_of_it_explains_nothing(silent: Iterable[int]) -> None:
    """A domain is named for nearly all that show it and with few of its own spared, or not at all."""
    world = World(site=FOUR_SWITCHES)
    world.run(120)
    world.cut = {f"n{number}" for number in silent}
    world.run(200)
    assert only(world).verdict.abstained


def test_a_switch_that_serves_everybody_explains_nothing() -> None:
    """Where no node is outside of it, nothing tells the switch from whatever else all nodes have."""
    world = World(site='[domains.switch]\ncore = ["n*"]\n')
    world.run(120)
    links_down(world, world.names)
    world.run(60)
    assert only(world).verdict.abstained


def test_two_domains_with_the_same_nodes_are_no_answer() -> None:
    """A switch and a power feed that serve the same rack cannot be distinguished by silence, and both are suspects."""
    site = FOUR_SWITCHES + '[domains.power]\nfeed-1 = ["n1[6-9]", "n2?", "n3[01]"]\n'
    world = World(site=site)
    world.run(120)
    world.cut = {f"n{number}" for number in range(16, 32)}
    world.run(200)
    verdict = only(world).verdict

    assert verdict.abstained
    assert {entry.id for entry in verdict.suspects} == {"leaf-1", "power feed-1", "unknown"}
    assert any("distinguishes" in missing.what for missing in verdict.missing)


# --- our own outages


def test_all_agents_silent_is_our_own_outage() -> None:
    """When nobody reports, this service or the way to it is the cause, and no job is blamed or alarmed for."""
    world = World(jobs=[("a", range(64))])
    world.run(120)
    world.cut = set(world.names)
    world.run(200)
    shared = only(world)

    assert (shared.verdict.cause, shared.verdict.culprits[0].kind) == ("platform", "platform")
    assert evicts_nobody(shared)
    assert not shared.explains(incident("a", "no_progress", world.now, ("n01",)))
    assert world.alarms == []


def test_after_an_outage_nobody_is_silent_until_all_have_had_time_to_come_back() -> None:
    """Agents return over half a minute: no second incident, no node silent; one that stays away is, a minute later."""
    world = World(jobs=[("a", range(64))])
    world.run(120)
    world.cut = set(world.names)
    world.run(180)
    back_at = world.now
    outage = only(world)

    def return_one_by_one(world: World) -> None:
        gone = int((world.now - back_at) * 2)
        world.cut = set(world.names[gone:]) if gone < 63 else {"n63"}

    world.every_second = return_one_by_one
    before = len(world.reports)
    world.run(60)
    assert all(not report.silent for report in world.reports[before:])
    assert world.run(60).silent == {"n63"}
    assert list(world.opened) == [outage.key]
    assert outage.key in world.over


def test_our_outage_is_over_as_soon_as_every_agent_is_back() -> None:
    """The minute that agents have to come back is not waited for once nobody is silent; a later look opens nothing more."""
    world = World(jobs=[("a", range(64))])
    world.run(120)
    world.cut = set(world.names)
    world.run(180)
    outage = only(world)
    world.cut = set()
    world.run(20)

    assert {key: numbers_in(why) for key, why in world.over.items()} == {outage.key: [64]}
    world.run(120)
    assert list(world.opened) == [outage.key]


def test_agents_that_never_come_back_from_our_outage_are_an_incident_of_their_own() -> None:
    """Our outage is over with the first minute of batches; the nineteen that stay away fell silent together."""
    world = World(jobs=[("a", range(64))])
    world.run(120)
    world.cut = set(world.names)
    world.run(180)
    outage = only(world)
    world.cut = set(world.names[:19])
    world.run(180)
    rest = world.opened[next(key for key in world.opened if key != outage.key)]

    assert {key: numbers_in(why) for key, why in world.over.items()} == {outage.key: [45, 64]}
    assert (rest.symptom.detector, rest.nodes) == ("silent_together", frozenset(world.cut))
    assert rest.verdict.abstained


def test_an_engine_that_was_away_finds_nobody_silent() -> None:
    """After a pause of five minutes without a look the first minute opens nothing, whatever the log still lacks."""
    world = World()
    world.run(120)
    world.now += 300.0  # neither batches nor looks: the engine was down, and the log is not read yet
    report = world.look()

    assert (report.shared, report.silent) == ((), frozenset())
    world.run(300)
    assert world.opened == {}


def test_a_service_restart_of_forty_seconds_opens_nothing() -> None:
    """Shorter than the bound on silence, an outage is not worth a word."""
    world = World(jobs=[("a", range(64))])
    world.run(120)
    world.cut = set(world.names)
    world.run(40)
    world.cut = set()
    world.run(200)
    assert (world.opened, world.alarms) == ({}, [])
