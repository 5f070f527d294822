"""The rank of a line that gives none, from other lines of its stream or its process."""

from __future__ import annotations

import pytest

from tests.collectors.formats.test_job_log import WATCHDOG, events, traceback


def test_a_stream_learns_its_rank_from_a_later_line() -> None:
    """A Ray actor's lines get the rank that torch prints for the same actor, the others stay without."""
    text = "(W pid=11, ip=10.0.0.7) CUDA error: an illegal memory access was encountered\n(W pid=11, ip=10.0.0.7) "
    text += WATCHDOG + "\n(W pid=12, ip=10.0.0.8) CUDA error: unspecified launch failure\n"

    assert [(event.event, event.rank) for event in events(text)] == [
        ("cuda_error", 7),
        ("watchdog_timeout", 7),
        ("cuda_error", None),
    ]


@pytest.mark.parametrize(("pids", "ranks"), [((11, 12), [0, 1]), ((11, 11), [0, 1]), ((11, 12, 21), [None] * 3)])
def test_the_workers_of_several_engines_have_no_rank_of_their_own(
    pids: tuple[int, ...], ranks: list[int | None]
) -> None:
    """Each of vLLM's engines numbers its workers from 0: where two processes have one number, none is a rank."""
    text = "".join(
        f"(EngineWorker rank={number % 2} pid={pid}) CUDA error: unspecified launch failure {number}\n"
        for number, pid in enumerate(pids)
    )

    assert [event.rank for event in events(text)] == ranks


EXHAUSTED = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. {held} Of it 9.00 GiB is torch's"
REPORTED = """E1117 12:00:09.1 40 torch/distributed/elastic/x.py:8] failed (exitcode: 1) local_rank: 3 (pid: 4711)
Root Cause (first observed failure):
[0]:
  time      : 2026-11-17_12:00:09
  host      : n7
  rank      : 11 (local_rank: 3)
  exitcode  : 1 (pid: 4711)
  error_file: <N/A>
"""


@pytest.mark.parametrize(
    ("held", "rank"),
    [
        ("Process 4711 has 70.10 GiB memory in use.", 11),
        ("Process 4712 has 70.10 GiB memory in use.", None),
        ("Process 4711 has 30.10 GiB memory in use. With all, this process has 40.00 GiB memory in use.", None),
    ],
    ids=["its own number", "of a process that no line knows", "another beside itself"],
)  # fmt: skip
def test_the_number_of_a_process_that_ran_out_of_memory_gives_its_rank(held: str, rank: int | None) -> None:
    """The launcher's report holds the number with the rank."""
    found = events(traceback(EXHAUSTED.format(held=held)) + REPORTED)

    assert [event.rank for event in found if event.event == "traceback"] == [rank]
