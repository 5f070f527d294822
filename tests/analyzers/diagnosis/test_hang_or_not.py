"""What is left over from before, what gloo leaves out, and when a wait is a hang."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from analyzers.diagnosis.hang import hang
from analyzers.model.topology import infer
from analyzers.model.verdict import Action
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.records import FlightRecorderDump, LogEvent, Record, Steps
from service.packaged_knowledge import load
from tests.support.hand_made import COMPLETED, SCHEDULED, Entry, call, calls, dump, group, transfer
from tests.support.hung_job import START_S, WORLD, absent_rank, job, only, suspects


def test_a_missing_dump_that_only_a_later_wait_needs_blames_nobody() -> None:
    """Rank 0 is held up by rank 1; what it launched afterwards, with a rank whose dump is lost, proves nothing of that one."""
    groups = (group("a", 0, 1), group("b", 0, 2))
    finding = only(
        dump(0, [*calls(1, group="a"), call(2, 0, group="a"), call(1, 0, group="b")], groups),
        dump(1, calls(1, group="a"), groups),
    )
    assert (finding.fault_class, suspects(finding)) == ("never_entered", (1,))


def test_a_plurality_is_no_majority() -> None:
    """Two of five agree and three call three other things: nobody says who is odd, all five are looked at."""
    five = (group("0", *range(5)),)
    names = ("all_reduce", "all_reduce", "broadcast", "_all_gather_base", "barrier")
    finding = only(*(dump(rank, [call(1, 0, name)], five) for rank, name in enumerate(names)))
    assert (finding.fault_class, suspects(finding)) == ("desync", (0, 1, 2, 3, 4))


def test_an_entry_of_a_captured_graph_lingers() -> None:
    """An unfinished entry that a later finished one of the same communicator has overtaken is nobody's wait."""
    captured = (call(1, 0), call(2, 0))
    waits = (*captured, *calls(3, 4, 5), call(6, 0))
    finding = only(*job(waits, waits, (*captured, *calls(3, 4, 5)), waits))
    assert (finding.fault_class, suspects(finding)) == ("never_entered", (2,))
    assert finding.onset == pytest.approx(START_S + 0.05, abs=0.001)


def test_an_entry_whose_own_timeout_ran_out_lingers() -> None:
    """Gloo's timed-out wait stays scheduled while its rank goes on: nobody waits in it any more."""
    side = group("side", 0, 1)
    old = call(1, 0, group="side", at_s=0.0, timeout_ms=5_000)
    waits = (old, call(1, COMPLETED, at_s=20.0), call(2, SCHEDULED, at_s=21.0))
    plain = waits[1:]
    groups = (*WORLD, side)
    finding = only(*job(waits, plain[:1], plain, plain, groups=groups))
    assert (finding.fault_class, suspects(finding)) == ("never_entered", (1,))
    assert finding.onset == pytest.approx(START_S + 21.0, abs=0.001)


def test_one_wild_instant_hides_no_wait() -> None:
    """Rank 0's dump says that an operation was launched ten years from now: what it waits in is no less a wait."""
    waits, wild = (*calls(1, 2, 3), call(4, SCHEDULED)), call(3, COMPLETED, at_s=3e8)
    finding = only(*job((*calls(1, 2), wild, call(4, SCHEDULED)), waits, calls(1, 2, 3), waits))
    assert (finding.fault_class, suspects(finding)) == ("never_entered", (2,))
    assert 0 in finding.victims


def test_an_earlier_attempts_entries_are_dropped() -> None:
    """The recorder outlives a process group that was made anew: numbers that fall tell where this attempt begins."""
    before = (*calls(7, 8), call(9, 0))
    waits = (*before, *calls(1, 2), call(3, 0))
    finding = only(*job(waits, waits, (*before, *calls(1, 2)), waits))
    assert (finding.fault_class, suspects(finding)) == ("never_entered", (2,))
    assert finding.onset == pytest.approx(START_S + 0.05, abs=0.001)


def _batch(number: int, state: int, *, old: bool) -> tuple[Entry, ...]:
    """A batch of both directions on rank 1 of three, numbered as version 2.4 or 2.10 numbers it."""
    shared = {"group": "pp", "collective_seq": number if old else 0, "is_p2p": True}
    parts = tuple(
        transfer(text, 0 if old else number, **{key: value for key, value in shared.items() if key != "is_p2p"})
        for text in ("send 1->2", "recv 1<-0")
    )
    whole = Entry(
        "nccl:coalesced", number if old else 0, group="pp", state=state, p2p_seq=0 if old else number, is_p2p=not old
    )
    return (*parts, whole)


@pytest.mark.parametrize("old", [True, False], ids=["2.4", "2.10"])
def test_the_parts_of_a_batch_that_ended_linger(old: bool) -> None:
    """Nobody watches a part: it stays scheduled for ever, and its batch's own entry says that all of it ended."""
    groups = (*WORLD, group("pp", 0, 1, 2, 3))
    waits = (*calls(1), call(2, 0))
    middle = (*calls(1), *_batch(1, COMPLETED, old=old), *_batch(2, COMPLETED, old=old))
    records = job(waits, middle, waits, waits, groups=groups)
    finding = only(*records)
    assert (finding.fault_class, suspects(finding)) == ("never_entered", (1,))


