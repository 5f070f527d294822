"""Ends that are easily misread: Ctrl-C, a launcher's line of the very process that failed, waits of other accelerators."""

from __future__ import annotations

import io

import pytest

from analyzers.model.topology import infer
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.formats import Input
from collectors.formats.job_log import job_log
from service.packaged_knowledge import load
from service.reports import story
from tests.analyzers.diagnosis.reported.excerpts import verdict_on

DEEPSPEED = "[2026-04-14 13:11:27,87{}] [INFO] [launch.py:428:sigkill_handler] Killing subprocess {}\n"
RETURNED = (
    "[2026-04-14 13:11:27,885] [ERROR] [launch.py:434:sigkill_handler] ['/usr/bin/python3', '-u', 'main.py', "
    "'--local_rank=0', '--deepspeed'] exits with return code = -9\n"
)
RAISED = 'Traceback (most recent call last):\n  File "/w/train.py", line 9, in main\n    step()\n'


def judged(text: str) -> Verdict:
    """The verdict on a pasted text."""
    verdict = verdict_on(text, load())
    assert verdict is not None
    return verdict


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (
            "W1121 11:35:25 4 torch/distributed/elastic/agent/server/api.py:739] Received {} death signal, shutting down workers",
            "",
        ),
        (RAISED + "KeyboardInterrupt\n" + "Received {} death signal, shutting down workers\n", "SIGINT"),
    ],
)
@pytest.mark.parametrize(("number", "signal"), [(1, "SIGHUP"), (2, "SIGINT"), (15, "SIGTERM")])
def test_the_signal_that_ended_a_job_is_named(text: str, word: str, number: int, signal: str) -> None:
    """Only SIGTERM asks to end; nobody ended it for another's failure where nobody failed."""
    verdict = judged(text.format(number))
    said = repr(verdict)

    assert verdict.cause == "platform"
    assert word or signal in said
    assert word in said
    assert "after another had failed" not in said


def test_a_process_that_another_replaced_has_raised_nothing() -> None:
    """faulthound_roles tells it by an exception that its instance has a higher epoch: no error of the program."""
    fenced = judged(RAISED + "faulthound_roles.Fenced: trainer 0 of epoch 7 was replaced\n")

    assert (fenced.culprits, fenced.cause, fenced.action.kind) == ((), "unknown", "none")


@pytest.mark.parametrize("pids", [(100,), (100, 101)])
def test_a_launchers_lines_of_processes_that_it_ends_show_no_other(pids: tuple[int, ...]) -> None:
    """DeepSpeed reports each process that it ends, the failed one too: its lines alone do not blame a machine."""
    assert judged("".join(DEEPSPEED.format(place, pid) for place, pid in enumerate(pids)) + RETURNED).cause == "unknown"


@pytest.mark.parametrize(
    "message",
    [
        "RuntimeError: HCCL error in: torch_npu/csrc/distributed/ProcessGroupHCCL.cpp:64",
        "RuntimeError: ACL stream synchronize failed, error code:507048\nEI9999: the task waits for a stuck notify",
    ],
)
def test_a_wait_of_another_accelerators_library_is_no_exception_of_the_program(message: str) -> None:
    """HCCL's timeouts are echoes, as NCCL's are."""
    assert judged(RAISED + message + "\n").cause == "unknown"


def test_a_device_that_an_earlier_job_holds_is_the_platforms() -> None:
    """CANN refuses a device whose last process has not ended."""
    assert (
        judged(RAISED + "RuntimeError: EJ0001: Failed to init; the last training process is running\n").cause
        == "platform"
    )


def test_a_lost_heartbeat_is_an_end_and_no_wait() -> None:
    """JAX's coordination service names the task that no longer answers."""
    verdict = judged(
        "E0000 00:00:1795260925.1 77 coordination_service.cc:1000] /job:jax_worker/replica:0/task:3 heartbeat timeout. "
        "This indicates that the remote task has failed. Task /job:jax_worker/replica:0/task:3 heartbeat timeout\n"
    )

    assert (verdict.symptom, [each.ranks for each in verdict.culprits]) == ("crash", [(3,)])
    assert "heartbeats stopped" in repr(verdict)
    assert "is behind" not in repr(verdict)
    assert verdict.action.kind != "evict"


