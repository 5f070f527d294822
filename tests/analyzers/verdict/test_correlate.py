"""Findings argue, combine decides: what counts once, what picks from a set, what is an echo, and what may be done."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.knowledge import Knowledge
from analyzers.model.finding import Evidence, Finding
from analyzers.model.topology import Topology
from analyzers.model.verdict import instant, to_json
from analyzers.model.window import Window
from analyzers.verdict.build import MOST_SET_RANKS, compose
from analyzers.verdict.correlate import combine
from tests.support.argued_claims import (
    BARE,
    FAMILY_OF,
    GROUPS,
    HUNG,
    NODES,
    SHAPE,
    a_set,
    claim,
    decided,
    named,
    suspect,
)
from tests.support.sentences import numbers_in


@pytest.mark.parametrize(("log_by", "table_by", "agree"), [("n0", "n0", False), ("n0", "n2", True), ("n1", "n1", True)])
def test_two_families_from_one_sender_count_as_one(log_by: str, table_by: str, agree: bool) -> None:
    """What one other node's agent says twice of a node is no agreement; the accused's own agent, or two agents, may agree."""
    log = claim("crash", "device_fault", suspect(5, strength=0.7), senders=frozenset({log_by}))
    table = claim("process", "uninterruptible", suspect(5, strength=0.7), senders=frozenset({table_by}))
    verdict = decided(log, table)

    assert verdict.culprits[0].probability == (0.91 if agree else 0.7)
    assert (verdict.action.kind == "evict") is agree


@pytest.mark.parametrize(("picked_by", "picks"), [("n0", False), ("n1", True), ("n2", True)])
def test_one_sender_picks_nobody_from_its_own_set(picked_by: str, picks: bool) -> None:
    """Waits that one node alone reports, and a stack by the same node: the set stays whole."""
    waits = a_set(5, 9, senders=frozenset({"n0"}))
    pick = claim("stacks", "minority", suspect(5), narrows=True, senders=frozenset({picked_by}))

    assert (decided(waits, pick).culprits[0].ranks == (5,)) is picks


def test_each_of_two_that_are_picked_has_its_own_reason_and_evidence() -> None:
    """What is said of one node is not said of the other."""
    waits = a_set(5, 9, 13, fault_class="never_entered", cause="machine")
    pick = claim("stacks", "stuck_data_loader", suspect(5), suspect(9), cause="data", narrows=True, together=True)
    verdict = decided(waits, pick)
    shown = {one.id: one.text for one in verdict.evidence}

    assert named(verdict) == [("node n1", (5,)), ("node n2", (9,))]
    assert [one.why for one in verdict.culprits] == ["5 stands still", "9 stands still"]
    assert [{shown[item] for item in one.evidence} for one in verdict.culprits] == [{"seen at 5"}, {"seen at 9"}]


def test_the_other_claims_that_agree_are_known_by_their_class() -> None:
    """Waits leave three open, one of them is stopped: that is why it may be evicted, and what a person reads first."""
    waits = a_set(5, 9, 13, fault_class="never_entered", cause="machine")
    verdict = decided(waits, claim("process", "stopped", suspect(9, strength=0.95)))

    assert [(one.fault_class, one.agreeing) for one in verdict.roots] == [("never_entered", ("stopped",))]
    assert (verdict.action.kind, verdict.action.why) == ("evict", "its process is stopped")


def test_one_family_counts_once() -> None:
    """Two analyzers that read the same kind of evidence do not add up: the probability stays what the first one said."""
    twice = claim("ras", "behind", suspect(5, strength=0.8))
    verdict = decided(HUNG, twice)
    (root, *_) = verdict.culprits
    assert root.probability == 0.95


def test_what_one_process_table_says_twice_is_said_once() -> None:
    """Stopped at 0.8 and gone at 0.7, by one table: the surer one stands, in one entry for the machine."""
    verdict = decided(
        claim("process", "stopped", suspect(5, strength=0.8)), claim("process", "gone", suspect(5, strength=0.7))
    )
    assert named(verdict) == [("node n1", (5,))]
    assert verdict.culprits[0].probability == 0.8


def failed(fault_class: str, at: float | None = 103.0, **more: object) -> Finding:
    """What a log spells out of rank 4."""
    more = {"symptom": "crash", "cause": "code", "onset": at, "together": True, **more}
    return claim("crash", fault_class, suspect(4, strength=0.8), **more)


def ended(at: float | None) -> Finding:
    """A process of which nothing is known but that an agent found it ended then."""
    how = (Evidence(text="rank 9: process 109 is in state X", at=at),)
    return claim("process", "gone", suspect(9, strength=0.9, evidence=how))


@pytest.mark.parametrize(
    "fault_class", ["program_error", "exception_one_rank", "exit_unexplained", "process_crashed", "process_killed"]
)
@pytest.mark.parametrize(
    ("failed_at", "seen_at"), [(103.0, 103.3), (103.0, 134.0), (103.0, 102.5), (None, 95.0), (103.0, None)]
)
def test_a_process_that_ended_without_a_word_follows_from_a_failure_of_its_own_kind(
    fault_class: str, failed_at: float | None, seen_at: float | None
) -> None:
    """Its launcher ended it, and its agent missed how: the rank that failed is named alone."""
    found = decided(failed(fault_class, failed_at), ended(seen_at))
    assert [each.ranks for each in found.culprits] == [(4,)]
    assert any("rank 9" in each.id or each.id == "9" for each in found.rejected)


@pytest.mark.parametrize(
    "findings",
    [(ended(103.3),), (failed("exit_unexplained"), ended(95.0)), (failed("process_aborted"), ended(103.3))],
    ids=["alone", "seen to end before", "the others aborted"],
)
def test_a_process_that_ended_without_a_word_and_not_for_another_is_named(findings: tuple[Finding, ...]) -> None:
    """A rank that vanishes: its peers wait, abort, or fail after it."""
    assert (9,) in [each.ranks for each in decided(*findings).culprits]


def test_two_families_multiply_their_doubts() -> None:
    """Waits at 0.95 and process states at 0.95, independent of each other, leave a doubt of a quarter of a percent."""
    stopped = claim("process", "stopped", suspect(5, strength=0.95))
    verdict = decided(replace(HUNG, suspects=(suspect(5, strength=0.8),)), stopped)
    assert named(verdict) == [("node n1", (5,))]
    assert verdict.culprits[0].probability == 0.99  # 1 - 0.2 * 0.05, and never more than 0.99
    assert {item.analyzer for item in verdict.evidence} == {"hang", "process"}


def test_agreement_is_never_certainty() -> None:
    """However many agree, one percent of doubt remains."""
    more = [claim(name, "x", suspect(5, strength=0.99)) for name in ("process", "stacks")]
    assert decided(HUNG, *more).culprits[0].probability <= 0.99


def test_independent_roots_stay_apart() -> None:
    """Two ranks of two nodes that both stand still are two roots, each with its own label and probabilities."""
    both = claim("hang", "never_entered", suspect(5), suspect(20), together=True)
    verdict = decided(both)
    assert [(entry.root, entry.id) for entry in verdict.culprits] == [("r1", "n1"), ("r2", "n5")]


def test_stacks_pick_from_a_set() -> None:
    """Of four that the waits cannot tell apart the one whose stack stands outside communication is named."""
    minority = claim("stacks", "stuck_stack", suspect(6, strength=0.7), narrows=True)
    verdict = decided(a_set(4, 5, 6, 7), minority)
    assert [culprit.ranks for culprit in verdict.culprits] == [(6,)]
    assert {entry.id for entry in verdict.rejected} == {"4", "5", "7"}


def test_a_hint_below_even_odds_picks_nobody() -> None:
    """A stack that is less likely guilty than not leaves the set whole, and is reported as a reason."""
    hint = claim("stacks", "stuck_stack", suspect(6, strength=0.49), narrows=True)
    verdict = decided(a_set(4, 5, 6, 7), hint)
    assert [culprit.ranks for culprit in verdict.culprits] == [(4, 5, 6, 7)]
    assert verdict.rejected == ()


def test_process_states_pick_from_a_set_and_confirm() -> None:
    """The one of the set that is stopped is the culprit, and two families agree on it: enough to evict."""
    verdict = decided(
        a_set(4, 5, 6, 7, fault_class="never_entered", cause="machine"),
        claim("process", "stopped", suspect(6, strength=0.95)),
    )
    assert named(verdict) == [("node n1", (6,))]
    assert verdict.action.kind == "evict"


def test_a_finding_of_the_same_family_does_not_pick() -> None:
    """RAS and the recorder are one family: what one leaves open the other does not close."""
    same = claim("ras", "behind", suspect(6, strength=0.9), narrows=True)
    assert [culprit.ranks for culprit in decided(a_set(4, 5, 6, 7), same).culprits] == [(4, 5, 6, 7)]


def test_a_narrowing_claim_gives_a_certain_root_its_reason() -> None:
    """Who is proven stays who it is; the stack tells why, and its evidence is listed."""
    reason = claim("stacks", "data_loader", suspect(5, strength=0.7, why="rank 5 is in its data loader"), narrows=True)
    verdict = decided(HUNG, reason)
    assert named(verdict) == [("node n1", (5,))]
    assert "rank 5 is in its data loader" in verdict.culprits[0].why
    assert verdict.culprits[0].probability == 0.95


def test_a_narrowing_claim_that_meets_nobody_names_nobody_beside_a_root() -> None:
    """A minority stack elsewhere changes nothing where the waits end in somebody else."""
    elsewhere = claim("stacks", "stuck_stack", suspect(40, strength=0.9), narrows=True)
    assert named(decided(HUNG, elsewhere)) == named(decided(HUNG))


def test_stacks_alone_are_a_suspicion() -> None:
    """Where no waits are known a minority is all there is: weaker than as support, and to be probed."""
    verdict = decided(claim("stacks", "stuck_stack", suspect(6, strength=0.9), narrows=True))
    assert [culprit.ranks for culprit in verdict.culprits] == [(6,)]
    assert verdict.culprits[0].probability == 0.72
    assert verdict.action.kind == "probe"


def test_who_waits_for_the_root_is_an_echo() -> None:
    """A process in state D that waits for the culprit is a victim, and is reported so."""
    blocked = claim("process", "stopped", suspect(9, strength=0.8))
    verdict = decided(HUNG, blocked)
    assert named(verdict) == [("node n1", (5,))]
    assert [(entry.id, numbers_in(entry.why)) for entry in verdict.rejected] == [("9", [5])]


def test_a_failure_that_the_log_spells_out_goes_before_the_waits() -> None:
    """An exception on rank 9 explains that the others wait, wherever the recorder says that the waits end."""
    failed = claim("crash", "exception_one_rank", suspect(9, kind="code"), cause="code", symptom="crash")
    verdict = decided(HUNG, failed)
    assert (verdict.symptom, verdict.cause, named(verdict)) == ("crash", "code", [("code rank 9", (9,))])
    assert [entry.id for entry in verdict.rejected] == ["5"]
    assert verdict.action.kind == "reattempt"


def test_an_uncertain_log_does_not_overrule_the_waits() -> None:
    """Where the log leaves a set, the waits' culprit stands beside it."""
    unsure = claim(
        "crash", "silent", suspect(20, strength=0.3), suspect(30, strength=0.3), together=False, symptom="crash"
    )
    assert ("node n1", (5,)) in named(decided(unsure, replace(HUNG, victims=())))


