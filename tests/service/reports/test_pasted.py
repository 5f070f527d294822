"""What a report says of pasted lines: whom it names for an end from outside, and what to collect of which framework."""

from __future__ import annotations

import pytest

from analyzers.model.verdict import Verdict
from service.reports import story, text
from tests.analyzers.diagnosis.reported.excerpts import verdict_on
from tests.analyzers.remediation.test_plan_killed import KILL, answered, ended, judged

INTERRUPTED = '^CTraceback (most recent call last):\n  File "/w/train.py", line 9, in main\nKeyboardInterrupt\n'
NAN = "".join(f"2026-11-22 10:00:0{step} step {step} loss {'nan' if step > 3 else '2.1'}\n" for step in range(9))


def _on(pasted: str) -> Verdict:
    verdict = verdict_on(pasted)
    assert verdict is not None
    return verdict


def test_an_interrupted_job_was_stopped_by_a_person() -> None:
    """SIGINT comes from a key; nothing is wrong."""
    verdict = _on(NAN.replace("nan", "2.0") + INTERRUPTED)

    assert [(root.fault_class, root.cause) for root in verdict.roots] == [("interrupted", "none")]
    assert [line.who for line in story.headlines(verdict)] == [
        "A person stopped it (Ctrl-C), and nothing failed before"
    ]


@pytest.mark.parametrize(
    "end",
    [
        INTERRUPTED,
        "slurmstepd: error: *** JOB 811 ON gpu-1 CANCELLED AT 2026-11-22T10:20:00 ***\n",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 900 got signal: 15\n",
    ],
)
def test_numbers_that_went_wrong_before_the_end_lead(end: str) -> None:
    """Whoever ended the job answered them: the numbers are in the headline, and the end among what was rejected."""
    verdict = _on(NAN + end)
    (headline,) = story.headlines(verdict)

    assert verdict.symptom == "numeric"
    assert [(one.kind, one.ranks) for one in verdict.culprits] == [("code", ())]
    assert verdict.first_symptom is not None
    assert "NaN" in verdict.first_symptom.text
    assert [one.kind for one in verdict.rejected] == ["platform"]
    assert headline.what == "corrupts the job's numbers"


BROADCAST = (
    "INFO 06-12 08:11:00 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds.\n"
    "ERROR 06-12 08:12:00 [core_client.py:600] Engine core proc EngineCore_0 died unexpectedly, shutting down client.\n"
)
WATCHDOG = (
    "[rank1]:[E1122 10:00:00.5 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600100 milliseconds before\n"
)


def test_what_to_collect_fits_the_framework() -> None:
    """vLLM's collectives are not in PyTorch's recorder; of a job of torchrun they are."""
    asked, trained = (text.render(_on(pasted)) for pasted in (BROADCAST, WATCHDOG))

    assert "VLLM_LOGGING_LEVEL" in asked
    assert "TORCH_NCCL_DEBUG_INFO_PIPE_FILE" not in asked
    assert "VLLM_LOGGING_LEVEL" not in trained
    assert "TORCH_NCCL_DEBUG_INFO_PIPE_FILE" in trained


RESET = (
    '[rank3]: Traceback (most recent call last):\n[rank3]:   File "/w/train.py", line 8, in main\n[rank3]:     step()\n'
    "[rank3]: ConnectionResetError: [Errno 104] Connection reset by peer\n"
)
TABLE = "E1122 10:00:09.1 40 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 3 (pid: 43)\n"


def test_of_a_job_that_has_ended_no_stacks_are_asked() -> None:
    """A reset peer is a victim: nothing is named, a plain restart is offered, and what the job left may show more."""
    verdict = _on(RESET + TABLE)
    said = text.render(verdict)

    assert verdict.abstained
    assert (verdict.action.kind, verdict.action.nodes) == ("reattempt", ())
    assert "py-spy" not in said
    assert "stacks of all ranks" not in said
    assert "have ended" in said
    assert "dmesg" in said


def test_of_a_job_of_which_no_end_is_known_stacks_are_asked() -> None:
    """The control: without the launcher's report the others may still run."""
    verdict = _on(RESET)

    assert verdict.action.kind == "none"
    assert "py-spy" in text.render(verdict)


@pytest.mark.parametrize(
    ("raised", "advised"),
    [
        ("OSError: [Errno 98] Address already in use", "ss -ltnp"),
        ("torch.distributed.DistNetworkError: no address to listen on. port: 29511, code: -98, name: EADDRINUSE", "ss -ltnp"),
        ("OSError: [Errno 24] Too many open files", "ulimit -n"),
    ],
)  # fmt: skip
def test_what_a_host_has_no_more_of_is_given_before_a_restart(raised: str, advised: str) -> None:
    """A port that another process holds, and a limit of open files, meet the next start too."""
    verdict = _on(f'Traceback (most recent call last):\n  File "/w/train.py", line 8, in main\n    start()\n{raised}\n')
    said = " ".join(text.render(verdict).split())

    assert (verdict.cause, verdict.action.kind, verdict.action.nodes) == ("code", "none", ())
    assert advised in said
    assert "again as it is" not in said


