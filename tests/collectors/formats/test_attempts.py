"""A log that holds several attempts of its job gives each event the attempt that it is of."""

from __future__ import annotations

import io

import pytest

from analyzers.model.window import Window
from collectors.formats import Input
from collectors.formats.text_evidence import read
from collectors.records import LogEvent, Record, Steps

CRASH = "[rank1]: RuntimeError: CUDA error: unknown error\n"
ENDED = "E1122 10:00:00.5 9 torch/distributed/elastic/multiprocessing/api.py:8] failed (exitcode: 1) local_rank: 1 (pid: 3)\n"
AGAIN = "I1122 10:00:01.5 9 torch/distributed/elastic/agent/server/api.py:5] [default] Rendezvous complete for workers. Result: "
STEPS = "".join(f"step {step} | loss 2.1\n" for step in range(5))
MISSING = "[rank0]: KeyError: 'labels'\n"


def records(text: str) -> list[Record]:
    """What the reader of text gives."""
    data = text.encode()
    return list(read(Input("train.log", io.BytesIO(data), data)))


def attempts(text: str) -> dict[str, int | None]:
    """The attempt of each kind of event; of exceptions by their names."""
    found = [record for record in records(text) if isinstance(record, LogEvent)]
    return {event.exception or event.event: event.attempt for event in found}


@pytest.mark.parametrize(
    "mark",
    [
        AGAIN + "restart_count=1 master_addr=n1\n",
        "+ torchrun --nproc-per-node 2 train.py\n",
        "W1122 10:00:01.5 9 torch/distributed/run.py:7] Setting OMP_NUM_THREADS environment variable for each process to be 1\n",
        "***** Running training *****\n",
        "+ echo requeued SLURM_RESTART_COUNT=1 on n[3-4]\n",
        "===== attempt 2 on n3 and n4 =====\n",
        "### Restart 3 of the job\n",
        "n1:88:88 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n",
        "(TrainController pid=8) Attempting to start training worker group of size 2 with the following resources: x\n",
    ],
)
def test_what_follows_a_failure_and_a_beginning_is_the_next_attempt(mark: str) -> None:
    """A launcher's beginning, or a program's after steps."""
    assert attempts(STEPS + CRASH + ENDED + mark + STEPS + MISSING) == {"cuda_error": 0, "exit": 0, "KeyError": 1}


@pytest.mark.parametrize(
    "text",
    [
        CRASH + "***** Running training *****\n" + MISSING,  # while the job starts up
        STEPS + AGAIN + "restart_count=1 master_addr=n1\n" + CRASH + MISSING,  # nothing had failed
        STEPS + CRASH + ENDED + STEPS.replace("step ", "step 1") + MISSING,  # printed when the processes ended
        # torch names the library's version in the text of an error
        STEPS
        + MISSING
        + "[rank1]:[E1122 10:00:03.4 ProcessGroupNCCL.cpp:612] [Rank 1] Collective WorkNCCL(SeqNum=9) raised the "
        "following async exception: NCCL error: unhandled system error, NCCL version 2.27.5\n",
    ],
)
def test_other_logs_are_of_one_attempt(text: str) -> None:
    """Without a failure before it, a beginning divides nothing; nor do steps that a buffer held back."""
    assert set(attempts(text).values()) == {None}


@pytest.mark.parametrize(
    "again",
    [STEPS, "".join(f"2026-11-22 10:0{step}:00 step 1{step} loss 2.1\n" for step in range(5))],
)
def test_steps_that_go_on_after_an_end_are_of_the_next_attempt(again: str) -> None:
    """A launcher says little by default: that the steps count anew, or go on with their stamps, shows a restart."""
    found = records(STEPS + CRASH + ENDED + again)

    assert {record.attempt for record in found if isinstance(record, LogEvent)} == {0}
    assert {record.attempt for record in found if isinstance(record, Steps)} == {1}


@pytest.mark.parametrize(("second", "attempt"), [(30, None), (59, None), (75, 0)])
def test_stamped_steps_of_before_an_end_that_stand_below_it_begin_no_attempt(second: int, attempt: int | None) -> None:
    """Programs that print into a file write their last steps when they end, below what their launcher says of the end."""
    summary = "[0]:\n  time : 2026-11-22_10:00:59\n  rank : 1 (local_rank: 1)\n  exitcode : 1 (pid: 3)\n"
    ended = ENDED + "Failures:\n" + summary + "=" * 60 + "\n"
    times = [f"10:{at // 60:02}:{at % 60:02}" for at in range(second - 20, second + 1)]
    steps = [
        f"[default{rank}]:2026-11-22 {at} INFO step {step} loss 2.1\n"
        for step, at in enumerate(times)
        for rank in (0, 1)
    ]
    found = records(CRASH + ended + "".join(steps))

    assert {record.attempt for record in found if isinstance(record, LogEvent)} == {attempt}


def test_an_end_that_is_said_again_after_further_steps_is_of_the_next_attempt() -> None:
    """A container gives each attempt the same process numbers: the second kill is no repeat of the first."""
    killed = ENDED.replace("exitcode: 1", "exitcode: -9")
    found = [
        record for record in records(STEPS + CRASH + killed + STEPS + CRASH + killed) if isinstance(record, LogEvent)
    ]
    once = [record for record in records(STEPS + CRASH + killed + CRASH + killed) if isinstance(record, LogEvent)]

    assert [(one.attempt, one.pid) for one in found if one.event == "exit"] == [(0, 3), (1, 3)]
    assert [one.attempt for one in found if one.event == "cuda_error"] == [0, 1]
    assert len(once) == 2


