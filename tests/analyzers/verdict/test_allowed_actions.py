"""What may be done about a verdict: what is proof enough to evict, and what is only tested."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzers.model.window import Window
from analyzers.verdict.build import compose
from analyzers.verdict.correlate import combine
from collectors.records import StackDump
from tests.support.argued_claims import (
    BARE,
    HUNG,
    SHAPE,
    a_set,
    claim,
    decided,
    knowledge,
    named,
    suspect,
)


@pytest.mark.parametrize("fault_class", ["never_entered", "completion_lost", "init", "device_stuck"])
def test_the_machines_own_record_is_proof_enough(fault_class: str) -> None:
    """One rank whose own record convicts it is evicted, with what proves it."""
    verdict = decided(claim("hang", fault_class, suspect(5, strength=0.95)))
    assert (verdict.action.kind, verdict.action.nodes) == ("evict", ("n1",))
    assert verdict.action.why


def test_a_missing_dump_alone_is_probed() -> None:
    """The dump may be missing through our own fault: named, looked at first, not evicted."""
    verdict = decided(claim("hang", "no_dump", suspect(5, strength=0.8)))
    assert named(verdict) == [("node n1", (5,))]
    assert (verdict.action.kind, verdict.action.nodes) == ("probe", ("n1",))


def test_a_missing_dump_that_another_family_explains_is_evicted() -> None:
    """No dump, and no process on the node: two families agree."""
    gone = claim("process", "gone", suspect(5, strength=0.85))
    assert decided(claim("hang", "no_dump", suspect(5, strength=0.8)), gone).action.kind == "evict"


def test_doubt_is_not_enough_to_evict() -> None:
    """The right class at too low a probability: look first."""
    assert decided(claim("hang", "never_entered", suspect(5, strength=0.8))).action.kind == "probe"


@pytest.mark.parametrize("fault_class", ["device_or_network", "never_entered", "deadlock"])
@pytest.mark.parametrize("cause", ["machine", "unknown", "network"])
def test_a_set_is_probed_never_evicted(fault_class: str, cause: str) -> None:
    """Whatever the class: one of several is guilty and three of four would be innocent."""
    verdict = decided(a_set(4, 5, 6, 7, fault_class=fault_class, cause=cause))
    assert verdict.action.kind == "probe"


@pytest.mark.parametrize("fault_class", ["device_or_network", "deadlock"])
def test_a_stopped_process_is_why_the_others_wait_for_it(fault_class: str) -> None:
    """Stopped inside a collective that all have entered: the waits alone leave the cause open, its state does not."""
    waits = a_set(4, 5, 6, 7, fault_class=fault_class)
    verdict = decided(waits, claim("process", "stopped", suspect(5, strength=0.95)))
    assert (verdict.cause, verdict.roots[0].fault_class) == ("machine", "stopped")
    assert (verdict.action.kind, verdict.action.nodes) == ("evict", ("n1",))
    traced = decided(waits, claim("process", "stopped", suspect(5, strength=0.5)))
    assert (traced.cause, traced.action.kind) == ("unknown", "probe"), "py-spy and gdb stop a process for a moment, too"


@pytest.mark.parametrize("fault_class", ["desync", "deadlock", "exception_all", "never_entered"])
def test_code_is_never_evicted(fault_class: str) -> None:
    """A cause in the code takes no machine, however sure it is and whoever agrees."""
    culprit = suspect(5, kind="code", strength=0.99)
    supporting = claim("process", "stopped", suspect(5, strength=0.95))
    for findings in ([], [supporting]):
        verdict = decided(claim("hang", fault_class, culprit, cause="code"), *findings)
        assert verdict.action.kind == "rollback"
        assert verdict.action.nodes == ()


def test_too_many_nodes_are_never_evicted() -> None:
    """Five nodes of sixteen at once share a cause that is none of them; four are the most."""
    most = [suspect(4 * node) for node in range(5)]
    assert decided(claim("hang", "never_entered", *most, together=True)).action.kind == "probe"
    assert decided(claim("hang", "never_entered", *most[:4], together=True)).action.kind == "evict"


@pytest.mark.parametrize(("loose", "says"), [(1, "1 stack dump names no rank"), (4, "4 stack dumps name no rank")])
def test_stacks_without_a_rank_are_missed(loose: int, says: str) -> None:
    """Stacks whose files name no rank decide nothing: the verdict asks for better names and counts them by themselves."""
    stacks = [StackDump(pid=9976 + n, source=f"pid_{9976 + n}.json") for n in range(loose)]
    bare = compose(combine((), BARE), Window.build(stacks), BARE, knowledge())
    hung = compose(combine((HUNG,), SHAPE), Window.build([*stacks, StackDump(rank=5)]), SHAPE, knowledge())

    assert [one.what for one in bare.missing][-1] == f"{says}: name the files stacks_rankN.json"
    assert bare.coverage.sources == {"stacks_without_rank": loose}
    assert hung.coverage.sources == {"stacks": 1, "stacks_without_rank": loose}
    assert [one.matters for one in hung.missing if says in one.what] == [False]


def test_beside_a_proven_one_the_others_are_probed() -> None:
    """A rank without a dump beside a convicted one is named in its own right and not evicted with it."""
    beside = claim("hang", "no_dump", suspect(40, strength=0.2), together=False)
    verdict = decided(replace(HUNG, victims=()), beside)
    assert verdict.action.nodes == ("n1",)
    assert "test the others" in verdict.action.why


@pytest.mark.parametrize(
    ("cause", "kind"), [("storage", "none"), ("platform", "restart_job"), ("data", "none"), ("network", "probe")]
)
def test_what_is_no_machines_fault_takes_no_machine(cause: str, kind: str) -> None:
    """Storage, platform, data and network have their own answers, none of which is an eviction."""
    verdict = decided(claim("crash", "x", suspect(5, kind="platform"), cause=cause, symptom="crash"))
    assert (verdict.action.kind, verdict.action.nodes) == (kind, ())


def test_a_nodes_own_disk_is_not_said_to_be_no_machines_fault() -> None:
    """Lines of a disk that failed name its node: the advice is to look at that disk."""
    disk = claim("hardware", "disk_error", suspect(kind="node", node="n1", strength=0.45), cause="storage")
    action = decided(disk).action
    assert (action.kind, "that disk" in action.why) == ("none", True)
    assert "no machine" not in action.why


def test_nothing_is_done_where_nothing_is_named() -> None:
    """No claim at all: unknown, abstained, no action."""
    verdict = decided()
    assert (verdict.symptom, verdict.abstained, verdict.action.kind) == ("unknown", True, "none")
    assert verdict.missing


@pytest.mark.parametrize(
    ("fault_class", "cause", "kind", "says"),
    [
        ("file_system_lapse", "storage", "reattempt", "that path"),
        ("file_system_error", "storage", "none", "space"),
        ("program_error_everywhere", "code", "none", "mend"),
        ("device_assert", "code", "none", "index out of range"),
        ("exception_some_ranks", "code", "reattempt", "read it"),
        ("exception_all_ranks", "code", "reattempt", "read it"),
        ("exception_all_ranks", "storage", "none", "file system"),
        ("device_fault_all_ranks", "code", "reattempt", "compute-sanitizer"),
        ("crashed_all_ranks", "code", "reattempt", "native stack"),
        ("aborted_all_ranks", "code", "reattempt", "native stack"),
        ("segfault", "code", "reattempt", "native stack"),
    ],
)
def test_older_code_is_no_answer_where_no_version_is_known(fault_class: str, cause: str, kind: str, says: str) -> None:
    """A crash says what is to be looked at; whether another version ran well, only a job's past shows (docs/ladder.md)."""
    of = "storage" if cause == "storage" else "code"
    action = decided(claim("crash", fault_class, suspect(5, kind=of), cause=cause, symptom="crash")).action

    assert (action.kind, action.nodes) == (kind, ())
    assert says in action.why


def test_the_node_of_an_error_of_its_device_is_tested() -> None:
    """Where the node of the rank is known, as by its launcher's table, it is named: nobody is asked for it."""
    met = claim("crash", "device_fault", suspect(5, strength=0.5), cause="unknown", symptom="crash")
    known, unknown = decided(met).action, decided(met, topology=BARE).action

    assert [(one.kind, one.ranks) for one in (known, unknown)] == [("probe", (5,))] * 2
    assert (known.nodes, unknown.nodes) == (("n1",), ())


@pytest.mark.parametrize(("fault_class", "kind"), [("exception_one_rank", "reattempt"), ("program_error", "none")])
def test_what_the_same_code_raises_again_is_mended_and_not_started_again(fault_class: str, kind: str) -> None:
    """A program's own error on one rank: no machine is touched, and the advice says what to do instead."""
    failed = claim("crash", fault_class, suspect(9, kind="code"), cause="code", symptom="crash")
    action = decided(failed).action

    assert (action.kind, action.nodes) == (kind, ())
    assert ("mend" in action.why) is (kind == "none")
