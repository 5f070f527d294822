"""Numbers of several watchdogs are compared: who calls something else, who is behind, and when silence shows anything."""

from __future__ import annotations

import pytest

from analyzers.diagnosis.crash.crash import analyze
from analyzers.model.finding import Finding
from analyzers.model.topology import infer
from analyzers.model.window import Window
from collectors.records import FlightRecorderDump, Group, LogEvent, Members, Placement, Record, Steps
from tests.support.crash_claims import KNOWLEDGE, died, echo, named, only, said
from tests.support.live_hangs import verdict


def unplaced(records: list[Record], world_size: int | None = None) -> Finding:
    """The finding of a log alone, with the number of ranks stated or not."""
    sized = [Placement(source="job.yaml", world_size=world_size)] if world_size else []
    window = Window.build([*sized, *records])
    (finding,) = analyze(window, infer(window), KNOWLEDGE)
    return finding


def waits(rank: int, sequence: int, operation: str = "ALLREDUCE", **fields: object) -> LogEvent:
    """A rank's watchdog that gave up on an operation."""
    return said("watchdog_timeout", rank, sequence=sequence, operation=operation, **fields)


@pytest.mark.parametrize("group", ["17", "local:0", None])
def test_two_operations_at_one_number_are_a_desync(group: str | None) -> None:
    """Rank 5 broadcasts where rank 2 reduces: the code, and no machine."""
    finding = unplaced([waits(5, 90_411, "BROADCAST", group=group), waits(2, 90_411, group=group)])

    assert (finding.cause, finding.fault_class, finding.symptom) == ("code", "desync", "hang")
    assert (finding.suspects[0].kind, named(finding)) == ("code", (2, 5))


def test_of_two_operations_the_fewer_are_the_odd_ones() -> None:
    """Three reduce and one gathers; the verdict is code, whatever else is unknown."""
    events = [waits(rank, 512, group="0") for rank in (0, 1, 3)] + [waits(2, 512, "ALLGATHER", group="0")]

    assert named(unplaced(list(events))) == (2,)
    judged = verdict(list(events))
    assert (judged.cause, judged.culprits[0].kind, judged.culprits[0].ranks) == ("code", "code", (2,))
    assert judged.action.kind not in ("evict", "probe")


@pytest.mark.parametrize(
    "events",
    [
        [waits(0, 40, "SEND", group="3"), waits(1, 40, "RECV", group="3")],
        [waits(0, 4000, group="3"), waits(1, 4000, "BROADCAST", group="4")],
        [waits(0, 4000, group="local:2"), waits(1, 4000, "BROADCAST", group="local:2")],
        [waits(0, 40), waits(1, 40, "BROADCAST")],
        [waits(0, 4000, group_rank=0), waits(5, 4000, "BROADCAST", group_rank=1)],
    ],
    ids=["a pair", "two groups", "numbers of their own", "small numbers, no name", "ranks of smaller groups"],
)
def test_what_does_not_compare_is_no_desync(events: list[LogEvent]) -> None:
    """Two ends of a pair, and numbers that are not of one communicator, differ legitimately."""
    assert unplaced(list(events)).fault_class == "echoes_only"


def test_who_waits_in_what_another_finished_is_behind() -> None:
    """The last completed numbers name rank 1; without a communicator's name they do as they lie close together."""
    for group in ("0", None):
        finding = unplaced([
            waits(1, 733_120, group=group, last_enqueued=733_120, last_completed=733_119),
            waits(0, 733_122, group=group, last_enqueued=733_122, last_completed=733_121),
        ])  # fmt: skip
        assert (named(finding), finding.fault_class, finding.narrows) == ((1,), "never_entered", True)
        assert "733121" in finding.suspects[0].evidence[0].text
    judged = verdict([
        waits(1, 733_120, group="0", last_completed=733_119), waits(0, 733_122, group="0", last_completed=733_121)
    ])  # fmt: skip
    assert judged.action.kind != "evict"


@pytest.mark.parametrize(
    "events",
    [
        [waits(1, 300, last_completed=299), waits(0, 9000, last_completed=8999)],
        [waits(rank, 50, group="0", last_completed=49) for rank in range(3)] + [waits(3, 60, group="0", last_completed=59)],
        [waits(1, 80, group="7", last_completed=79), waits(0, 90, group="7", last_completed=89), waits(1, 12, group="8")],
    ],
    ids=["numbers far apart, no name", "one alone is ahead", "it waits in another group too"],
)  # fmt: skip
def test_numbers_that_name_nobody(events: list[LogEvent]) -> None:
    """Numbers of two communicators, one rank ahead of all, and a rank that another group may hold up."""
    assert named(unplaced(list(events))) == ()