@pytest.mark.parametrize("old", [True, False], ids=["2.4", "2.10"])
def test_a_batch_that_is_outstanding_waits_for_all_of_its_parts(old: bool) -> None:
    """Of rank 1's last batch the part to rank 2 is done, but it ends as a whole: it waits for rank 0, which never came."""
    groups = (group("0", 0, 1, 2), group("pp", 0, 1, 2))
    finding = only(
        dump(0, calls(1), groups),
        dump(1, (*calls(1), *_batch(1, COMPLETED, old=old), *_batch(2, SCHEDULED, old=old)), groups),
        dump(2, (*calls(1), call(2, 0)), groups),
    )
    assert suspects(finding) == (0,)
    assert finding.victims == (1, 2)


def _gloo(number: int, op_id: int, *, retired: bool) -> Entry:
    return Entry("gloo:all_reduce", number, state=SCHEDULED, retired=retired, op_id=op_id)


def test_gloos_unrecorded_sends_make_idle_ranks_a_set() -> None:
    """Operation ids ahead of the collectives show sends that nobody recorded: ranks that look idle may wait in one."""
    waits = (_gloo(1, 1, retired=True), _gloo(2, 6, retired=False))
    idle = (_gloo(1, 1, retired=True),)
    finding = only(*job(waits, idle, waits, idle, groups=(group("0"),)))
    assert (finding.fault_class, suspects(finding), finding.together) == ("never_entered", (1, 3), False)
    assert "gloo records no send or receive" in finding.missing[0]


def test_without_sends_gloo_names_the_one() -> None:
    """Where operation ids and collectives coincide nothing is unrecorded, and the one idle rank is the culprit."""
    waits = (_gloo(1, 1, retired=True), _gloo(2, 2, retired=False))
    finding = only(*job(waits, waits[:1], waits, waits, groups=(group("0"),)))
    assert (finding.fault_class, suspects(finding), finding.together) == ("never_entered", (1,), True)


def _again(
    records: list[FlightRecorderDump], more: tuple[Entry, ...] = (), **changes: object
) -> list[FlightRecorderDump]:
    """The same ranks dumped a second time, 30 s later, with what they launched in between."""
    found = []
    for one in records:
        entries = (*calls(1, 2, 3), *more)
        again = dump(one.rank or 0, entries, WORLD) if more else one
        found.append(msgspec.structs.replace(again, source=f"second/_dump_{one.rank}", at=START_S + 40.0, **changes))
    return found


def test_two_snapshots_that_moved_are_a_running_job() -> None:
    """Every rank launched more between its two dumps: healthy, nobody named, whatever is outstanding now."""
    first = [msgspec.structs.replace(one, at=START_S + 10.0) for one in absent_rank()]
    finding = only(*first, *_again(first, (*calls(4, 5), call(6, 0, at_s=39.9))))
    assert (finding.fault_class, finding.symptom, finding.cause) == ("running", "healthy", "none")


def test_two_snapshots_that_stand_still_are_a_hang() -> None:
    """Nobody launched anything between two dumps: a hang, however young the wait looks, and the culprit is named."""
    first = [msgspec.structs.replace(one, at=START_S + 0.1) for one in absent_rank()]
    finding = only(*first, *_again(first))
    assert (finding.fault_class, suspects(finding)) == ("never_entered", (2,))


def test_two_snapshots_of_which_some_moved_decide_nothing() -> None:
    """Three ranks launched more and one did not: neither progress nor standstill, so that the last waits are looked at."""
    first = [msgspec.structs.replace(one, at=None) for one in absent_rank()]
    second = _again(first, (*calls(4), call(5, 0)))
    second[2] = msgspec.structs.replace(first[2], source="second/_dump_2", at=1.0)
    finding = only(*first, *(msgspec.structs.replace(one, at=1.0) for one in second))
    assert (finding.fault_class, suspects(finding)) == ("never_entered", (2,))


def _aged(seconds: float, gaps: int = 30, pause_s: float = 1.0) -> list[FlightRecorderDump]:
    """A job that launches once a ``pause_s``; rank 2 has not come to its last collective when the dumps are taken."""
    history = tuple(call(number, at_s=number * pause_s) for number in range(gaps))
    last = call(gaps, 0, at_s=gaps * pause_s)
    at = START_S + gaps * pause_s + seconds
    return [dump(rank, (*history, *((last,) if rank != 2 else ())), WORLD, at=at) for rank in range(4)]


@pytest.mark.parametrize(
    ("age_s", "expected"),
    [
        (0.9, "running"),
        (1.4, "running"),
        (1.6, "undecided"),
        (4.9, "undecided"),
        (5.1, "never_entered"),
        (90.0, "never_entered"),
    ],
)
def test_one_snapshot_is_judged_by_the_jobs_own_rhythm(age_s: float, expected: str) -> None:
    """With a pause of one second: up to 1.5 s is the rhythm, beyond 5 s (never less) a hang, between them undecided."""
    assert only(*_aged(age_s)).fault_class == expected


