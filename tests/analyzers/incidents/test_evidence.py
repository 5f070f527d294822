"""Which records the engine keeps of a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from analyzers.incidents.evidence import MOST_STEPS_OF_LEAD, Evidence
from collectors.records import DIRECTORY, ProcessState, RoleState, Steps


def steps(rank: int, step: int, job: str = "llama") -> Steps:
    """Return a report of one step."""
    return Steps(source=f"log of {rank}", node="gpu-1", job=job, attempt=1, rank=rank, step=step, told_by="plain")


def test_of_one_rank_the_steps_of_two_minutes_are_kept() -> None:
    """A judgement that comes late on a busy machine still sees the spike for which the incident was opened."""
    evidence = Evidence()
    for number in range(100):
        evidence.add(number, [steps(5, number), steps(4, number), steps(9, number, job="other")])

    kept = [record for _, _, record in evidence.since(-1) if isinstance(record, Steps)]
    assert Counter((record.job, record.rank) for record in kept) == {
        ("llama", 4): MOST_STEPS_OF_LEAD, ("llama", 5): 3, ("other", 9): MOST_STEPS_OF_LEAD,
    }  # fmt: skip
    assert [record.step for record in kept if record.rank == 4] == list(range(100 - MOST_STEPS_OF_LEAD, 100))


def test_what_many_jobs_report_is_bounded() -> None:
    """Names of jobs that a node invents take no memory beyond their records."""
    evidence = Evidence()
    for number in range(1000):
        evidence.add(number, [steps(0, 1, job=f"job {number}")])

    assert len(evidence._leads) <= 64


def states(letters: str, first: int = 0) -> Evidence:
    """Return what is kept of a process that is read every ten seconds, in a batch each, from the ``first`` batch on."""
    evidence = Evidence()
    for number, letter in enumerate(letters):
        if number >= first:
            row = ProcessState(
                source="process", node="gpu-1", boot_id="b", rank=1, pid=101, state=letter, at=10.0 * number
            )
            evidence.add(number, [row])
    return evidence


def shown(evidence: Evidence, after: int = -1) -> str:
    """Return the states that are kept, by their time."""
    kept: Iterable[ProcessState] = (row for _, _, row in evidence.since(after) if isinstance(row, ProcessState))
    return " ".join(f"{row.state}{(row.at or 0.0) / 10:.0f}" for row in sorted(kept, key=lambda row: row.at or 0.0))


def test_the_last_stop_of_a_process_and_what_followed_outlast_its_newest_readings() -> None:
    """Also hours later; of several stops the last is kept."""
    assert shown(states("SSTTSSSSSS")) == "T3 S4 S5 S6 S7 S8 S9"
    assert shown(states("SSTTSSSSSSSS")) == "T3 S4 S6 S7 S8 S9 S10 S11"
    assert shown(states("STTS" + 1000 * "S")) == "T2 S3 " + " ".join(f"S{number}" for number in range(998, 1004))
    assert shown(states("STSSTSRSTTRSSSSSSSSS")) == "T9 R10 S14 S15 S16 S17 S18 S19"


def test_a_process_that_was_not_continued_keeps_its_newest_readings_alone() -> None:
    """Neither one that ran all the time, nor one that still stands, nor one that was traced."""
    assert shown(states("SSSSSSSSSS")) == shown(states("TTTTSSSSSS", first=4)) == "S4 S5 S6 S7 S8 S9"
    assert shown(states("SSSTTTTTTT")) == "T4 T5 T6 T7 T8 T9"
    assert shown(states("SttSSSSSSSS")) == "S5 S6 S7 S8 S9 S10"


def test_a_replay_that_begins_amid_a_stop_keeps_what_the_running_engine_shows_of_it() -> None:
    """It has the batches from one number on: half a pair is no pair."""
    letters = "SSTTSSSSSSSSTTSSSSSSSSS"
    for first in range(len(letters)):
        assert shown(states(letters), after=first - 1) == shown(states(letters, first))


def test_what_is_forgotten_takes_the_pair_along() -> None:
    """Up to its first reading, or to both."""
    for through in (3, 4):
        evidence = states("SSTTSSSSSSSS")
        evidence.forget(through)
        assert shown(evidence) == "S6 S7 S8 S9 S10 S11"


def test_that_an_epoch_was_fenced_outlasts_who_registers_next() -> None:
    """Both come within the span of which else the newest reading is kept: without the first, the process's end is a crash."""
    evidence = Evidence()
    for sequence, (at, epoch, state) in enumerate(
        ((100.0, 1, "serving"), (101.0, 1, "fenced"), (103.0, 2, "serving")), 1
    ):
        said = RoleState(source=DIRECTORY, job="rl", role="reward", instance="0", at=at, epoch=epoch, state=state)  # type: ignore[arg-type]
        evidence.add(sequence, [said])
    kept = [one for _, _, one in evidence.since(0) if isinstance(one, RoleState)]
    assert sorted((one.epoch, one.state) for one in kept) == [(1, "fenced"), (2, "serving")]