def test_a_line_without_a_group_is_of_the_group_that_the_same_time_out_has_in_another() -> None:
    """Torch writes two lines of one time-out, and the first names no group: that is no wait in a second communicator."""
    events = [
        line
        for rank, number in ((0, 9040), (1, 9040), (2, 9037))
        for line in (
            waits(rank, number),
            waits(rank, number, "", group="0", last_enqueued=number + 1, last_completed=number - 1),
        )
    ]

    assert named(unplaced(list(events))) == (2,)
    judged = verdict(list(events))
    assert judged.action.kind != "evict"
    assert judged.victims.ranks == "0-1"


def test_numbers_of_an_attempt_before_are_not_compared() -> None:
    """The job was started again in the same log: the second hang has nobody behind."""
    before = [waits(rank, at, group="0", last_completed=at - 1, at=1000.0) for rank, at in ((0, 110), (1, 20))]
    after = [waits(rank, 70, group="0", last_completed=69, at=9000.0 + rank) for rank in (0, 1)]

    assert named(unplaced([*before, *after])) == ()
    assert named(unplaced(list(before))) == (1,)


@pytest.mark.parametrize(("last", "culprits"), [(512, [(2,)]), (12, [])])
def test_lines_that_name_the_world_compare_with_those_that_name_none(
    last: int, culprits: list[tuple[int, ...]]
) -> None:
    """Three time out in 513, and only the fourth's line names the group: near numbers are of one, far ones are not."""
    dump = LogEvent(source="2.log:1", event="watchdog_dump", rank=2, group="0", last_enqueued=last, last_completed=last)
    found = unplaced([*(waits(rank, 513) for rank in (0, 1, 3)), dump])

    assert [one.ranks for one in found.suspects] == culprits


def test_a_report_of_who_did_not_join_is_used() -> None:
    """PyTorch's own comparison names rank 6; one that names nearly all of them means the one that is not named."""
    late = LogEvent(
        source="train.log:4", event="collective_behind", ranks=Members.of([6]), last_completed=240, sequence=241,
        text="[6] finished collective #240, but didn't join collective #241",
    )  # fmt: skip
    finding = unplaced([late])

    assert (named(finding), finding.symptom, finding.fault_class) == ((6,), "hang", "never_entered")
    assert finding.suspects[0].evidence[0].text == late.text
    many = [waits(rank, 241, group="0") for rank in range(4)]
    assert (
        named(unplaced([LogEvent(event="collective_behind", ranks=Members.of([0, 1, 2]), sequence=241), *many])) == ()
    )
    everybody = LogEvent(event="collective_unfinished", ranks=Members.of(range(8)), sequence=39)
    assert (unplaced([everybody]).suspects, unplaced([everybody]).symptom) == ((), "hang")


LATE = "finished collective #240, but didn't join collective #241"


def late(*ranks: int) -> LogEvent:
    """PyTorch's report of ranks that did not join."""
    text = f"[{', '.join(map(str, ranks))}] {LATE}"
    return LogEvent(
        source="train.log:4",
        event="collective_behind",
        ranks=Members.of(ranks),
        last_completed=240,
        sequence=241,
        text=text,
    )


def hosts(*names: str) -> Placement:
    """The host of each rank."""
    return Placement(source="hosts.txt", ranks=Members.of(range(len(names))), nodes=names, world_size=len(names))


@pytest.mark.parametrize(
    ("records", "cause"),
    [
        ([late(1, 3)], "unknown"),
        ([late(1, 3), hosts("a", "a", "b", "b")], "unknown"),
        ([late(1, 3), hosts("a", "a", "a", "a")], "unknown"),  # the node has the others, too
        ([late(2, 3), hosts("a", "a", "a", "a")], "unknown"),
        ([late(2, 3), hosts("a", "a", "b", "b")], "machine"),
        ([late(2, 3)], "machine"),  # ranks in a row may be a node's
        ([late(5, 40), waits(0, 241, group="0"), waits(63, 241, group="0"), waits(9, 241, group="0")], "unknown"),
        ([late(3)], "machine"),
        (
            [waits(rank, 241, group="0", last_enqueued=241) for rank in (0, 2)]
            + [said("watchdog_timeout", rank, group="0", last_enqueued=90 + rank) for rank in (1, 3)],
            "machine",
        ),
    ],
    ids=[
        "half",
        "on two nodes",
        "one node",
        "one node, in a row",
        "a node's",
        "a row",
        "two of many",
        "one",
        "two numbers",
    ],
)
def test_ranks_that_part_alike_are_no_machines_by_that(records: list[Record], cause: str) -> None:
    """A branch in the code holds several back at one point as well as a machine does, unless a node explains who they are."""
    finding = unplaced([waits(0, 241, group="0"), *records])

    assert (finding.cause, finding.fault_class) == (
        cause, "never_entered" if cause == "machine" else "parted_alike"
    )  # fmt: skip
    judged = verdict([waits(0, 241, group="0"), *records])
    if cause == "unknown":
        assert (judged.action.kind, judged.action.nodes) == ("none", ())
        assert judged.culprits[0].probability < 0.5
        assert any("of the others" in one.what for one in judged.missing)


