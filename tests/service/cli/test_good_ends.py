"""Logs of jobs that say that they have finished: what failed before, or while the program was ended, is no fault of theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.model.verdict import Verdict
from collectors.formats.prose.good_ends import finished_at
from service.cli.diagnose import NothingUsed, judged
from service.cli.hosts import Hosts
from service.cli.speech import Speech
from service.packaged_knowledge import load
from service.reports.story import headlines

STEPS = "".join(f"step {step} loss {3 - step / 100:.3f}\n" for step in range(1, 31))
AGENT = "1122 10:00:01.5 9 torch/distributed/elastic/agent/server/api.py:5] [default] "
RESTARTED = (
    f"E{AGENT}failed (exitcode: -9) local_rank: 1 (pid: 31)\n"
    f"I{AGENT}Rendezvous complete for workers. Result:\n  restart_count=1\n"
)
FINISHED = f"I{AGENT}worker group successfully finished. Waiting 300 seconds for other agents to finish.\n"
SAVED = "2026-11-22 10:00:00 INFO saved final checkpoint to /out/last\n"
AT_EXIT = (
    "Traceback (most recent call last):\n"
    '  File "/usr/lib/python3.12/multiprocessing/util.py", line 303, in _run_finalizers\n    finalizer()\n'
    '  File "/usr/lib/python3.12/shutil.py", line 752, in rmtree\n    onexc(os.rmdir, path, err)\n'
    "OSError: [Errno 39] Directory not empty: '/tmp/pymp-41'\n"
)
IGNORED = (
    "Exception ignored in: <function Pool.__del__ at 0x7f00>\nTraceback (most recent call last):\n"
    '  File "/usr/lib/python3.12/multiprocessing/pool.py", line 271, in __del__\n    self._change_notifier.put(None)\n'
    "OSError: [Errno 9] Bad file descriptor\n"
)
RAISED = (
    'Traceback (most recent call last):\n  File "/app/train.py", line 90, in main\n    report(run)\n'
    "KeyError: 'owner'\n"
)
POD = """\
Name:             trainer-3
Status:           {status}
Containers:
  main:
    State:          {state}
      Reason:       {reason}
      Exit Code:    {code}
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
    Ready:          False
    Restart Count:  1
