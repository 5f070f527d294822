"""Each class of hang in a case small enough to read: what a few dumps show, and what must be made of it."""

from __future__ import annotations

import msgspec
import pytest

from analyzers.diagnosis.hang.desync import elements
from analyzers.diagnosis.hang.hang import STACKS_ALONE, STACKS_MISSING
from collectors.records import FlightRecorderDump, Members, Placement, StackDump
from tests.support.hand_made import COMPLETED, SCHEDULED, STARTED, Entry, call, calls, dump, group, transfer
from tests.support.hung_job import START_S, WORLD, absent_rank, found, job, only, suspects
from tests.support.sentences import numbers_in


def test_no_dumps_no_claim() -> None:
    """Without flight recorders this analyzer is silent."""
    assert found() == []
    assert found(Placement(source="hosts.txt", ranks=Members.of([0, 1]), nodes=("a", "b"))) == []


@pytest.mark.parametrize("state", [SCHEDULED, STARTED])
def test_who_launched_nothing_while_peers_wait_never_entered(state: int) -> None:
    """The rank that others wait for and that waits for nobody is the culprit, with timing or without."""
    finding = only(*absent_rank(state))
    assert (finding.fault_class, finding.cause, suspects(finding)) == ("never_entered", "machine", (2,))
    assert (finding.victims, finding.together) == ((0, 1, 3), True)
    assert numbers_in(finding.suspects[0].why) == [
        2,
        0,
        1,
        3,
        4,
        0,
    ]  # itself; who waits for it, in which call, of which group
    assert finding.first_symptom is not None
    assert finding.first_symptom.source == "_dump_0"
    assert finding.onset == pytest.approx(START_S + 0.03, abs=0.001)


def test_waits_are_followed_through_groups() -> None:
    """Rank 0 waits for 1 in one group, 1 for 3 in another: 3 is the culprit and 1 its victim."""
    groups = (group("a", 0, 1), group("b", 1, 3), group("c", 2, 3))
    finding = only(
        dump(0, [*calls(1, group="a"), call(2, 0, group="a")], groups),
        dump(1, [*calls(1, group="a"), *calls(1, group="b"), call(2, 0, group="b")], groups),
        dump(2, [*calls(1, group="c"), call(2, 0, group="c")], groups),
        dump(3, [*calls(1, group="b"), *calls(1, group="c")], groups),
    )
    assert (suspects(finding), finding.victims) == ((3,), (0, 1, 2))
    assert (0, 1, 3) in finding.chains


def test_what_was_launched_after_the_wait_began_is_not_what_holds_a_rank_up() -> None:
    """An older wait on one stream explains why a later one on another has not begun; the older one is followed."""
    groups = (group("a", 0, 1), group("b", 0, 2))
    finding = only(
        dump(0, [call(1, 0, group="a"), call(1, 0, group="b")], groups),
        dump(1, calls(0, group="a"), groups, status={0: (1, 1)}),
        dump(2, [call(1, 0, group="b")], groups),
    )
    assert suspects(finding) == (1,)
    assert finding.victims == (0, 2)


def test_a_peers_end_proves_what_a_rank_lost() -> None:
    """Ranks 0, 1 and 3 saw collective 4 end, which every member's device must have reached: rank 2's record is wrong."""
    others = (*calls(1, 2, 3, 4), call(5, 0))
    finding = only(*job(others, others, (*calls(1, 2, 3), call(4, 0)), others))
    assert (finding.fault_class, suspects(finding)) == ("completion_lost", (2,))
    assert numbers_in(finding.suspects[0].why)[:2] == [2, 1]


@pytest.mark.parametrize("operation", ["broadcast", "reduce"])
def test_the_end_of_a_broadcast_proves_nothing_of_the_others(operation: str) -> None:
    """A root may leave before its peers arrive: the rank that is still in it is not one that lost track of it."""
    others = (*calls(1, 2, 3), call(4, COMPLETED, operation), call(5, 0))
    claims = found(*job(others, others, (*calls(1, 2, 3), call(4, 0, operation)), others))
    assert "completion_lost" not in {finding.fault_class for finding in claims}


def test_launched_by_all_and_ended_by_none_is_device_or_network() -> None:
    """Without timing the dumps cannot tell a stuck device from the network: a set, nobody by name."""
    waits = (*calls(1, 2, 3), call(4, 0))
    finding = only(*job(waits, waits, waits, waits))
    assert (finding.fault_class, finding.cause, suspects(finding)) == ("device_or_network", "unknown", (0, 1, 2, 3))
    assert not finding.together
    assert sum(suspect.strength for suspect in finding.suspects) < 1
    assert "TORCH_NCCL_ENABLE_TIMING" in finding.missing[0]