def test_all_of_an_attempt_that_ends_as_the_one_before_is_kept() -> None:
    """A traceback is whole when the log ends, and a summary has several ends: none is a repeat of the first attempt's."""
    raised = "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"t.py\", line 3, in main\n[rank1]: KeyError: 'x'\n"
    summary = "".join(
        f"[{place}]:\n  rank : {rank} (local_rank: {rank})\n  exitcode : {code} (pid: {rank})\n"
        for place, (rank, code) in enumerate(((0, -6), (1, 1)))
    )
    once = STEPS + raised + ENDED + "Failures:\n" + summary + "=" * 60 + "\n"

    found = [record for record in records(once + once) if isinstance(record, LogEvent)]
    said = [[(one.event, one.rank) for one in found if one.attempt == number] for number in (0, 1)]

    assert said[0] == said[1]
    assert len(said[0]) == 4


@pytest.mark.parametrize(
    "ended", [ENDED, "Killed\n", "[rank1]: Segmentation fault (core dumped)\n", "Fatal Python error: Aborted\n"]
)
@pytest.mark.parametrize("prefix", ["", "[rank0]: "])
def test_few_steps_of_other_ranks_begin_no_attempt(ended: str, prefix: str) -> None:
    """The others go on until they wait for the process that ended, or until their launcher ends them."""
    below = [f"{prefix}2026-11-22 10:00:0{step} step 1{step} loss 2.1\n" for step in range(8)]
    found = records("".join([*below[:3], ended, *below[3:]]))

    assert {record.attempt for record in found} == {None}
    assert "exit" in {record.event for record in found if isinstance(record, LogEvent)}


def test_own_steps_after_an_end_are_of_the_next_attempt() -> None:
    """The rank that ended is there again."""
    below = [f"[rank1]: 2026-11-22 10:00:0{step} step 1{step} loss 2.1\n" for step in range(8)]
    found = records("".join([*below[:3], "[rank1]: Segmentation fault (core dumped)\n", *below[3:]]))

    assert {record.attempt for record in found if isinstance(record, LogEvent)} == {0}


def test_the_newest_attempt_is_judged_and_the_others_are_named() -> None:
    """Three attempts: the window holds the last, and names the others."""
    mark = AGAIN + "restart_count={} master_addr=n1\n"
    text = STEPS + CRASH + ENDED + mark.format(1) + CRASH + ENDED + mark.format(2) + MISSING

    window = Window.build(records(text), None)

    assert (window.attempt, window.other_attempts) == (2, (0, 1))
    assert [event.exception for event in window.records_of(LogEvent)] == ["KeyError"]


def _stamped(minute: int, text: str) -> str:
    return f"2026-11-22 10:{minute:02}:00,000 {text}\n"


TRAINED = "".join(_stamped(step, f"step 1{step} loss 2.1") for step in range(5))
RESUMES = "Resuming from checkpoint step 12"


@pytest.mark.parametrize(
    "late",
    [
        "[rank0]: Traceback (most recent call last):\n" + MISSING,
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0\n",
    ],
)
def test_a_process_that_resumes_and_fails_before_its_first_step_is_the_next_attempt(late: str) -> None:
    """What it says is stamped later than the newest step: it has begun anew, and what fails now is its own."""
    found = attempts(TRAINED + CRASH + _stamped(8, RESUMES) + late)

    assert found.pop("cuda_error") == 0
    assert set(found.values()) == {1}


def test_the_same_error_after_a_resumption_is_of_the_next_attempt() -> None:
    """Repeats are folded within an attempt only."""
    found = records(TRAINED + CRASH + _stamped(8, RESUMES) + CRASH)

    assert [record.attempt for record in found if isinstance(record, LogEvent)] == [0, 1]


@pytest.mark.parametrize(
    "text",
    [
        TRAINED + CRASH + _stamped(1, RESUMES) + ENDED,  # of the start, held back until the process ended
        TRAINED + CRASH + RESUMES + "\n" + ENDED,  # the same, or not: nothing shows when it was written
        TRAINED + CRASH + _stamped(8, "restarting the job") + ENDED,  # a launcher's intent
        CRASH + _stamped(8, RESUMES) + MISSING,  # while the job starts up
    ],
)
def test_a_resumption_that_may_be_of_the_same_attempt_divides_nothing(text: str) -> None:
    """Without a stamp later than a step above it, the line may be of the attempt that failed."""
    assert {record.attempt for record in records(text)} == {None}


CAUGHT = "[n1:88 :0:88] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)\n"
CANCELLED = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-22T11:01:00 ***\n"


@pytest.mark.parametrize(("minutes", "attempt"), [(6, None), (40, 0)])
def test_a_step_of_slurm_that_is_cancelled_soon_after_an_end_is_the_same_attempt(
    minutes: int, attempt: int | None
) -> None:
    """srun cancels it for a task that failed; long after, another attempt may run in it."""
    later = "".join(_stamped(8 + minute, f"step {20 + minute} loss 2.1") for minute in range(minutes))
    found = records(TRAINED + CAUGHT + later + CANCELLED)

    assert next(record.attempt for record in found if isinstance(record, LogEvent)) == attempt


@pytest.mark.parametrize(
    "line", ["SLURM_RESTART_COUNT=1\n", 'export SLURM_RESTART_COUNT="1"\n', "attempt 2 of 5 to connect failed\n"]
)
def test_a_list_of_variables_and_an_attempt_of_something_else_begin_nothing(line: str) -> None:
    """What a failing process prints of its environment is of the same attempt."""
    assert set(attempts(STEPS + CRASH + ENDED + line + MISSING).values()) == {None}
