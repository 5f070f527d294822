"""Who failed by itself, where exits alone are known."""

from __future__ import annotations

import msgspec
import pytest

from collectors.records import DIRECTORY, LogEvent, ProcessState, Record, RoleState
from tests.support.crash_claims import died, echo, judged, named, only, raised


def ended(rank: int, at: float, **how: object) -> ProcessState:
    """A rank's end as an agent saw it."""
    return ProcessState(
        source="process", rank=rank, pid=100 + rank, node=f"node-{rank}", at=at, boot_id="b", state="X", **how  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_killed_rank_is_named_by_exits_alone_and_its_peers_aborts_are_echoes() -> None:
    """One SIGKILL, then exit codes and SIGABRTs of those that lost it: the killed one, at its instant."""
    story = [
        ended(1, 100.0, signal=9),
        ended(0, 100.8, exit_code=1),
        ended(2, 100.9, signal=6),
        ended(3, 101.0, signal=6),
    ]
    finding = only(list(story))
    assert (finding.fault_class, finding.cause, named(finding)) == ("process_killed", "machine", (1,))
    assert finding.onset == 100.0
    assert set(finding.victims) == {0, 2, 3}


@pytest.mark.parametrize(("code", "victims"), [(1, ()), (3, (5,))])
def test_whom_an_exception_without_a_rank_may_have_ended_is_no_victim(code: int, victims: tuple[int, ...]) -> None:
    """Python ends with 1 after an exception; who left with another code did not raise it."""
    finding = only([raised(None, "ValueError", "a bad shard"), died(5, code, first=True)])

    assert (finding.fault_class, finding.suspects[0].ranks) == ("program_error", ())
    assert finding.victims == victims
    assert [one.ranks for one in finding.rejected] == [(rank,) for rank in victims]


def test_a_killed_rank_that_was_slow_to_go_is_still_the_killed_one() -> None:
    """Its driver took seconds to close its GPU: its peers were gone before it, and that makes no one of them the first cause."""
    finding = only([ended(1, 108.0, signal=9), *(ended(rank, 101.0 + rank, signal=6) for rank in (0, 2, 3))])
    assert (finding.fault_class, named(finding)) == ("process_killed", (1,))


@pytest.mark.parametrize(
    ("killed_at", "found"), [(132.0, []), (103.0, ["process_killed"]), (119.0, ["process_killed"])]
)
@pytest.mark.parametrize("seen", [True, False], ids=["without a code", "not seen"])
def test_a_kill_long_after_others_were_gone_is_the_launchers(killed_at: float, found: list[str], *, seen: bool) -> None:
    """Ctrl-C: one rank does not hear it, and its launcher kills it half a minute later; how the others ended was not seen."""
    alive = [
        ProcessState(source="process", rank=rank, pid=100 + rank, node="n", at=at, boot_id="b", state="S")
        for rank in range(3)
        for at in (80.0, 90.0, 100.0, *((110.0, 120.0, 130.0) if rank == 0 and killed_at > 131 else ()))
    ]
    gone = [msgspec.structs.replace(ended(rank, 101.0), node="n") for rank in (1, 2) if seen]
    last = msgspec.structs.replace(ended(0, killed_at, signal=9), node="n")

    findings = judged([*alive, *gone, last], nodes=dict.fromkeys(range(3), "n"))
    assert [one.fault_class for one in findings if one.suspects] == found


def test_the_first_of_bare_exit_codes_is_a_suspect_and_no_machine() -> None:
    """With no log the first to leave is the one to look at; ranks of several nodes within their clocks' difference are not."""
    finding = only([ended(2, 100.0, exit_code=3), *(ended(rank, 100.9, exit_code=1) for rank in (0, 1, 3))])
    assert (finding.fault_class, finding.cause, named(finding)) == ("left_by_itself", "unknown", (2,))
    assert "before all others" in finding.suspects[0].evidence[0].text
    together = only([ended(rank, 100.0 + rank / 10, exit_code=3 + rank) for rank in range(4)])
    assert together.suspects == ()


@pytest.mark.parametrize("gap", [0.09, 0.9, 4.1])
def test_ranks_that_leave_together_with_one_code_have_no_first(gap: float) -> None:
    """Ctrl-C and an error that all meet look alike: the order in which Python ends them is nobody's fault."""
    story = [ended(0, 100.0, exit_code=1), ended(1, 100.0 + gap, exit_code=1)]
    finding = only(list(story), nodes={0: "node-0", 1: "node-0"})
    assert (finding.fault_class, finding.suspects) == ("left_by_itself", ())
    assert "exit code 1" in finding.evidence[0].text


def test_a_rank_that_leaves_long_before_the_others_is_the_first() -> None:
    """Nobody presses Ctrl-C for one of them."""
    finding = only([ended(2, 100.0, exit_code=1), *(ended(rank, 112.0, exit_code=1) for rank in (0, 1, 3))])
    assert named(finding) == (2,)


def test_a_rank_that_tells_why_outranks_the_exits_of_the_others() -> None:
    """An exception in a log and the exits around it are one story: the exception's."""
    story: list[Record] = [raised(2, "ValueError", "bad sample", at=99.9), *(echo(rank, 100.5) for rank in (0, 1, 3))]
    story += [ended(2, 100.0, exit_code=1), *(ended(rank, 100.9, exit_code=1) for rank in (0, 1, 3))]
    finding = only(story)
    assert (finding.fault_class, finding.suspects[0].ranks) == ("program_error", (2,))


@pytest.mark.parametrize("how", [{"signal": 15}, {"signal": 9}, {"exit_code": 143}])
def test_a_job_that_somebody_ended_has_no_culprit(how: dict[str, int]) -> None:
    """All ranks at once by SIGTERM or SIGKILL: why somebody did that does not show in how they ended."""
    assert judged([ended(rank, 100.0 + rank / 10, **how) for rank in range(4)]) == []


def test_a_limit_that_one_rank_catches_to_save_has_no_culprit() -> None:
    """It leaves well after the others, and so may a second; one that left before was done, and one that fails lost its peers."""

    def limited(*saved: float, code: int = 0) -> list[Record]:
        story = [ended(rank, at, exit_code=code) for rank, at in enumerate(saved)]
        return [*story, *(ended(rank, 100.0 + rank / 10, signal=10) for rank in range(len(saved), 4))]

    assert judged(limited(130.0)) == judged(limited(130.0, 140.0)) == []
    assert judged(limited(90.0, 90.0)) != []
    assert judged(limited(101.0, 101.0, code=1)) != []


def test_the_end_of_a_rank_that_was_started_anew_is_past() -> None:
    """A launcher that counts no attempts started all ranks again after a crash, and they run: nothing has crashed now."""
    crash = [ended(rank, 100.0 + rank, signal=11 if rank == 3 else 6, started_at=50.0) for rank in range(4)]
    again = [
        msgspec.structs.replace(ended(rank, at, started_at=120.0), state="S", pid=200 + rank)
        for rank in range(4)
        for at in (130.0, 140.0)
    ]

    assert only(crash).fault_class == "process_crashed"
    assert judged([*crash, *again]) == []


def test_what_a_launcher_killed_long_after_is_a_victim() -> None:
    """One rank crashed; half a minute later its launcher killed those that would not leave."""
    finding = only([ended(3, 100.0, signal=11), *(ended(rank, 130.0, signal=9) for rank in (0, 1, 2))])
    assert (finding.fault_class, named(finding)) == ("process_crashed", (3,))


def test_ends_without_a_fault_are_nothing() -> None:
    """Clean exits, a data loader's, and those that nobody knows the code of."""
    assert judged([ended(rank, 100.0 + rank, exit_code=0) for rank in range(4)]) == []
    assert judged([ended(1, 100.0, signal=9, parent_pid=7), ended(2, 100.0)]) == []


def test_a_killed_rank_whose_launcher_asked_the_others_to_leave_is_named() -> None:
    """torchrun answers one death with SIGTERM to all others, within a second: nobody took the job away."""
    finding = only([ended(1, 100.0, signal=9), *(ended(rank, 100.3, signal=15) for rank in (0, 2, 3))])
    assert (finding.fault_class, named(finding)) == ("process_killed", (1,))


def alive(rank: int, at: float) -> ProcessState:
    """A rank that an agent saw run."""
    return msgspec.structs.replace(ended(rank, at), state="S")


@pytest.mark.parametrize("guilty", [0, 2])
def test_what_a_launcher_ended_may_have_raised(guilty: int) -> None:
    """One leaves with an exception's code and the others are ended for it, within a second: any of them may have raised."""
    others = [rank for rank in range(3) if rank != guilty]
    story = [ended(guilty, 100.0, exit_code=1), *(ended(rank, 100.2, signal=15) for rank in others)]
    finding = only(list(story), nodes=dict.fromkeys(range(3), "node-0"))

    assert (finding.fault_class, finding.suspects) == ("left_by_itself", ())
    assert f"rank {guilty}: process {100 + guilty} ended with exit code 1" in finding.evidence[0].text


def test_a_code_that_a_program_chose_is_no_lost_peers() -> None:
    """Its peers were ended after it or lost it, and one of them was gone before it."""
    story = [ended(1, 99.9, exit_code=1), ended(2, 100.0, exit_code=3), ended(0, 100.2, signal=15)]

    assert named(only(list(story), ranks=3)) == (2,)


def test_a_code_that_most_leave_with_is_what_their_program_does_without_a_peer() -> None:
    """The one that raised has Python's own code."""
    story = [ended(rank, 100.0, exit_code=1 if rank == 1 else 5) for rank in range(4)]

    assert only(list(story)).suspects == ()


@pytest.mark.parametrize(("seen", "culprits"), [(112.0, (2,)), (104.0, ())])
def test_a_rank_that_left_while_others_went_on_failed(seen: float, culprits: tuple[int, ...]) -> None:
    """Nobody ends them, and they wait for it; right after its end nothing is known of them."""
    finding = only([ended(2, 100.0, exit_code=1), *(alive(rank, seen) for rank in (0, 1, 3))])

    assert named(finding) == culprits


def test_a_lost_connection_of_an_unknown_rank_may_be_of_the_one_that_left() -> None:
    """A job that is started again raises before its ranks have numbers; the launcher reports the first that it found."""
    lost = raised(None, "RuntimeError", "Gloo connectFullMesh failed: timed out connecting: Connection refused")
    (finding,) = judged([lost, died(0, 1, first=True, event="exit"), ended(1, 100.0, signal=15)])

    assert (finding.cause, finding.suspects) == ("unknown", ())


def test_a_code_of_its_own_outranks_what_each_node_s_launcher_calls_first() -> None:
    """Two launchers each report a first failure; one is of a rank that only lost its peer."""
    first = LogEvent(
        source="n1.log:9", node="node-1", rank=1, event="torchrun_failure", exit_code=3, first=True, at=100.1
    )
    other = LogEvent(
        source="n2.log:9", node="node-2", rank=2, event="torchrun_failure", exit_code=1, first=True, at=101.8
    )
    story: list[Record] = [echo(0, 100.3), echo(2, 101.7), echo(3, 101.8), first, other]
    story += [ended(1, 100.0, exit_code=3), ended(0, 100.1, signal=15), ended(2, 101.7, exit_code=1)]
    story.append(ended(3, 101.7, signal=15))

    finding = only(story)
    assert (finding.fault_class, finding.cause, named(finding)) == ("left_by_itself", "unknown", (1,))


def summary(*ends: tuple[int, int, float]) -> list[Record]:
    """A launcher's summary: ranks with their codes and seconds; the last is the one that it saw first."""
    return [
        LogEvent(
            source=f"launch.log:{line}", rank=rank, event="torchrun_failure", exit_code=code, at=100.0 + after,
            signal=-code if code < 0 else None, first=line == len(ends) - 1,
        )
        for line, (rank, code, after) in enumerate(ends)
    ]  # fmt: skip


@pytest.mark.parametrize("first", [1, -9, -11])
@pytest.mark.parametrize("later", [1, -6, -9, -11])
def test_an_end_well_after_the_first_one_of_a_summary_is_a_victims(first: int, later: int) -> None:
    """The launcher had asked it to end by then, whatever signal it died of."""
    finding = only(summary((2, later, 80.0), (3, first, 0.0)))

    assert named(finding) == (3,)
    assert finding.victims == (2,)


def test_an_end_at_about_the_time_of_the_first_one_may_be_its_cause() -> None:
    """A launcher notices a victim first as often as not; and one that lost its peer is none."""
    assert named(only(summary((2, -11, 1.0), (3, 1, 0.0)))) == (2,)
    assert named(only([*summary((2, -11, 80.0), (3, 1, 0.0)), echo(3)])) == (2,)


def test_a_kill_after_another_rank_left_well_is_no_clean_up() -> None:
    """It had fewer steps to do: nothing asked its launcher to end the others."""
    alive = [
        ProcessState(source="process", rank=rank, pid=100 + rank, node="n", at=at, boot_id="b", state="S")
        for rank in range(4)
        for at in (80.0, 90.0, *((100.0, 110.0, 120.0, 130.0) if rank != 3 else ()))
    ]
    well = msgspec.structs.replace(ended(3, 95.0, exit_code=0), node="n")
    killed = msgspec.structs.replace(ended(1, 132.0, signal=9), node="n")

    findings = judged([*alive, well, killed], nodes=dict.fromkeys(range(4), "n"))
    assert (1,) in [named(one) for one in findings]


@pytest.mark.parametrize(("end", "found"), [({"signal": 15}, [(1,)]), ({}, [])], ids=["its end is known", "not seen"])
def test_a_rank_that_was_read_seldom_was_there_until_its_end(end: dict[str, int], found: list[tuple[int, ...]]) -> None:
    """A busy node's agent last read rank 0 a minute before rank 1 was killed: SIGTERM reached rank 0 after that kill."""
    alive = [
        ProcessState(source="process", rank=rank, pid=100 + rank, node="n", at=at, boot_id="b", state="S")
        for rank, instants in ((0, (80.0, 90.0)), (1, (80.0, 90.0, 130.0)))
        for at in instants
    ]
    ends = [ended(1, 152.0, signal=9), *([ended(0, 152.3, **end)] if end else [])]

    findings = judged([*alive, *(msgspec.structs.replace(one, node="n") for one in ends)], nodes={0: "n", 1: "n"})
    assert [named(one) for one in findings if one.suspects] == found


@pytest.mark.parametrize(("counted", "found"), [(1, ["host_oom"]), (0, [])])
def test_a_kill_for_memory_is_no_clean_up(counted: int, found: list[str]) -> None:
    """One rank was gone for half a minute, as if its launcher had killed the other; but the kernel says that it did that."""
    gone_at = {0: 132.0, 1: 101.0}
    alive = [
        ProcessState(
            source="process", rank=rank, pid=100 + rank, node="n", at=at, boot_id="b", state="S", oom_kills_total=0
        )
        for rank, gone in gone_at.items()
        for at in (80.0, 90.0, 100.0, 110.0, 120.0, 130.0)
        if at < gone
    ]
    killed = msgspec.structs.replace(ended(0, 132.0, signal=9, oom_kills_total=counted), node="n")

    findings = judged([*alive, killed], nodes=dict.fromkeys(range(2), "n"))
    assert [one.fault_class for one in findings if one.suspects] == found


@pytest.mark.parametrize(("began", "named_ranks"), [(0.0, [(1,)]), (70.0, [])], ids=["the run before", "this run"])
def test_a_process_of_an_earlier_run_is_missed_by_no_launcher(began: float, named_ranks: list[tuple[int, ...]]) -> None:
    """A rank of a small job on the same node was last seen long ago: it is of this job's run only where both began together."""
    rows = [
        ProcessState(
            source="process", rank=rank, pid=100 + rank, node="n", at=at, boot_id="b", state="S", started_at=since
        )
        for rank, since, until in ((0, began, 95.0), (1, 70.0, 131.0), (2, 70.0, 131.0))
        for at in (80.0, 90.0, 100.0, 110.0, 120.0, 130.0)
        if at < until
    ]
    killed = msgspec.structs.replace(ended(1, 132.0, signal=9, started_at=70.0), node="n")

    findings = judged([*rows, killed], nodes=dict.fromkeys(range(3), "n"))
    assert [named(one) for one in findings if one.suspects] == named_ranks


@pytest.mark.parametrize(
    ("echoed", "local_rank", "exit_code", "named_by_exit"),
    [
        (3, 3, 1, False),
        (11, 3, 1, False),  # local rank 3 of a second node with eight
        (0, 3, 1, True),  # another process: no node has so few
        (5, 3, 1, True),
        (3, 3, 7, True),  # a code of its own
    ],
)
def test_an_exit_that_may_be_of_the_process_that_lost_a_peer_names_none(
    echoed: int, local_rank: int, exit_code: int, named_by_exit: bool
) -> None:
    """A launcher's line gives the number on the node alone, and an exception ended the process that logged the echo."""
    end = LogEvent(
        source="launch.log:9", event="exit", local_rank=local_rank, exit_code=exit_code, first=True, text="failed"
    )
    (finding,) = judged([echo(echoed), end], 16)

    assert (finding.fault_class == "left_by_itself") is named_by_exit
    assert bool(finding.suspects) is named_by_exit


@pytest.mark.parametrize(("fenced_at", "found"), [(99.0, []), (101.0, ["killed_unexplained"])])
def test_who_had_lost_its_instance_before_it_ended_did_not_crash(fenced_at: float, found: list[str]) -> None:
    """Who restarts a role fences its epoch and ends the process then; one that is fenced after its end was lost."""
    end = msgspec.structs.replace(ended(1, 100.0, signal=9), role="rollout")
    says = {"role": "rollout", "instance": "1", "epoch": 4, "pid": 101, "node": "node-1.example.org"}
    story: list[Record] = [
        RoleState(source=DIRECTORY, at=at, state=state, **says)  # type: ignore[arg-type]
        for at, state in ((fenced_at, "fenced"), (90.0, "serving"))
    ]
    assert [one.fault_class for one in judged([end, *story])] == found