def test_a_job_with_long_pauses_is_given_three_of_them() -> None:
    """Ten-second pauses: a wait of 25 s decides nothing yet, one of 31 s does."""
    assert only(*_aged(25.0, pause_s=10.0)).fault_class == "undecided"
    assert only(*_aged(31.0, pause_s=10.0)).fault_class == "never_entered"


def test_an_undecided_age_asks_for_a_second_snapshot() -> None:
    """It names nobody and says what would decide."""
    finding = only(*_aged(3.0))
    assert (finding.suspects, finding.cause) == ((), "unknown")
    assert finding.missing == ("a second set of dumps, or of rings, 30 s later would show whether the job moves",)


@pytest.mark.parametrize("offset_s", [-60.0, 86_400.0 * 30])
def test_file_times_that_no_dump_can_have_are_not_believed(offset_s: float) -> None:
    """A time before the last launch, or long after any watchdog, was made by a copy: the wait's age is unknown."""
    records = [msgspec.structs.replace(one, at=(one.at or 0.0) + offset_s) for one in _aged(1.0)]
    assert only(*records).fault_class == "never_entered"


def _action(*records: Record) -> Action:
    window = Window.build(list(records))
    return judge(window, infer(window), load()).action


def test_a_hang_that_is_assumed_evicts_nobody() -> None:
    """Without a time the dumps of a healthy job look alike: who would hold it up is named, and tested at most."""
    undated = [msgspec.structs.replace(one, at=None) for one in _aged(1.0)]
    finding = only(*undated)
    assert suspects(finding) == (2,)
    assert finding.assumes in finding.missing
    assert (_action(*undated).kind, _action(*undated).why) == ("probe", finding.assumes)
    assert "not why" in _action(*_aged(90.0)).why  # that it stands still is known: nothing is assumed


@pytest.mark.parametrize(("sequence", "kind"), [(30, "evict"), (7, "probe"), (None, "probe")])
def test_a_watchdog_shows_that_a_wait_was_long(sequence: int | None, kind: str) -> None:
    """It gave up what the dumps call unfinished; a time-out of anything else shows nothing of these dumps."""
    undated = [msgspec.structs.replace(one, at=None) for one in _aged(1.0)]
    said = LogEvent(event="watchdog_timeout", rank=0, sequence=sequence, operation="ALLREDUCE", source="job.log")
    window = Window.build([*undated, said])
    found = [one for one in hang.analyze(window, infer(window), load()) if one.suspects]
    assert [bool(one.assumes) for one in found] == [kind == "probe"]


@pytest.mark.parametrize(
    ("later_s", "expected"),
    [(-5.0, "never_entered"), (0.0, "never_entered"), (6.0, "undecided"), (3600.0, "never_entered")],
)
def test_dumps_from_before_further_steps_show_no_hang(later_s: float, expected: str) -> None:
    """A copy took the dumps' own time away, and the log went on after them; stamps of another zone prove nothing."""
    copied = [msgspec.structs.replace(one, at=START_S + 6000.0) for one in _aged(1.0)]
    again = [msgspec.structs.replace(one, source=f"second/{one.rank}", at=START_S + 6000.1) for one in copied]
    at = START_S + 30.0 + later_s - 5.0 + np.arange(6.0)
    steps = Steps(rank=0, source="rank0.log", count=6, columns={"at": at.tobytes(), "step": np.arange(6).tobytes()})
    assert only(*copied, *again, steps).fault_class == expected


def test_a_dump_that_was_copied_twice_is_one_sample() -> None:
    """The copies have times of one moment: that they are equal is no standstill."""
    first = [msgspec.structs.replace(one, at=START_S + 0.1) for one in absent_rank()]
    again = [msgspec.structs.replace(one, source=f"second/{one.rank}", at=START_S + 0.2) for one in first]
    assert only(*first, *again).fault_class == "undecided"


def test_a_time_that_only_few_dumps_have_is_not_believed() -> None:
    """One dump in four with a time says nothing of when the others were taken."""
    records = [msgspec.structs.replace(one, at=one.at if one.rank == 0 else None) for one in _aged(1.0)]
    assert only(*records).fault_class == "never_entered"


def test_too_little_history_has_no_rhythm() -> None:
    """Few launches tell nothing of the job's pauses: a young wait is undecided, an old one is a hang."""
    assert only(*_aged(3.0, gaps=3)).fault_class == "undecided"
    assert only(*_aged(30.0, gaps=3)).fault_class == "never_entered"


@pytest.mark.parametrize(("age_s", "expected"), [(0.9, "running"), (3.0, "undecided"), (90.0, "outside")])
def test_a_silence_without_waits_is_held_against_the_rhythm_too(age_s: float, expected: str) -> None:
    """Nothing is outstanding: between two launches that is a healthy job, in a long pause undecided, for ever outside."""
    history = tuple(call(number, at_s=float(number)) for number in range(30))
    finding = only(*(dump(rank, history, WORLD, at=START_S + 29.0 + age_s) for rank in range(4)))
    assert (finding.fault_class, finding.suspects) == (expected, ())