LOW = "  Warning  Evicted  2m  kubelet  The node was low on resource: ephemeral-storage. Threshold quantity: 9Gi, available: 1Gi."


@pytest.mark.parametrize(
    ("said", "fault_class"),
    [
        (
            f"{LOW} Container t was using 300Gi, request is 0, has larger consumption of ephemeral-storage.",
            "used_too_much",
        ),
        ('Message:  Container t exceeded its local ephemeral storage limit "20Gi".', "used_too_much"),
        (
            f"{LOW} Container t was using 3Gi, request is 2500Mi, has larger consumption of ephemeral-storage.",
            "used_too_much",
        ),
        (
            f"{LOW} Container a was using 1Ki, request is 1Gi. Container t was using 4Gi, request is 1.5G.",
            "used_too_much",
        ),
        (
            "Message: The node was low on resource: memory. Container t was using 9Gi, which exceeds its request of 0.",
            "used_too_much",
        ),
        (
            "  Warning  Evicted  4m  kubelet  Pod ephemeral local storage usage exceeds the total limit of containers 2Gi.",
            "used_too_much",
        ),
        ('  Warning  Evicted  4m  kubelet  Usage of EmptyDir volume "tmp" exceeds the limit "1Gi".', "used_too_much"),
    ],
)
def test_who_was_evicted_for_its_own_use_is_not_started_again_as_it_is(said: str, fault_class: str) -> None:
    """It would use as much again."""
    verdict = _on(f"{said}\n")

    assert [root.fault_class for root in verdict.roots] == [fault_class]
    assert (verdict.cause, verdict.action.kind) == ("platform", "none")
    assert "evicted again" in " ".join(text.render(verdict).split())


@pytest.mark.parametrize(
    "numbers",
    [
        "was using 64Ki, request is 50Gi",
        "was using 900M, request is 1Gi",
        "was using some, request is 0",
        "was using 20Ki, request is 0",
    ],
)
def test_who_was_evicted_with_room_left_is_not_to_blame(numbers: str) -> None:
    """It used less than it asked for: its node ran short for another reason."""
    verdict = _on(f"{LOW} Container t {numbers}, has larger consumption of ephemeral-storage.\n")

    assert [root.fault_class for root in verdict.roots] == ["node_full"]
    assert verdict.action.kind == "none"


RAISED = 'Traceback (most recent call last):\n  File "/w/train.py", line 8, in main\n    start()\n'


@pytest.mark.parametrize(
    ("said", "fault_class", "advised"),
    [
        (
            "OSError: You are trying to access a gated repo.\nMake sure to have access at https://h.co/a/b.\n403 Client Error.\n",
            "access_refused",
            "HF_TOKEN",
        ),
        ("huggingface_hub.errors.GatedRepoError: 401 Client Error.\n", "access_refused", "HF_TOKEN"),
        ("OSError: a/b is not a local folder and is not a valid model identifier\n", "name_not_found", "the name"),
        ("OSError: v9 is not a valid git identifier (branch name)\n", "name_not_found", "the revision"),
        ("huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error.\n", "name_not_found", "the name"),
        ("OSError: [Errno 23] Too many open files in system: '/d/x'\n", "node_files_full", "fs.file-max"),
        (
            "botocore.exceptions.ClientError: An error occurred (RequestTimeTooSkewed) when calling PutObject: too far.\n",
            "clock_wrong",
            "chronyc",
        ),
    ],
)
def test_what_a_person_mends_first_is_not_started_again(said: str, fault_class: str, advised: str) -> None:
    """Access, a name, or a node's own table of files: each start meets them until then."""
    verdict = _on(RAISED + said)
    shown = " ".join(text.render(verdict).split())

    assert [root.fault_class for root in verdict.roots] == [fault_class]
    assert (verdict.action.kind, verdict.action.nodes) == ("none", ())
    assert advised in shown
    assert "ulimit" not in shown


@pytest.mark.parametrize(
    ("said", "advised"),
    [
        ("srun: error: Node failure on node17\n", "scontrol show node"),
        ("kernel: NVRM: Xid (PCI:0000:1b:00): 94, pid=77, name=python3, Contained: SM (0x1)\n", "Start the job again"),
        (
            "huggingface_hub.errors.GatedRepoError: 401 Client Error.\nCannot access gated repo for url https://huggingface.co/m/x.json.\n",
            "HF_TOKEN",
        ),
    ],
)
def test_the_advice_is_what_a_person_can_do_next(said: str, advised: str) -> None:
    """A node that does not answer is not tested yet, a contained error ends the program alone, an account is asked for."""
    verdict = _on(said)

    assert verdict.action.kind in {"probe", "none"}
    assert advised in " ".join(text.render(verdict).split())


TIMED_OUT = (
    "[E ProcessGroupNCCL.cpp:475] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={number}, "
    "OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600040 milliseconds before timing out.\n"
)
TAKEN_DOWN = "[E ProcessGroupNCCL.cpp:495] To avoid data inconsistency, we are taking the entire process down.\n"


