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


def test_the_newest_attempt_is_judged_and_the_others_are_named() -> None:
    """Three attempts: the window holds the last, and names the others."""
    mark = AGAIN + "restart_count={} master_addr=n1\n"
    text = STEPS + CRASH + ENDED + mark.format(1) + CRASH + ENDED + mark.format(2) + MISSING

    window = Window.build(records(text), None)

    assert (window.attempt, window.other_attempts) == (2, (0, 1))
    assert [event.exception for event in window.records_of(LogEvent)] == ["KeyError"]
