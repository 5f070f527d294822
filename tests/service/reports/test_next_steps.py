"""What a report advises fits the library that collectives run on, and a job whose processes have ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.model.verdict import Action, Coverage, Culprit, Root, Verdict
from service.cli.diagnose import judged
from service.cli.hosts import Hosts
from service.cli.speech import Speech
from service.packaged_knowledge import load
from service.reports import advice, next_steps, text
from tests.analyzers.diagnosis.reported.excerpts import verdict_on

TIMED_OUT = (
    '[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]:   File "/w/train.py", line 9, in main\n'
    "[rank{rank}]:     dist.all_reduce(x)\n[rank{rank}]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/"
    "unbound_buffer.cc:81] Timed out waiting 60000ms for recv operation to complete\n"
)
WATCHDOG = (
    "[rank1]:[E1122 10:00:00.5 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600100 milliseconds before\n"
)
STACK = (
    'Process {pid}: python train.py\nPython v3.12.3 (/usr/bin/python3.12)\n\nThread {pid} (idle): "MainThread"\n'
    "    {frame} (libtorch_cpu.so)\n    all_reduce (torch/distributed/distributed_c10d.py:2806)\n    train (train.py:40)\n"
)
FAILED = (
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
    + "=" * 60
    + "\ntrain.py FAILED\n"
    + "-" * 60
    + "\n"
    "Root Cause (first observed failure):\n[0]:\n  time      : 2026-03-01_10:00:01\n  host      : gpu-01\n"
    "  rank      : 3 (local_rank: 3)\n  exitcode  : 1 (pid: 4512)\n  error_file: <N/A>\n"
    "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n" + "=" * 60 + "\n"
)


def _on(pasted: str) -> Verdict:
    verdict = verdict_on(pasted)
    assert verdict is not None
    return verdict


def _of_stacks(folder: Path, frame: str, log: str = "") -> Verdict:
    for rank in (0, 1, 3):
        (folder / f"stacks_rank{rank}.txt").write_text(STACK.format(pid=1000 + rank, frame=frame), encoding="utf-8")
    if log:
        (folder / "job.log").write_text(log, encoding="utf-8")
    verdict, _, _ = judged([folder], load(), Hosts.given(None, None), Speech(quiet=True), workers=1)
    return verdict


def test_a_job_whose_lines_show_gloo_is_given_no_advice_of_nccl() -> None:
    """No variable makes gloo write a dump; the control's watchdog is NCCL's, and gets no advice of gloo."""
    verdict, control = _on("".join(TIMED_OUT.format(rank=rank) for rank in (0, 1, 3))), _on(WATCHDOG)

    assert (verdict.abstained, verdict.coverage.backends) == (True, ("gloo",))
    assert "NCCL" not in text.render(verdict)
    assert "faulthound_probe" in text.render(verdict)
    assert control.coverage.backends == ("nccl",)
    assert "TORCH_NCCL_DEBUG_INFO_PIPE_FILE" in text.render(control)
    assert "gloo" not in text.render(control)


@pytest.mark.parametrize(
    ("frame", "backend"),
    [("gloo::transport::tcp::UnboundBuffer::waitRecv", "gloo"), ("c10d::ProcessGroupNCCL::WorkNCCL::wait", "nccl")],
)
def test_frames_show_the_library(frame: str, backend: str, tmp_path: Path) -> None:
    """Stacks with native frames name it where no line does."""
    verdict = _of_stacks(tmp_path, frame)

    assert verdict.coverage.backends == (backend,)
    assert ("TORCH_NCCL" in text.render(verdict)) == (backend == "nccl")


def test_where_both_libraries_are_seen_nccl_is_advised() -> None:
    """A job on GPUs has groups of gloo beside its own."""
    both = Coverage(sources={"log_event": 2}, backends=("gloo", "nccl"))

    assert not advice.no_nccl(Verdict(symptom="hang", cause="unknown", abstained=True, coverage=both))


def test_without_gpus_nccl_is_not_advised() -> None:
    """Agents looked for GPUs and found none: NCCL needs one."""
    without = Coverage(sources={"coverage": 4, "stacks": 4}, has_gpus=False)
    verdict = Verdict(symptom="hang", cause="network", abstained=True, coverage=without)

    assert "faulthound_probe" in next_steps.unrecorded(verdict)
    assert "NCCL" not in next_steps.unrecorded(verdict)


def test_a_network_of_gloo_is_not_tested_with_nccl() -> None:
    """The test of a link is one of the library that uses it."""
    named = Verdict(
        symptom="crash", cause="network", abstained=False, action=Action(kind="probe", nodes=("gpu-1",)),
        coverage=Coverage(backends=("gloo",)),
    )  # fmt: skip

    assert "iperf3" in advice.what_to_do(named)


def test_a_job_that_torchrun_reports_as_ended_gives_no_stacks(tmp_path: Path) -> None:
    """Torchrun ends all processes with the first: stacks taken before do not show that any still runs."""
    verdict = _of_stacks(tmp_path, "gloo::allreduce", FAILED)
    said = text.render(verdict)

    assert verdict.coverage.all_ended
    assert not any(word in said for word in ("Do not stop", "py-spy", "ps -wwe"))


def test_each_rank_s_own_end_ends_the_job() -> None:
    """All ranks' exceptions are there; where one rank's is missing, it may run on."""
    every, some = ("".join(TIMED_OUT.format(rank=rank) for rank in ranks) for ranks in (range(4), (0, 1, 3)))

    assert _on(every).coverage.all_ended
    assert "Do not stop" not in text.render(_on(every))
    assert not _on(some).coverage.all_ended
    assert "that still runs" in text.render(_on(some))


def test_a_process_that_has_ended_is_not_asked_for_its_frames() -> None:
    """What a stopped or stuck rank of an ended job would show is gone."""
    culprit = Culprit(root="r1", kind="rank", id="2", ranks=(2,), probability=0.7)
    verdict = Verdict(
        symptom="hang", cause="machine", abstained=False, roots=(Root(root="r1", cause="machine", fault_class="stuck_sleeping"),),
        culprits=(culprit,), action=Action(kind="probe", ranks=(2,)), coverage=Coverage(has_ended=True, all_ended=True),
    )  # fmt: skip
    stopped = Root(root="r1", cause="machine", fault_class="stopped")

    assert "py-spy" not in text.render(verdict)
    assert not next_steps.first_of_all(
        Verdict(
            symptom="hang",
            cause="machine",
            abstained=False,
            roots=(stopped,),
            culprits=(culprit,),
            coverage=verdict.coverage,
        )
    )


@pytest.mark.parametrize(("code", "kind"), [(1, "reattempt"), (3, "reattempt"), (127, "reattempt")])
def test_a_code_that_a_program_chose_asks_for_no_test_of_hardware(code: int, kind: str) -> None:
    """``sys.exit(3)`` without a word: the rank's own log says why, and no machine chooses such a code."""
    verdict = _on(FAILED.replace("exitcode  : 1 ", f"exitcode  : {code} "))
    said = text.render(verdict)

    assert (verdict.cause, verdict.action.kind, verdict.action.nodes) == ("unknown", kind, ())
    assert [root.fault_class for root in verdict.roots] == ["left_by_itself"]
    assert "dcgmi" not in said
    assert "what this rank printed last" in " ".join(said.split())


@pytest.mark.parametrize("code", [137, 139, 134])
def test_a_code_that_stands_for_a_signal_is_no_program_s_choice(code: int) -> None:
    """The control: a shell's codes from 128 on are signals."""
    verdict = _on(FAILED.replace("exitcode  : 1 ", f"exitcode  : {code} "))

    assert "left_by_itself" not in {root.fault_class for root in verdict.roots}