Events:           <none>
"""
ENDED_WELL = POD.format(status="Succeeded", state="Terminated", reason="Completed", code=0)


def verdict_on(text: str, folder: Path) -> Verdict:
    """Judge one log as the command line does."""
    path = folder / "train.log"
    path.write_text(text, encoding="utf-8")
    return judged([path], load(), Hosts.given(None, None), Speech(quiet=True), workers=1)[0]


@pytest.mark.parametrize(
    "text",
    [STEPS + RESTARTED + STEPS + FINISHED, STEPS + SAVED + AT_EXIT, STEPS + SAVED + IGNORED, ENDED_WELL],
    ids=["started again", "at exit", "ignored by Python", "a pod started again"],
)
def test_a_job_that_says_that_it_has_finished_has_no_fault(text: str, tmp_path: Path) -> None:
    """Nothing is named, and nothing is started again."""
    verdict = verdict_on(text, tmp_path)

    assert (verdict.cause, verdict.abstained, verdict.culprits, verdict.action.kind) == ("none", False, (), "none")
    assert "finished" in verdict.action.why
    assert str(headlines(verdict)[0]).startswith("No fault found")


@pytest.mark.parametrize(
    "text",
    [
        STEPS + RESTARTED + STEPS,
        STEPS + SAVED + RAISED,
        STEPS + FINISHED + "my job hangs after that and I have to kill it\n",
        POD.format(status="Failed", state="Terminated", reason="Error", code=1),
        POD.format(status="Running", state="Waiting", reason="CrashLoopBackOff", code=1),
    ],
    ids=[
        "still running",
        "raised after it",
        "a person's words",
        "a pod that failed",
        "a pod that fails again and again",
    ],
)
def test_what_does_not_end_well_is_no_good_end(text: str, tmp_path: Path) -> None:
    """The controls: no word of an end, trouble after it, a person who tells of it, and pods that did not end well."""
    assert finished_at(text) is None
    try:
        verdict = verdict_on(text, tmp_path)
    except NothingUsed:
        return
    assert "finished" not in verdict.action.why


def test_how_a_pod_ended_that_fails_again_and_again_counts(tmp_path: Path) -> None:
    """Only a container that has ended well since leaves its last state behind."""
    failed = POD.format(status="Running", state="Waiting", reason="CrashLoopBackOff", code=1)

    assert verdict_on(failed, tmp_path).symptom == "crash"


def numbered(first: int, last: int) -> str:
    """Lines of steps without a stamp, of two ranks."""
    return "".join(f"[rank{rank}] step {step} loss 2.1\n" for step in range(first, last + 1) for rank in (0, 1))


FAULT = "[rank1]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
LOST = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-22T10:00:00 DUE TO NODE FAILURE ***\n"
DONE = "Training complete, exiting 0\n"


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        (
            numbered(1, 20)
            + FAULT
            + "[agent] restarting worker group on spare n9 (n2 cordoned)\n"
            + numbered(21, 50)
            + DONE,
            "ECC",
        ),
        (
            numbered(1, 20) + FAULT + "launcher: relaunched all 2 ranks, n2 replaced by n9\n" + numbered(15, 50) + DONE,
            "ECC",
        ),
        (LOST + "Resuming from checkpoint step 20 (SLURM_RESTART_COUNT=1)\n" + STEPS + DONE, "NODE FAILURE"),
        (STEPS + LOST + "Resumed training at step 25\n" + STEPS + "Job completed\n", "NODE FAILURE"),
    ],
    ids=["spare", "other words", "requeued", "requeued with the steps before"],
)
def test_what_failed_before_the_job_went_on_is_said_and_asks_for_no_test(
    text: str, failed: str, tmp_path: Path
) -> None:
    """The ranks may run on other nodes since: no node of today is named."""
    verdict = verdict_on(text, tmp_path)

    assert (verdict.cause, verdict.culprits, verdict.action.kind) == ("none", (), "none")
    assert "an earlier attempt failed" in verdict.action.why
    assert failed in verdict.action.why


@pytest.mark.parametrize(
    "text",
    [
        numbered(1, 20)
        + FAULT
        + "[agent] restarting worker group on spare n9 (n2 cordoned)\n",  # nothing shows that it did
        numbered(1, 20) + FAULT + "[agent] restarting worker group on spare n9\n" + numbered(21, 23),
        numbered(1, 20) + FAULT + numbered(21, 50),  # nothing says that it was started again
        "Resuming from checkpoint step 20\n" + numbered(1, 40) + FAULT,
        numbered(1, 20) + "[agent] restarting worker group on spare n9\n" + numbered(21, 50) + FAULT,
    ],
    ids=["only said", "few steps", "not said", "before the fault", "before another fault"],
)
def test_a_failure_after_which_no_attempt_goes_on_is_named(text: str, tmp_path: Path) -> None:
    """What only announces another attempt hides nothing."""
    verdict = verdict_on(text, tmp_path)

    assert (verdict.cause, [culprit.ranks for culprit in verdict.culprits]) == ("machine", [(1,)])


OOM = "[rank0]: {} torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79 GiB{}\n"
FURTHER = "".join(f"step {step} loss {3 - step / 100:.3f}\n" for step in range(31, 61))
CAUGHT = OOM.format("caught", "; halving the micro batch to 4 and retrying")
SKIPPED = "WARNING skipping batch 9: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.\n"


@pytest.mark.parametrize("text", [STEPS + line + FURTHER + end
                                  for line in (CAUGHT, SKIPPED) for end in ("Training finished in 0:12:31\n", "")])  # fmt: skip
def test_an_error_that_the_program_caught_is_no_fault_once_steps_go_on(text: str, tmp_path: Path) -> None:
    """The steps are another process's or no process's by name, and they are many."""
    verdict = verdict_on(text, tmp_path)

    assert (verdict.cause, verdict.culprits, verdict.action.kind) == ("none", (), "none")


@pytest.mark.parametrize(
    "text",
    [
        STEPS + CAUGHT,
        STEPS + CAUGHT + "step 31 loss 2.6\n",
        STEPS + OOM.format("", "") + FURTHER,
        STEPS + CAUGHT + FURTHER + OOM.format("", ""),
        STEPS + CAUGHT + FURTHER + "srun: error: n1: task 0: Exited with exit code 1\n",
        CAUGHT + STEPS,
    ],
    ids=["the last", "one more step", "not caught", "again", "its process failed", "no steps before"],
)
def test_an_error_that_may_have_ended_it_is_named(text: str, tmp_path: Path) -> None:
    """A program may say that it tries again, and fail all the same."""
    verdict = verdict_on(text, tmp_path)

    assert (verdict.symptom, [culprit.ranks for culprit in verdict.culprits]) == ("crash", [(0,)])


def test_where_nothing_says_that_it_has_finished_what_failed_before_is_said(tmp_path: Path) -> None:
    """The job may run: nothing is named, and nothing is called sound."""
    verdict = verdict_on(
        numbered(1, 20) + FAULT + "[agent] restarting worker group on spare n9\n" + numbered(21, 50), tmp_path
    )

    assert (verdict.abstained, verdict.culprits) == (True, ())
    assert "an earlier attempt failed (rank 1: RuntimeError: CUDA error" in verdict.missing[0].what


def test_the_failure_of_the_attempt_before_is_stated_and_accuses_no_one(tmp_path: Path) -> None:
    """What is named is of the newest attempt, and the error of the one before is stated as that."""
    late = FAULT.replace("rank1", "rank0").replace("rank 1", "rank 0")
    verdict = verdict_on(numbered(1, 20) + FAULT + "[agent] restarting workers\n" + numbered(21, 50) + late, tmp_path)

    assert [culprit.ranks for culprit in verdict.culprits] == [(0,)]
    (before,) = verdict.rejected
    assert (before.id, before.why[:37]) == ("1", "the attempt before failed of it (rank")


STORE_GONE = "[rank1]:[W1120 09:02:42.9 TCPStore.cpp:125] [c10d] recvValue failed: failed to recv, got 0 bytes\n"
ABORTED = "terminate called without an active exception\nsrun: error: n2: task 1: Aborted (core dumped)\n"
WELL = "[rank0] train: Training complete. Final loss 2.31. Saved to /ckpt/final\n"


def test_what_a_process_dies_of_after_the_job_has_finished_names_nobody(tmp_path: Path) -> None:
    """It lost nothing: no machine is probed for it."""
    verdict = verdict_on(numbered(1, 20) + WELL + STORE_GONE + ABORTED, tmp_path)

    assert (verdict.cause, verdict.culprits, verdict.action.kind) == ("none", (), "none")
    assert "as it ended" in verdict.action.why


@pytest.mark.parametrize(
    "text",
    [numbered(1, 20) + STORE_GONE + ABORTED + WELL, numbered(1, 20) + STORE_GONE + ABORTED, WELL + RAISED + ABORTED],
)
def test_what_a_process_dies_of_otherwise_is_named(text: str, tmp_path: Path) -> None:
    """Before the end, without one, or of an exception."""
    assert verdict_on(text, tmp_path).cause != "none"


def test_megatrons_last_line_is_a_good_end() -> None:
    """It prints no other."""
    assert (
        finished_at("iteration 10/ 10 | lm loss: 2.1E+00 |\n[after training is done] datetime: 2026-11-20 09:12:01 \n")
        == 2
    )