def test_weak_claims_stand_only_where_nothing_else_does() -> None:
    """State D names a rank where no dump speaks, supports one that a dump names, and is silent beside another."""
    blocked = claim("process", "uninterruptible", suspect(9, strength=0.65))
    assert [culprit.ranks for culprit in decided(blocked).culprits] == [(9,)]
    assert named(decided(replace(HUNG, victims=()), blocked)) == [("node n1", (5,))]
    agreeing = claim("process", "uninterruptible", suspect(5, strength=0.65))
    assert decided(HUNG, agreeing).culprits[0].probability == pytest.approx(0.9825)


def test_a_running_job_is_not_accused_by_weak_evidence() -> None:
    """Two snapshots show progress: neither a minority stack nor a state D makes a culprit."""
    running = claim("hang", "running", symptom="healthy", cause="none")
    weak = claim("process", "uninterruptible", suspect(9, strength=0.65))
    stack = claim("stacks", "stuck_stack", suspect(6, strength=0.9), narrows=True)
    verdict = decided(running, weak, stack)
    assert (verdict.symptom, verdict.cause, verdict.culprits, verdict.abstained) == ("healthy", "none", (), False)
    assert verdict.action.kind == "none"


def test_several_guilty_ranks_of_a_node_are_one_machine() -> None:
    """Four ranks of one node stand still: one culprit, one root, all four ranks."""
    four = claim("hang", "never_entered", *(suspect(rank) for rank in (4, 5, 6, 7)), together=True)
    verdict = decided(four)
    assert named(verdict) == [("node n1", (4, 5, 6, 7))]
    assert len(verdict.roots) == 1
    assert verdict.action.nodes == ("n1",)


