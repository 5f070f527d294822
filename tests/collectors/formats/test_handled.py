"""What a program logs and goes on from is no failure of it; what ended it is, whatever it printed before."""

from __future__ import annotations

import io

import pytest

from collectors.formats import Input
from collectors.formats.job_log import job_log
from collectors.records import LogEvent

RAISED = (
    'Traceback (most recent call last):\n  File "/app/metrics.py", line 31, in push\n    send(body)\n'
    "ValueError: bad metric\n"
)
EXIT = "E1122 10:01:10 40 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 42)\n"


def steps(first: int, last: int, *, stamp: bool = True) -> str:
    """Lines of steps, one a second."""
    stamps = (f"2026-11-22 10:00:{step:02},000 INFO " if stamp else "" for step in range(first, last + 1))
    return "".join(f"{said}step {step} loss {2 - step / 100:.3f}\n" for step, said in enumerate(stamps, first))


def tracebacks(text: str, rank: int | None = 0) -> int:
    """How many exceptions the log of a rank gives, or one that any rank may have written."""
    data = text.encode()
    records = list(job_log.read(Input("train.log", io.BytesIO(data), data, rank=rank)))
    return sum(isinstance(record, LogEvent) and record.event == "traceback" for record in records)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (steps(1, 20) + RAISED + steps(21, 59), 0),  # handled
        (steps(1, 20) + RAISED + steps(21, 22), 1),  # too few steps to say
        (steps(1, 20) + RAISED, 1),
        (RAISED + steps(1, 40, stamp=False), 1),  # print's lines, written when the interpreter ended
        (steps(1, 20) + RAISED + steps(21, 59) + EXIT, 1),  # its launcher reports that it failed
        (steps(1, 20) + RAISED + steps(21, 40) + RAISED, 1),  # the last of the same words ended it
        (steps(1, 20) + RAISED + steps(21, 40) + RAISED.replace("bad metric", "no batch"), 1),
        (
            steps(1, 20) + "".join(f"[rank2]: {line}\n" for line in RAISED.splitlines()) + steps(21, 59),
            1,
        ),  # another's steps
    ],
)
def test_an_exception_after_which_its_process_goes_on_is_handled(text: str, count: int) -> None:
    """Stamped steps of the same process come after it, and nothing says that the process failed."""
    assert tracebacks(text) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (steps(1, 20) + RAISED + steps(21, 26), 1),
        (steps(1, 20) + RAISED + steps(21, 36), 0),
        (steps(1, 20) + RAISED + steps(21, 24).replace("10:00:24", "10:01:04"), 0),  # over a minute
    ],
)
def test_few_steps_that_may_be_another_rank_s_show_nothing(text: str, count: int) -> None:
    """In a log of which no line names a rank, the others print some steps before they wait for the one that failed."""
    assert tracebacks(text, rank=None) == count