def test_all_started_and_none_ended_is_the_networks_positive_proof() -> None:
    """Every device is in the operation: it is the network, still as a set to probe."""
    waits = (*calls(1, 2, 3), call(4, STARTED))
    finding = only(*job(waits, waits, waits, waits))
    assert (finding.fault_class, finding.cause, suspects(finding)) == ("device_or_network", "network", (0, 1, 2, 3))


def test_the_one_device_that_never_started_is_stuck() -> None:
    """Three devices are in the operation that all four hosts launched: the fourth device holds it up."""
    waits, late = (*calls(1, 2, 3), call(4, STARTED)), (*calls(1, 2, 3), call(4, SCHEDULED))
    finding = only(*job(waits, late, waits, waits))
    assert (finding.fault_class, finding.cause, suspects(finding)) == ("device_stuck", "machine", (1,))


def test_one_started_among_many_scheduled_accuses_nobody_alone() -> None:
    """Where most devices did not start it the minority that did is no proof: the members stay a set."""
    waits, late = (*calls(1, 2, 3), call(4, STARTED)), (*calls(1, 2, 3), call(4, SCHEDULED))
    finding = only(*job(waits, late, late, late))
    assert (finding.fault_class, suspects(finding)) == ("device_or_network", (0, 1, 2, 3))


def _mixed(odd: Entry, usual: Entry, *more: Entry) -> list[FlightRecorderDump]:
    usually = (*calls(1, 2), usual, *more)
    return job(usually, (*calls(1, 2), odd), usually, usually)


def test_another_operation_at_the_same_number_is_code() -> None:
    """Rank 1 gathers where the others reduce: the code's doing, and no machine's."""
    finding = only(*_mixed(call(3, 0, "_all_gather_base"), call(3, 0)))
    assert (finding.fault_class, finding.cause, suspects(finding)) == ("desync", "code", (1,))
    assert finding.suspects[0].kind == "code"
    assert "rank 1 called _all_gather_base" in finding.suspects[0].why


def test_a_size_that_the_operation_cannot_bear_is_code() -> None:
    """An all-reduce of another number of elements is a desync, though the operation agrees."""
    finding = only(*_mixed(call(3, 0, sizes="[[4]]"), call(3, 0, sizes="[[8]]")))
    assert (finding.fault_class, suspects(finding)) == ("desync", (1,))
    assert "of 4 elements" in finding.suspects[0].why


@pytest.mark.parametrize("operation", ["all_to_all", "all_gather", "gather", "scatter", "reduce_scatter"])
def test_uneven_shards_are_no_desync(operation: str) -> None:
    """All-to-all and list forms may differ in size between members: that is their purpose."""
    claims = found(*_mixed(call(3, 0, operation, sizes="[[4]]"), call(3, 0, operation, sizes="[[8]]")))
    assert "desync" not in {finding.fault_class for finding in claims}


def test_another_shape_of_as_many_elements_is_no_desync() -> None:
    """Sixteen elements are sixteen, in one row or in two."""
    claims = found(*_mixed(call(3, 0, sizes="[[2,8]]"), call(3, 0, sizes="[[16]]")))
    assert "desync" not in {finding.fault_class for finding in claims}
    assert (elements("[[2,8]]"), elements("[[2,8],[16]]"), elements("[[0]]"), elements("[[]]")) == (16, 32, 0, 1)


def test_who_skipped_one_is_ahead_and_said_to_be() -> None:
    """Rank 1 calls at number 3 what the others call at 4: the minority is ahead, and the sentence says it."""
    finding = only(*_mixed(call(3, 0, "_all_gather_base"), call(3, 0), call(4, 0, "_all_gather_base")))
    assert (finding.fault_class, suspects(finding)) == ("desync", (1,))
    assert finding.suspects[0].why.endswith("it skipped one and is ahead")


def test_two_members_that_disagree_are_both_meant() -> None:
    """Without a majority nobody says who is odd: both are looked at, and the comparison by hand is asked for."""
    pair = (group("0", 0, 1),)
    finding = only(dump(0, [call(1, 0)], pair), dump(1, [call(1, 0, "_all_gather_base")], pair))
    assert (finding.fault_class, suspects(finding)) == ("desync", (0, 1))
    assert "no majority" in finding.missing[0]