def test_without_placement_the_verdict_is_about_ranks() -> None:
    """No host is known: the rank is named, and the action speaks of ranks."""
    verdict = decided(HUNG, topology=BARE)
    assert named(verdict) == [("rank 5", (5,))]
    assert (verdict.action.kind, verdict.action.nodes, verdict.action.ranks) == ("evict", (), (5,))


def test_a_set_that_is_a_process_group_is_called_by_its_name() -> None:
    """Exactly the members of a communicator: kind group, with the communicator's name."""
    verdict = decided(a_set(4, 5, 6, 7))
    assert (verdict.culprits[0].kind, verdict.culprits[0].id) == ("group", "7 (tp)")


def test_a_set_of_one_stage_is_a_stage() -> None:
    """No communicator has just these members, but all are of one pipeline stage."""
    staged = Topology(tuple(range(64)), NODES, GROUPS, {rank: {"pp": rank // 16} for rank in range(64)})
    verdict = decided(a_set(17, 18, 20), topology=staged)
    assert (verdict.culprits[0].kind, verdict.culprits[0].ranks) == ("stage", (17, 18, 20))


def test_a_set_that_excludes_hardly_anybody_names_nobody() -> None:
    """A set of more than eight that is more than half the job abstains, and lists whom it considered."""
    wide = a_set(*range(40), fault_class="never_entered", cause="machine", missing=("the stacks would decide",))
    verdict = decided(wide)
    assert (verdict.abstained, verdict.culprits) == (True, ())
    assert len(verdict.suspects) == 40 + 1
    assert verdict.missing[0].what == "the stacks would decide"
    narrow = a_set(*range(MOST_SET_RANKS), fault_class="never_entered", cause="machine")
    assert not decided(narrow, topology=Topology(tuple(range(9)))).abstained


def test_the_chains_end_in_who_is_named() -> None:
    """Ways of victims that end elsewhere are left out of a verdict that names somebody."""
    reported = replace(HUNG, chains=((0, 1, 5), (2, 3)))
    assert decided(reported).victims.chains == ("0 → 1 → 5",)


RANKS = st.sets(st.integers(0, 15), min_size=1, max_size=4)


@st.composite
def claims(draw: st.DrawFn) -> Finding:
    """Any claim that an analyzer might make."""
    analyzer = draw(st.sampled_from(sorted(FAMILY_OF)))
    strengths = st.floats(0.01, 0.99)
    suspects = [suspect(rank, strength=draw(strengths)) for rank in sorted(draw(RANKS))]
    cause = draw(st.sampled_from(["machine", "code", "network", "unknown"]))
    together, narrows = draw(st.booleans()), analyzer in ("stacks", "ras") and draw(st.booleans())
    fault_class = draw(
        st.sampled_from(["never_entered", "no_dump", "stopped", "device_or_network", "uninterruptible", "desync"])
    )
    return claim(
        analyzer,
        fault_class,
        *suspects,
        cause=cause,
        together=together,
        narrows=narrows,
        victims=tuple(sorted(draw(RANKS))),
    )


def _per_root(entries: Iterable[tuple[str, float]]) -> dict[str, float]:
    return {
        root: sum(p for _, p in found) for root, found in itertools.groupby(sorted(entries), key=lambda pair: pair[0])
    }


@given(
    st.lists(claims(), max_size=4),
    st.sampled_from([SHAPE, BARE, Topology(tuple(range(16)), {r: f"n{r}" for r in range(16)})]),
)
@settings(max_examples=150)
def test_probabilities_of_a_root_sum_to_one_with_unknown(found: list[Finding], shape: Topology) -> None:
    """Every root that is considered has suspects and an unknown whose probabilities are one together."""
    verdict = decided(*found, topology=shape)
    sums = _per_root((entry.root, entry.probability) for entry in verdict.suspects)
    assert set(sums) == {root.root for root in verdict.roots}
    assert all(total == pytest.approx(1.0, abs=0.002) for total in sums.values()), sums
    assert all(0 <= entry.probability <= 1 for entry in (*verdict.suspects, *verdict.culprits))


@pytest.mark.system
@given(st.lists(claims(), max_size=5), st.permutations(sorted(FAMILY_OF)))
@settings(max_examples=150)
def test_equal_verdicts_are_equal_bytes_whatever_the_order_of_claims(found: list[Finding], order: list[str]) -> None:
    """The analyzers in another order, each with its own claims in its own, give the same document, byte for byte."""
    other = sorted(found, key=lambda one: order.index(one.analyzer))
    assert to_json(decided(*other)) == to_json(decided(*found))


@given(st.lists(claims(), max_size=5))
@settings(max_examples=150)
def test_the_document_keeps_its_promises(found: list[Finding]) -> None:
    """Culprits are suspects, their evidence is listed, only certain machines are evicted, no culprit is a victim."""
    verdict = decided(*found)
    listed = {item.id for item in verdict.evidence}
    assert all(set(culprit.evidence) <= listed for culprit in (*verdict.culprits, *verdict.suspects))
    assert {culprit.root for culprit in verdict.culprits} <= {root.root for root in verdict.roots}
    assert verdict.abstained == (not verdict.culprits and verdict.symptom != "healthy")
    if verdict.action.kind == "evict":
        certain = {culprit.id for culprit in verdict.culprits if culprit.kind == "node" and culprit.probability >= 0.85}
        assert set(verdict.action.nodes) <= certain
        machines = {root.root for root in verdict.roots if root.cause == "machine"}
        assert any(culprit.root in machines for culprit in verdict.culprits)
    guilty = {rank for culprit in verdict.culprits for rank in culprit.ranks}
    assert not guilty & set(_numbers(verdict.victims.ranks))


def _numbers(text: str) -> Iterable[int]:
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def test_the_first_symptom_is_the_earliest_and_an_onset_the_first() -> None:
    """Of what the claims call first, the one with the earliest time is reported; times that are none are left out."""
    early = replace(HUNG, onset=50.0, first_symptom=Evidence(text="early", at=50.0, rank=5))
    late = claim("process", "stopped", suspect(5), onset=90.0, first_symptom=Evidence(text="late", at=90.0, rank=7))
    verdict = decided(late, early)
    assert verdict.first_symptom is not None
    assert (verdict.first_symptom.text, verdict.first_symptom.rank) == ("early", 5)
    assert (verdict.onset, verdict.first_symptom.at) == ("1970-01-01T00:00:50.000Z",) * 2
    assert (instant(None), instant(-1.0), instant(1e300)) == (None, None, None)


def test_knowledge_has_its_hash_in_the_document() -> None:
    """Two knowledges are two documents, by hash."""
    shape = Topology()
    found = compose(combine([], shape), Window(), shape, Knowledge(hash="sha256:abc"))
    assert found.knowledge == "sha256:abc"
