"""What a log tells of another process, or of none: torchrun's two reports of one, quotations, advice, documents."""

from __future__ import annotations

import pytest

from tests.collectors.formats.test_job_log import events

AGENT = "E1117 12:00:00.5 9 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 1 (pid: 2630)"
SUMMARY = """
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-17_12:00:00
  host      : gpu-2
  rank      : {rank} (local_rank: 1)
  exitcode  : -9 (pid: 2630)
  traceback : Signal 9 (SIGKILL) received by PID 2630
============================================================
"""


@pytest.mark.parametrize("rank", [1, 9])
def test_the_two_reports_of_torchrun_are_of_one_process(rank: int) -> None:
    """The agent's line knows the local rank and the process; the summary below gives the process its rank."""
    found = events(AGENT + SUMMARY.format(rank=rank))

    assert [(each.event, each.rank) for each in found] == [("exit", rank), ("torchrun_failure", rank)]


def test_a_summary_of_another_process_lends_no_rank() -> None:
    """A second local process of a node whose ranks are not its local ranks stays without a rank."""
    other = AGENT.replace("local_rank: 1 (pid: 2630)", "local_rank: 3 (pid: 2632)")

    found = events(other + SUMMARY.format(rank=9))

    assert [(each.event, each.rank) for each in found] == [("exit", None), ("torchrun_failure", 9)]


LOST = "NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus"
CUDA = "CUDA error: uncorrectable ECC error encountered"


@pytest.mark.parametrize(
    "line",
    [
        "INFO: set CUDA_LAUNCH_BLOCKING=1 to debug CUDA errors",
        "set CUDA_LAUNCH_BLOCKING=1 to debug CUDA errors",
        f"2026-11-17 12:00:00 INFO watcher: retry policy covers {CUDA}",
        f"[2026-11-17 12:00:00,123][DEBUG] will restart after {CUDA}",
        f'"{LOST}" last week, and it was replaced',
        f'We saw "{LOST}" on gpu-3.',
        f"the run ended with `{CUDA}` and was restarted",
        f"a message (`{CUDA}`) is not shown",
    ],
)
def test_talk_of_a_fault_is_no_event(line: str) -> None:
    """A logger's advice and a quotation in a sentence report nothing."""
    assert events(line + "\n") == []


@pytest.mark.parametrize(
    "line",
    [
        f"RuntimeError: {CUDA}",
        f"[rank3]: RuntimeError: {CUDA}",
        f"2026-11-17 12:00:00 ERROR trainer: {CUDA}",
        f'{{"level": "error", "msg": "{CUDA}"}}',
        f'level=error msg="{CUDA}" step=7',
        f'terminate called: what():  "{CUDA}"',
        f"E1117 12:00:00.5 9 CUDAException.cpp:1] {CUDA} in `worker`",
        "CUDA error (719): unspecified launch failure",
    ],
)
def test_a_fault_that_a_program_prints_is_an_event(line: str) -> None:
    """The same words after a level of error, in a structured log or bare."""
    assert [each.event for each in events(line + "\n")] in (["cuda_error"], ["traceback"])


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (
            "gpu-3:41:77 [2] NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 7, vendor err 129",
            "network_error",
        ),
        ("NET/IB : Got completion with status=5 opcode=2", "connection_closed"),
        (
            "The node with node id: 3fa9 and ip: 10.0.0.4 has been marked dead because it missed heartbeats",
            "node_failure",
        ),
        ("slurmstepd: error: *** JOB 71 CANCELLED AT 2026-11-17T12:00:00 *** on gpu-3", "cancelled"),
        (
            "ERROR [core_client.py:600] Engine core proc EngineCore_0 died unexpectedly, shutting down client.",
            "worker_died",
        ),
    ],
)
def test_a_further_version_of_a_line_is_the_same_event(line: str, event: str) -> None:
    """NCCL without a peer, older Ray, Slurm with the node behind, vLLM's engine core."""
    assert [each.event for each in events(line + "\n")] == [event]


FAILED = "E1117 12:00:00.5 9 torch/distributed/elastic/multiprocessing/api.py:1] failed (exitcode: -9) local_rank: {} (pid: 88)\n"


@pytest.mark.parametrize(
    ("before", "rank"),
    [
        ("", None),  # the agent of any node may print it
        ("[default2]: starts\n[default2]: CUDA error: unknown error\n", None),  # as may its one process
        ("[default2]:[rank2]: CUDA error: unknown error\n", 2),  # this node's first rank is 0
        ("[default2]:[rank10]: CUDA error: unknown error\n", None),  # this is the second node
        ("".join(f"[default{place}]: CUDA error: unknown error\n" for place in range(3)), 2),
        ("".join(f"[default{place}]: CUDA error: unknown error\n" for place in (0, 1)), None),
    ],
)
def test_a_local_rank_is_a_rank_only_where_the_log_shows_it(before: str, rank: int | None) -> None:
    """torchrun's agent knows the number on its node."""
    *_, found = events(before + FAILED.format(2))

    assert (found.event, found.rank, found.local_rank) == ("exit", rank, 2)