def test_two_groups_entered_in_opposite_order_are_a_deadlock_of_the_code() -> None:
    """Rank 0 is in a and waits for 1, which is in b and waits for 0: code, never a machine."""
    groups = (group("a", 0, 1), group("b", 0, 1))
    finding = only(
        dump(0, [*calls(1, group="a"), *calls(1, group="b"), call(2, 0, group="a")], groups),
        dump(1, [*calls(1, group="a"), *calls(1, group="b"), call(2, 0, group="b")], groups),
    )
    assert (finding.fault_class, finding.cause, suspects(finding)) == ("deadlock", "code", (0, 1))
    assert "in opposite order" in finding.suspects[0].why


def gloo(sequence: int, group: str, *, retired: bool) -> Entry:
    """A collective of gloo, which knows no other end than that it is retired."""
    return Entry("gloo:all_reduce", sequence, group=group, state=SCHEDULED, retired=retired)


def test_who_has_left_an_operation_closes_no_circle() -> None:
    """Rank 0 got out of a's all_reduce before the others and waits in b for them: nobody waits for rank 0."""
    groups = (group("a", 0, 1, 2), group("b", 0, 1, 2))
    early = dump(0, [gloo(1, "a", retired=True), gloo(1, "b", retired=False)], groups)

    findings = found(early, *(dump(rank, [gloo(1, "a", retired=False)], groups) for rank in (1, 2)))

    assert "deadlock" not in {finding.fault_class for finding in findings}


def test_a_group_of_all_that_left_a_dump_is_everybodys() -> None:
    """gloo lists no members: the rank without a dump belongs to the groups that all others use, and is who they wait for."""
    placed = Placement(ranks=Members.of(range(4)), nodes=("n0", "n0", "n1", "n1"), world_size=4)
    before = [gloo(1, "a", retired=True), gloo(1, "b", retired=True)]
    early = dump(0, [*before, gloo(2, "a", retired=True), gloo(2, "b", retired=False)])

    finding = only(placed, early, *(dump(rank, [*before, gloo(2, "a", retired=False)]) for rank in (1, 2)))

    assert (finding.fault_class, suspects(finding)) == ("no_dump", (3,))


def test_transfers_in_a_circle_are_a_set() -> None:
    """Each sends to the next and none receives: somebody of the circle, and stacks would tell who."""
    ring = (group("0", 0, 1, 2),)
    finding = only(*(dump(rank, [*calls(1), transfer(f"send {rank}->{(rank + 1) % 3}", 2)], ring) for rank in range(3)))
    assert (finding.fault_class, finding.cause, suspects(finding)) == ("deadlock", "unknown", (0, 1, 2))
    assert not finding.together


def test_a_transfer_waits_for_its_other_end() -> None:
    """Rank 0 sends and rank 1, which launched no receive, is whom it waits for; groups number ranks on their own."""
    pair = (group("pp", 4, 7), group("0", *range(8)))
    finding = only(
        dump(4, [*calls(1), transfer("send 0->1", 2, group="pp")], pair),
        dump(7, [*calls(1)], pair),
    )
    assert suspects(finding)[0] == 7
    assert {4, 7} <= set(numbers_in(finding.suspects[0].why))


def test_a_transfer_that_both_ends_reached_is_stuck_between_them() -> None:
    """Sender and receiver are both in it: the device of one or what lies between, both as a set."""
    pair = (group("0", 0, 1),)
    finding = only(
        dump(0, [*calls(1), transfer("send 0->1", 2)], pair),
        dump(1, [*calls(1), transfer("recv 1<-0", 9)], pair),
    )
    assert (finding.fault_class, suspects(finding)) == ("device_or_network", (0, 1))


def test_a_recorder_without_entries_whose_peers_wait_never_formed() -> None:
    """A rank whose dump is empty launched nothing at all: the communicator never formed on it."""
    finding = only(*job((call(1, 0),), (call(1, 0),), (), (call(1, 0),)))
    assert (finding.fault_class, finding.cause, suspects(finding)) == ("init", "machine", (2,))


def test_an_empty_dump_of_a_rank_that_launched_before_is_no_init() -> None:
    """Its status counters show launches: a dump of active entries only is empty where nothing is outstanding."""
    records = job((call(9, 0),), (call(9, 0),), (), (call(9, 0),))
    records[2] = dump(2, (), WORLD, status={0: (8, 8)})
    assert (only(*records).fault_class, suspects(only(*records))) == ("never_entered", (2,))