def test_one_rank_out_of_memory_is_not_called_uneven_work() -> None:
    """Of one GPU's memory alone, how the others' shares compare is unknown."""
    verdict = judged(RAISED + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")

    assert verdict.cause == "code"
    assert "uneven:" not in verdict.action.why


LOCAL = (
    "E1122 10:03:11.120000 4242 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: -9) local_rank: 5 "
    "(pid: 98121)\n"
)


@pytest.mark.parametrize(("node", "kind", "name"), [(None, "rank", "local rank 5"), ("gpu-7", "node", "gpu-7")])
def test_a_process_known_by_its_local_rank_is_no_rank_of_the_job(node: str | None, kind: str, name: str) -> None:
    """One line of torchrun's agent names the process on its node, and nothing names the rank in the job."""
    data = LOCAL.encode()
    window = Window.build(list(job_log.read(Input("job.log", io.BytesIO(data), data, node=node))))
    verdict = judge(window, infer(window), load())

    assert [(one.kind, one.id, one.ranks) for one in verdict.culprits] == [(kind, name, ())]
    assert "local rank 5" in repr(verdict)
    assert verdict.action.kind != "evict"
    assert verdict.coverage.ranks_seen == 0
    named = story.headlines(verdict)[0].who
    assert named == ("Node gpu-7" if node else "Local rank 5")


def test_memory_that_ran_out_is_told_in_the_words_of_the_log() -> None:
    """Slurm's line gives no signal's number: none is reported."""
    verdict = verdict_on("srun: error: gpu-0107: task 19: Out Of Memory\n", load())

    assert "signal" not in verdict.culprits[0].why
    assert "Out Of Memory" in verdict.culprits[0].why


def test_accounting_takes_no_verdict_away() -> None:
    """The table beside srun's lines, its state cut off by the column's width: the same rank's memory, as without it."""
    table = "JobID JobName State ExitCode NodeList\n5521.0 train OUT_OF_ME+ 0:125 gpu-[0105-0108]\n"
    lines = "srun: error: gpu-0107: task 19: Out Of Memory\nsrun: error: gpu-0105: tasks 0-7: Terminated\n"

    assert [one.ranks for one in verdict_on(lines + table, load()).culprits] == [(19,)]
    assert verdict_on(table, load()).roots[0].fault_class == "host_oom"


@pytest.mark.parametrize(
    "line",
    [
        "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
    ],
)
def test_a_log_cut_within_an_error_of_cuda_does_not_deny_the_machine(line: str) -> None:
    """Wherever its last line ends: only a whole message decides, and what is missing of it is asked for."""
    first = line.index("CUDA") + 4 if line.startswith("RuntimeError") else 1
    for end in range(first, len(line)):
        verdict = judged(RAISED + line[:end])
        assert verdict.cause in {"unknown", "machine"}, line[:end]
        assert verdict.action.kind != "reattempt", line[:end]
    cut = judged(RAISED + line.partition(" error: ")[0] + " error: un")
    assert cut.cause == "unknown"
    assert any("rest of the line" in each.what for each in cut.missing)


@pytest.mark.parametrize(
    "message", ["CUDA error: invalid configuration argument", "invalid shard", "C", "CUDA is slow"]
)
def test_a_whole_message_that_is_of_no_device_stays_the_programs(message: str) -> None:
    """Its error is read: nothing of it is missing."""
    assert judged(RAISED + "RuntimeError: " + message).cause == "code"


SHOWN = """\
[rank3]: Fatal Python error: Segmentation fault
[rank3]:
[rank3]: Current thread 0x00007f52 (most recent call first):
[rank3]:   File "/opt/venv/lib/python3.11/site-packages/clips/reader.py", line 88 in frames
[rank3]:   File "/job/data.py", line 12 in __getitem__
[rank1]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error
"""


def test_a_crash_in_native_code_that_its_own_lines_show_is_its_librarys_beside_ranks_that_lost_it() -> None:
    """What the others did changes nothing: the process shows in which call of which library it was."""
    verdict = judged(SHOWN)

    assert (verdict.cause, verdict.roots[0].fault_class) == ("code", "crashed_in_library")
    assert (verdict.culprits[0].ranks, verdict.action.nodes) == ((3,), ())
