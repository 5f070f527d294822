"""``[r2] `` at a line's head is a rank where a whole world's numbers have such lines, and else none."""

from __future__ import annotations

import io

import pytest

from collectors.formats import Input
from collectors.formats.job_log.job_log import read
from collectors.records import LogEvent

FAILS = (
    "Traceback (most recent call last):", '  File "/srv/run/load.py", line 12, in load', "    open(path)",
    "ValueError: a row of 3 columns where 4 were expected",
)  # fmt: skip


def ranks_of(text: str) -> list[int | None]:
    """Return the ranks of the exceptions of a log."""
    data = text.encode()
    events = read(Input("job.log", io.BytesIO(data), data))
    return [one.rank for one in events if isinstance(one, LogEvent) and one.event == "traceback"]


def log(label: str, numbers: range, *others: str) -> str:
    """Return a log in which each number takes two steps, and then the last one raises."""
    steps = [f"{label.format(number)}step {step} loss 2.{step}" for step in (1, 2) for number in numbers]
    return "\n".join([*others, *steps, *(f"{label.format(numbers[-1])}{line}" for line in FAILS)]) + "\n"


@pytest.mark.parametrize(
    "label", ["[r{}] ", "[r{}]: ", "r{}: ", "r{} | ", "(r{}) ", "rank{}: ", "Rank {}: ", "rank {} | "]
)
def test_a_short_label_is_read_as_a_rank(label: str) -> None:
    """People prefix lines so by hand or with sed: each process is another stream then, too."""
    assert ranks_of(log(label, range(4))) == [3]


def test_each_label_is_a_stream_of_its_own() -> None:
    """Interleaved tracebacks of two ranks are two."""
    both = "".join(f"[r{rank}] {line}\n" for line in FAILS for rank in (0, 1))

    assert ranks_of(both) == [0, 1]


@pytest.mark.parametrize(
    "text",
    [
        log("[r{}] ", range(2, 5)),  # no world
        log("[r{}] ", range(2, 3)),  # one number
        log("[R{}] ", range(4)),  # regions
        log("[r{}] ", range(4), "serving 4 replicas of the model"),
        log("[r{}] ", range(4), "world_size: 16"),
        log("[r{}] [rank7]: ", range(4)),
        log("[r{}] rank=7 ", range(4)),
        "[r0] up\n[r1] up\n[r2] up\n" + "\n".join(FAILS) + "\n",  # a list, one line each
        "\n".join(f"plain line {number}" for number in range(40)) + "\n" + log("[r{}] ", range(4)),  # a few lines
    ],
    ids=["not from 0", "one", "regions", "replicas", "another size", "a rank beside", "a rank within", "a list", "few"],
)
def test_other_labels_are_no_ranks(text: str) -> None:
    """Less than a whole world's labels names no rank, nor where a line contradicts it."""
    assert set(ranks_of(text)) <= {None, 7}


def test_the_world_that_a_log_states_agrees() -> None:
    """The control: with its own number stated, the labels are ranks."""
    assert ranks_of(log("[r{}] ", range(4), "world_size: 4")) == [3]