def test_nobody_recorded_anything_at_all() -> None:
    """Every recorder is empty: no communicator ever formed, and nobody is named by silence."""
    finding = only(*job((), (), (), ()))
    assert (finding.fault_class, finding.cause, finding.suspects) == ("init", "unknown", ())
    assert "stacks" in finding.missing[0]


def test_nothing_outstanding_is_outside() -> None:
    """All that was launched has ended: the wait is in a store, storage or a kernel, and nobody is the culprit by silence."""
    finding = only(*job(*[calls(1, 2, 3)] * 4))
    assert (finding.fault_class, finding.cause, finding.suspects) == ("outside", "unknown", ())


def test_stacks_that_are_there_are_not_asked_for() -> None:
    """Stacks would tell where ranks are that no collective holds; who has all of them is sent for something else."""
    dumps = job(*[calls(1, 2, 3)] * 4)
    stacks = [StackDump(rank=rank, at=START_S, pid=rank) for rank in range(4)]

    assert only(*dumps, *stacks[:3]).missing == (STACKS_MISSING,)
    assert only(*dumps, *stacks).missing == (STACKS_ALONE,)


def test_the_rank_without_a_dump_that_others_wait_for_is_named() -> None:
    """The guilty rank is often the one that left no dump; a missing dump alone is weaker than a record."""
    finding = only(*(one for one in absent_rank() if one.rank != 2))
    assert (finding.fault_class, suspects(finding), finding.together) == ("no_dump", (2,), True)
    assert finding.suspects[0].strength < 0.85  # not enough to evict by itself


def test_a_missing_dump_that_nothing_waits_on_blames_nobody() -> None:
    """Rank 3's dump is lost, but what it must have reached has ended: only rank 2 is awaited in its own pair."""
    groups = (group("a", 0, 2), group("b", 1, 3))
    finding = only(
        dump(0, [*calls(1, group="a"), call(2, 0, group="a")], groups),
        dump(1, calls(1, group="b"), groups, status={0: (1, 1)}),
        dump(2, calls(1, group="a"), groups),
    )
    assert suspects(finding) == (2,)


def test_beside_a_proven_culprit_a_missing_dump_merely_is_not_excluded() -> None:
    """Rank 2's own record shows that it stopped; rank 3, without a dump, could have as well."""
    claims = {finding.fault_class: finding for finding in found(*absent_rank()[:3])}
    assert suspects(claims["never_entered"]) == (2,)
    assert suspects(claims["no_dump"]) == (3,)
    assert claims["no_dump"].suspects[0].strength <= 0.25
    assert not claims["no_dump"].together


def test_a_truncated_dump_proves_nothing_by_what_it_lacks() -> None:
    """The same four dumps, one cut: what rank 2's lacks may stand in the lost part, so that it is no better than none."""
    records = absent_rank()
    records[2] = msgspec.structs.replace(records[2], truncated=True)
    finding = only(*records)
    assert (finding.fault_class, suspects(finding)) == ("no_dump", (2,))


def test_a_truncated_dump_is_believed_in_what_it_says() -> None:
    """Rank 0's dump was cut, but the wait that it shows counts as any other."""
    records = absent_rank()
    records[0] = msgspec.structs.replace(records[0], truncated=True)
    finding = only(*records)
    assert (finding.fault_class, suspects(finding)) == ("never_entered", (2,))


def test_an_operation_whose_peers_nobody_names_is_opaque() -> None:
    """A rank in a transfer without peers waits for somebody unknown: it is not the end of the waits, and not a culprit."""
    records = absent_rank()
    strange = Entry("nccl:custom", 0, state=SCHEDULED, is_p2p=True, p2p_seq=4)
    records[2] = dump(2, (*calls(1, 2, 3), strange), WORLD)
    finding = only(*records)
    assert (finding.fault_class, finding.cause, finding.suspects) == ("outside", "unknown", ())
    assert "[2]" in finding.missing[0]


def test_many_that_stop_at_once_share_a_cause() -> None:
    """Three of four ranks stand still without waiting for anyone: what they share would decide, not their machines."""
    finding = only(*job((*calls(1, 2), call(3, 0)), calls(1, 2), calls(1, 2), calls(1, 2)))
    assert (finding.fault_class, finding.suspects) == ("outside", ())
    assert numbers_in(finding.missing[0])[:1] == [3]