def test_a_group_that_is_just_the_ranks_that_part_explains_them() -> None:
    """One member that stops holds its group up, and the whole group is behind the others."""
    of_two = FlightRecorderDump(rank=0, groups=(Group("7", "dp", Members.of((1, 3))),))

    assert unplaced([waits(0, 241, group="0"), late(1, 3), of_two]).cause == "machine"


def test_a_library_s_report_of_two_operations_is_a_desync() -> None:
    """One line an operation, with its ranks."""
    lines = [
        LogEvent(event="collective_mismatch", ranks=Members.of([0, 1, 2]), operation="ALLREDUCE", sequence=8),
        LogEvent(event="collective_mismatch", ranks=Members.of([3]), operation="BROADCAST", sequence=8),
    ]
    finding = unplaced(list(lines))
    assert (finding.cause, finding.fault_class, named(finding)) == ("code", "desync", (3,))


def test_silence_in_a_part_of_a_log_blames_nobody() -> None:
    """Four pasted lines of ranks 2, 3, 4 and 6 show nothing of ranks 0, 1 and 5, whether or not the size is known."""
    lines = [waits(rank, 4471, timeout_ms=600_000) for rank in (2, 3, 4, 6)]

    assert unplaced(list(lines)).suspects == ()
    assert unplaced(list(lines), world_size=7).suspects == ()
    judged = verdict(list(lines))
    assert (judged.symptom, judged.abstained, judged.culprits) == ("hang", True, ())


def test_silence_in_a_whole_log_is_a_suspicion() -> None:
    """The size is stated, and each silent rank has other lines; or one of eight alone is silent."""
    complaints: list[Record] = [echo(rank) for rank in range(5)]
    steps: list[Record] = [Steps(source=f"rank{rank}.log", rank=rank) for rank in (5, 6)]

    assert named(unplaced([*complaints, *steps], world_size=7)) == (5, 6)
    assert named(unplaced([*complaints, *steps])) == ()
    assert named(unplaced([*complaints, steps[0]], world_size=7)) == ()
    assert named(unplaced([echo(rank) for rank in range(8) if rank != 5], world_size=8)) == (5,)


@pytest.mark.parametrize("signal", [9, 11])
def test_one_end_without_any_other_line_is_not_while_the_others_ran(signal: int) -> None:
    """Nothing was read of another rank: the signal is the only fact, and no machine is blamed for it."""
    alone, heard = unplaced([died(3, -signal)]), unplaced([died(3, -signal), died(0, -15)])

    assert (alone.cause, heard.cause) == ("unknown", "machine")
    assert "while the others ran" not in alone.suspects[0].why
    assert alone.suspects[0].strength < 0.5 < heard.suspects[0].strength
    assert "the logs of the other ranks" in alone.missing


@pytest.mark.parametrize(
    ("message", "cause", "fault_class"),
    [
        ("Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized", "platform", "devices_absent"),
        ("No CUDA GPUs are available", "platform", "devices_absent"),
        ("DataLoader worker (pid 812) is killed by signal: Bus error. It is possible that", "code", "shared_memory"),
        ("DataLoader worker (pid 812) is killed by signal: Killed.", "code", "host_oom"),
    ],
)  # fmt: skip
def test_what_the_platform_or_the_program_lacks_is_no_machine_s_fault(
    message: str, cause: str, fault_class: str
) -> None:
    """A fabric manager that is not ready and memory that ran out, on one rank, evict nothing and roll nothing back."""
    records: list[Record] = [
        LogEvent(source="r.log:1", rank=2, event="traceback", exception="RuntimeError", message=message, text=message),
        echo(0), echo(1), echo(3),
    ]  # fmt: skip
    finding = only(records)
    assert (finding.cause, finding.fault_class) == (cause, fault_class)
    assert verdict(records).action.kind in ("none", "restart_job")


def test_memory_on_every_rank_rolls_nothing_back() -> None:
    """That no rank's share fits shows no change of the code."""
    text = "CUDA out of memory. Tried to allocate 2.00 GiB"
    records: list[Record] = [
        LogEvent(source=f"r{rank}.log:1", rank=rank, event="oom", text=text, message=text) for rank in range(4)
    ]
    judged = verdict(records)
    assert (judged.cause, judged.action.kind) == ("code", "none")
    assert "machine" in judged.action.why