def test_of_a_job_that_its_watchdog_ended_the_dumps_are_asked_that_it_left() -> None:
    """No process is left to ask: what it may have written at the time-out is, and how the next start writes it."""
    verdict = _on(TIMED_OUT.format(rank=3, number=7) + TAKEN_DOWN)
    said = " ".join(text.render(verdict).split())

    assert (verdict.symptom, verdict.abstained, verdict.coverage.has_ended) == ("hang", True, True)
    assert not any(word in said for word in ("Do not stop", "py-spy", "echo dump", "ps -wwe"))
    assert "have ended" in said
    assert "TORCH_NCCL_DUMP_ON_TIMEOUT=1" in said
    assert "comm_lib_trace_rank_" in said


def test_of_a_rank_that_is_behind_in_a_job_that_was_ended_the_dumps_are_asked_too() -> None:
    """Its numbers name it weakly, no process is left to look at, and the dumps would decide."""
    behind = "".join(
        f"[E ProcessGroupNCCL.cpp:2271] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] failure detected by watchdog at work "
        f"sequence id: {done + 1} PG status: last enqueued work: {done + 1}, last completed work: {done}\n"
        for rank, done in ((0, 90), (1, 90), (2, 88))
    )
    verdict = _on(behind + TAKEN_DOWN)
    said = " ".join(text.render(verdict).split())

    assert [culprit.ranks for culprit in verdict.culprits] == [(2,)]
    assert verdict.action.kind == "probe"
    assert "comm_lib_trace_rank_" in said
    assert "still hangs" not in said


def test_of_a_job_that_may_still_hang_no_end_is_claimed() -> None:
    """The control: a watchdog that only gave up on an operation may belong to a process that runs on."""
    verdict = _on(TIMED_OUT.format(rank=3, number=7))

    assert not verdict.coverage.has_ended
    assert "Do not stop" in text.render(verdict)


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("    State:  Terminated\n      Reason:  Error\n      Exit Code:  137\n", "kubectl logs POD --previous"),
        ("    Last State:  Terminated\n      Reason:  Error\n      Exit Code:  139\n", "kubectl describe pod"),
        ("    Last State:  Terminated\n      Reason:  Error\n      Exit Code:  1\n", "kubectl logs POD --previous"),
        (
            "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker PID: 77\n",
            "/tmp/ray/session_latest/logs",
        ),
        ("The actor is dead because its worker process has died.\n", "/tmp/ray/session_latest/logs"),
    ],
)
def test_of_a_process_that_is_gone_what_it_left_is_asked(said: str, asked: str) -> None:
    """A container's or a Ray worker's end leaves no stack: its own log, its status and the node's kernel log are there."""
    verdict = _on(said)
    shown = " ".join(text.render(verdict).split())

    assert verdict.coverage.has_ended
    assert "py-spy" not in shown
    assert asked in shown
    assert "dmesg" in shown


def test_a_row_that_was_not_remapped_asks_for_a_new_gpu() -> None:
    """No reset mends it, and the flag stays: the vendor's field diagnostic confirms it, and the GPU is replaced."""
    verdict = _on(
        "\n==============NVSMI LOG==============\n\nAttached GPUs                             : 8\nGPU 00000000:1B:00.0\n"
        "    Product Name                          : NVIDIA H100 80GB HBM3\n    Remapped Rows\n"
        "        Correctable Error                 : 0\n        Uncorrectable Error               : 1\n"
        "        Pending                           : No\n        Remapping Failure Occurred        : Yes\n"
    )
    shown = " ".join(text.render(verdict).split())

    assert [root.fault_class for root in verdict.roots] == ["gpu_rows_spent"]
    assert (verdict.cause, verdict.action.kind) == ("machine", "probe")
    assert "RMA" in shown
    assert "Reset device" not in shown


def test_who_waits_in_an_undecided_hang_is_not_acquitted() -> None:
    """Numbers far apart are of two communicators, or of one rank far behind: no one is called innocent."""
    verdict = _on(TIMED_OUT.format(rank=0, number=9000) + TIMED_OUT.format(rank=2, number=41))

    assert verdict.abstained
    assert "without fault" not in text.render(verdict)
    assert "what for is not decided: 0 and 2" in " ".join(text.render(verdict).split())


@pytest.mark.parametrize("stamp", ["E1122 10:00:09.1 40 ", ""])
def test_who_was_killed_brought_nothing_down(stamp: str) -> None:
    """The headline says what is known: the signal, and that nothing shows who sent it."""
    killed = (
        f"{stamp}torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -9) local_rank: 3 (pid: 43)\n"
    )
    (headline,) = story.headlines(_on(killed))

    assert str(headline).startswith("Local rank 3 was killed (SIGKILL)")
    assert str(headline).endswith("nothing read shows by whom")
    assert "brought" not in str(headline)


def test_before_a_killed_ranks_machine_is_tested_its_killer_is_looked_for() -> None:
    """SIGKILL has a sender, and a machine is the last of those that it may be."""
    said = text.render(judged(ended(1, 100.0, KILL, 3), *answered()))

    assert "First: who killed the process? On gpu1" in " ".join(said.split())
    assert "Evict node" not in said
