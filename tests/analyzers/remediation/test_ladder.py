"""The ladder: what is tried when evidence runs out, in which order, and what is never tried twice."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from analyzers.knowledge.convictions import weights
from analyzers.model.verdict import Action, Culprit, Root, Verdict
from analyzers.remediation.ladder import (
    JobAttempt,
    JobHistory,
    JobLayout,
    NetworkAlert,
    Rung,
    TriedRung,
    build_attempt,
    next_rung,
)
from service.packaged_knowledge import load

BOUNDS = weights(load()).ladder
AT = 1_000_000.0
NODES = tuple(f"n{number}" for number in range(24))
LAYOUT = JobLayout(pipeline_nodes=4, data_parallel=6)
HANG = JobAttempt(number=2, code_version="b", ended_at=AT, symptom="hang", cause="unknown")
WELL = JobAttempt(number=1, code_version="a", ended_at=AT - 9_000, good_seconds=7_200.0)


def asked(*attempts: JobAttempt, taken: Iterable[TriedRung] = (), alerts: Iterable[NetworkAlert] = ()) -> Rung:
    """Ask for the next rung of a job of 24 nodes."""
    history = JobHistory(
        at=AT, attempts=attempts, taken=tuple(taken), alerts=tuple(alerts), nodes=NODES, layout=LAYOUT
    )  # fmt: skip
    return next_rung(history, BOUNDS)


def again(attempt: JobAttempt, **changed: object) -> JobAttempt:
    """The job failed in the same way again, after another start."""
    return replace(attempt, number=attempt.number + 1, **changed)


def test_without_a_failure_nothing_is_done() -> None:
    """A job that runs, one without attempts, and one in a pause are left alone."""
    pause = replace(HANG, cause="none")

    assert [asked(*attempts).kind for attempts in ((), (WELL,), (WELL, pause))] == ["none"] * 3


def test_proof_evicts() -> None:
    """A node with proof against it is evicted first."""
    rung = asked(WELL, replace(HANG, proven=("n7",), suspects=("n8",)))

    assert (rung.kind, rung.nodes) == ("evict", ("n7",))


def test_the_whole_ladder() -> None:
    """Eviction, checks of the others, reattempt, rollback to the commit that ran well, replay, and then a person."""
    first = replace(HANG, proven=("n7",))
    attempts = [WELL, first]
    taken: list[TriedRung] = []
    rungs: list[Rung] = []
    for _ in range(7):
        rung = asked(*attempts, taken=taken)
        rungs.append(rung)
        if rung.kind == "none":
            break
        number = attempts[-1].number
        taken.append(TriedRung(kind=rung.kind, attempt=number, nodes=rung.nodes, code_version=rung.code_version))
        if rung.kind in ("evict", "reattempt", "rollback"):
            attempts.append(replace(HANG, number=number + 1, code_version=rung.code_version or "b"))

    assert [rung.kind for rung in rungs] == ["evict", "probe", "reattempt", "rollback", "replay", "none"]
    assert rungs[1].nodes == tuple(node for node in NODES if node != "n7")
    assert rungs[3].code_version == "a"
    assert rungs[4].replay is not None
    assert rungs[4].replay.group_nodes == 4
    assert "a person must decide" in rungs[5].why


def test_a_second_eviction_needs_checks() -> None:
    """After an eviction in vain a new proof is checked first; what fails its checks leaves, with no further proof."""
    first = replace(HANG, proven=("n7",))
    second = again(first, proven=("n9",))
    evicted = TriedRung(kind="evict", attempt=2, nodes=("n7",))

    checks = asked(WELL, first, second, taken=[evicted])
    found = TriedRung(kind="probe", attempt=3, nodes=checks.nodes, found=("n9",))
    passed = TriedRung(kind="probe", attempt=3, nodes=checks.nodes)

    assert (checks.kind, checks.nodes) == ("probe", ("n9",))
    assert asked(WELL, first, second, taken=[evicted, found]) == Rung(
        kind="evict", nodes=("n9",), why="n9 failed the checks"
    )
    assert asked(WELL, first, second, taken=[evicted, passed]).kind == "reattempt"


def test_proof_that_outlives_checks_evicts() -> None:
    """A node that passed its checks, and is proven again by the next failure, is evicted after all."""
    first = replace(HANG, proven=("n7",))
    second = again(first, proven=("n9",))
    third = again(second)
    taken = [
        TriedRung(kind="evict", attempt=2, nodes=("n7",)),
        TriedRung(kind="probe", attempt=3, nodes=("n9",)),
        TriedRung(kind="reattempt", attempt=3),
    ]

    assert asked(WELL, first, second, third, taken=taken).nodes == ("n9",)
    refused = [taken[0], replace(taken[1], outcome="refused"), taken[2]]
    assert asked(WELL, first, second, third, taken=refused).kind == "rollback"


def test_another_symptom_is_no_failure_of_the_eviction() -> None:
    """After an eviction for a hang, proof against another node for a crash is evicted on without checks."""
    first = replace(HANG, proven=("n7",))
    second = again(first, symptom="crash", proven=("n9",))

    rung = asked(WELL, first, second, taken=[TriedRung(kind="evict", attempt=2, nodes=("n7",))])

    assert (rung.kind, rung.nodes) == ("evict", ("n9",))


def test_a_job_that_ran_well_again_begins_anew() -> None:
    """Half an hour of good steps ends a trouble: what fails after it is a new one, and proof evicts at once."""
    first = replace(HANG, proven=("n7",))
    evicted = TriedRung(kind="evict", attempt=2, nodes=("n7",))
    soon = again(first, proven=("n9",), good_seconds=1_799.0)
    later = replace(soon, good_seconds=1_800.0)
    returned = replace(later, proven=("n7",))

    assert asked(WELL, first, soon, taken=[evicted]).kind == "probe"
    assert asked(WELL, first, later, taken=[evicted]).kind == "evict"
    assert asked(WELL, first, returned, taken=[evicted]).nodes == ("n7",)


def test_an_exception_everywhere_goes_straight_to_rollback() -> None:
    """With the same exception on every rank no machine leaves; the commit is named, and none is tried twice."""
    raised = replace(HANG, symptom="crash", cause="code", fault_class="exception_all_ranks", code_version="c")
    older = replace(WELL, number=0, code_version="z")

    first = asked(older, WELL, raised)
    back = TriedRung(kind="rollback", attempt=2, code_version="a")
    second = asked(older, WELL, raised, again(raised, code_version="a"), taken=[back])
    back_again = TriedRung(kind="rollback", attempt=3, code_version="z")
    third = asked(
        older, WELL, raised, again(raised, code_version="a"), replace(raised, number=4, code_version="z"),
        taken=[back, back_again],
    )  # fmt: skip

    assert (first.kind, first.code_version) == ("rollback", "a")
    assert (second.kind, second.code_version) == ("rollback", "z")
    assert (third.kind, third.person) == ("none", True)
    assert asked(raised).kind == "none"


def test_a_programs_error_on_one_rank_is_started_again_only_where_its_code_has_run_well() -> None:
    """The same start raises it again; code that ran well for hours may have met rare data, and is started once more."""
    raised = replace(HANG, symptom="crash", cause="code", fault_class="program_error", code_version="c")
    back = asked(WELL, raised)

    assert (back.kind, back.code_version) == ("rollback", "a")
    assert (asked(raised).kind, asked(raised).person) == ("none", True)
    for ran in (replace(raised, code_version="a"), replace(raised, good_seconds=7_200.0)):
        assert asked(WELL, ran).kind == "reattempt"
    assert asked(WELL, replace(raised, fault_class="exception_one_rank")).kind == "reattempt"


def test_code_that_fails_late_is_rolled_back_too() -> None:
    """An exception on every rank after two good hours goes back to other code than that which runs."""
    late = replace(HANG, fault_class="exception_all_ranks", good_seconds=7_200.0)

    assert asked(WELL, late).code_version == "a"


def test_code_is_not_rolled_back_and_forth() -> None:
    """Where old and new code raise the same after good hours each, as for bad data, a person is informed after the second."""
    late = replace(HANG, fault_class="exception_all_ranks", good_seconds=7_200.0)
    later = again(late, code_version="a")

    rung = asked(WELL, late, later, taken=[TriedRung(kind="rollback", attempt=2, code_version="a")])

    assert (rung.kind, rung.person) == ("none", True)


def test_code_that_ran_well_is_not_rolled_back_on_a_guess() -> None:
    """Where the failing code has run well before, the rung is passed over, and the last sentence says why."""
    older, same = replace(WELL, number=0, code_version="z"), replace(HANG, code_version="a")
    taken = [TriedRung(kind="reattempt", attempt=2), TriedRung(kind="replay", attempt=3)]

    assert asked(older, WELL, same, again(same), taken=taken[:1]).kind == "replay"
    assert "no rollback: a has run well" in asked(older, WELL, same, again(same), taken=taken).why


def test_unknown_code_is_not_rolled_back() -> None:
    """Where nobody knows what code runs, no commit is named."""
    unknown = replace(HANG, code_version=None)

    rung = asked(WELL, unknown, again(unknown), taken=[TriedRung(kind="reattempt", attempt=2)])

    assert rung.kind == "replay"


@pytest.mark.parametrize(
    ("seconds_ago", "acts"),
    [((10.0,), False), ((10.0, 301.0), False), ((10.0, 299.0), True), ((-5.0, 10.0), False), ((0.0, 300.0), True)],
)
def test_network_alerts_act_from_the_second_in_five_minutes(seconds_ago: tuple[float, ...], acts: bool) -> None:
    """One alert, or two that lie further apart, are tolerated; two of one node in five minutes act."""
    network = replace(HANG, cause="network", ended_at=None, proven=("n7",))
    alerts = [NetworkAlert(node="n7", at=AT - seconds) for seconds in seconds_ago]

    assert asked(WELL, network, alerts=alerts).kind == ("evict" if acts else "none")


def test_alerts_of_two_nodes_are_one_each() -> None:
    """Two nodes with one alert each are tolerated: it takes two of the same node."""
    network = replace(HANG, cause="network", ended_at=None)

    rung = asked(WELL, network, alerts=[NetworkAlert(node="n7", at=AT - 9), NetworkAlert(node="n8", at=AT - 8)])

    assert (rung.kind, rung.person) == ("none", False)


def test_alerts_without_proof_are_checked() -> None:
    """A node whose network alerts twice is checked, not evicted, and a node that is proven without alerts stays."""
    network = replace(HANG, cause="network", ended_at=None, proven=("n9",))

    rung = asked(WELL, network, alerts=[NetworkAlert(node="n7", at=AT - 9), NetworkAlert(node="n7", at=AT - 8)])

    assert (rung.kind, rung.nodes) == ("probe", ("n7",))


def test_a_broken_network_ends_with_a_person() -> None:
    """A job that the network ended is started again, once; a node that is named twice is checked, and none leaves."""
    network = replace(HANG, cause="network", proven=("n7",))
    retried = TriedRung(kind="reattempt", attempt=2)
    checked = TriedRung(kind="probe", attempt=3, nodes=("n7",))

    assert asked(WELL, network).kind == "reattempt"
    assert asked(WELL, network, again(network), taken=[retried]).kind == "probe"
    assert asked(WELL, network, again(network), taken=[retried, checked]).kind == "none"


@pytest.mark.parametrize("cause", ["storage", "platform", "data", "imbalance"])
def test_what_is_not_in_the_job_takes_nothing_from_it(cause: str) -> None:
    """Storage, platform, data and imbalance leave a running job alone, and start an ended one again, once."""
    ended = replace(HANG, cause=cause)
    retried = TriedRung(kind="reattempt", attempt=2)

    assert asked(WELL, replace(ended, ended_at=None)).kind == "none"
    assert asked(WELL, ended).kind == "reattempt"
    assert asked(WELL, ended, again(ended), taken=[retried]).kind == "none"


def test_a_slow_job_is_left_alone_without_proof() -> None:
    """A job that makes progress is not restarted on a guess; with proof its machine leaves."""
    slow = replace(HANG, symptom="slow", ended_at=None, suspects=("n7",))

    assert asked(WELL, slow).kind == "none"
    assert asked(WELL, replace(slow, proven=("n7",), suspects=())).kind == "evict"


def test_a_node_that_is_named_twice_is_checked() -> None:
    """A suspect without proof is restarted with; named in the next attempt as well, it is checked."""
    suspected = replace(HANG, suspects=("n7",))

    first = asked(WELL, suspected)
    second = asked(WELL, suspected, again(suspected), taken=[TriedRung(kind="reattempt", attempt=2)])
    other = asked(WELL, suspected, again(suspected, suspects=("n8",)), taken=[TriedRung(kind="reattempt", attempt=2)])

    assert first.kind == "reattempt"
    assert (second.kind, second.nodes) == ("probe", ("n7",))
    assert other.kind == "rollback"


def test_what_was_refused_is_not_proposed_again() -> None:
    """An eviction that a person refused is not proposed again, nor counted as one that did not help."""
    proven = replace(HANG, proven=("n7",))
    refused = TriedRung(kind="evict", attempt=2, nodes=("n7",), outcome="refused")

    assert asked(WELL, proven, taken=[refused]).kind == "reattempt"
    next_one = asked(WELL, proven, again(proven, proven=("n9",)), taken=[refused])
    assert (next_one.kind, next_one.nodes) == ("evict", ("n9",))


@pytest.mark.parametrize("outcome", ["pending", "done"])
def test_the_outcome_is_waited_for(outcome: str) -> None:
    """Until the job has started again, or the last thing has ended, nothing further is tried."""
    proven = replace(HANG, proven=("n7",))

    rung = asked(WELL, proven, taken=[TriedRung(kind="evict", attempt=2, nodes=("n7",), outcome=outcome)])  # type: ignore[arg-type]

    assert rung.kind == "none"
    assert "not" in rung.why


def test_a_replay_evicts_the_one_machine_it_names() -> None:
    """One machine in both bad groups leaves; several are checked first."""
    tried = [TriedRung(kind="reattempt", attempt=2), TriedRung(kind="rollback", attempt=3, code_version="a")]
    attempts = (WELL, HANG, again(HANG), replace(HANG, number=4, code_version="a"))
    one = TriedRung(kind="replay", attempt=4, found=("n13",))
    two = TriedRung(kind="replay", attempt=4, found=("n13", "n15"))

    assert asked(*attempts, taken=[*tried, one]).nodes == ("n13",)
    checks = asked(*attempts, taken=[*tried, two])
    assert (checks.kind, checks.nodes) == ("probe", ("n13", "n15"))
    checked = TriedRung(kind="probe", attempt=4, nodes=("n13", "n15"), found=("n15",))
    assert asked(*attempts, taken=[*tried, two, checked]).nodes == ("n15",)
    passed = replace(checked, found=())
    assert asked(*attempts, taken=[*tried, two, passed]).kind == "none"


def test_a_replay_that_cannot_be_is_told() -> None:
    """Without a layout, or with one that tells no machines apart, a person has to look, and reads why."""
    history = JobHistory(
        at=AT, attempts=(HANG, again(HANG)), taken=(TriedRung(kind="reattempt", attempt=2),), nodes=NODES
    )
    ambiguous = replace(history, layout=JobLayout(pipeline_nodes=6, data_parallel=4))

    assert "the job's layout on its nodes is unknown" in next_rung(history, BOUNDS).why
    assert "up to 2 machines in one intersection" in next_rung(ambiguous, BOUNDS).why


def verdict(kind: str, nodes: tuple[str, ...], *culprits: str) -> Verdict:
    """A verdict about a hang with an action."""
    return Verdict(
        symptom="hang", cause="machine", abstained=False,
        roots=(Root(root="r1", cause="machine", fault_class="never_entered"),),
        culprits=tuple(Culprit(root="r1", kind="node", id=node, probability=0.9) for node in culprits),
        action=Action(kind=kind, nodes=nodes),
    )  # fmt: skip


def test_only_an_eviction_is_proof() -> None:
    """Of a verdict that evicts, its action's nodes are proven and its other culprits suspects; a probe proves nobody."""
    evicts = build_attempt(2, verdict("evict", ("n7",), "n7", "n8"), code_version="b", ended_at=AT)
    probes = build_attempt(2, verdict("probe", ("n7",), "n7"))

    assert (evicts.proven, evicts.suspects) == (("n7",), ("n8",))
    assert (probes.proven, probes.suspects) == ((), ("n7",))
    assert (evicts.symptom, evicts.cause, evicts.fault_class) == ("hang", "machine", "never_entered")
    assert build_attempt(3, Verdict(symptom="healthy", cause="none", abstained=False)).symptom == ""
