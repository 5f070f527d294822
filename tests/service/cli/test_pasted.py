"""Standard input as a path of ``faulthound diagnose``."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from service.cli import run
from service.cli.diagnose import STANDARD_INPUT, saved, shown
from service.cli.speech import Speech


def test_standard_input_is_a_file_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands for ``-`` holds the bytes that were piped, beside the other paths, and is gone afterwards."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Killed\n")))

    with saved([Path("a.log"), STANDARD_INPUT], Speech(quiet=True)) as files:
        kept = files[1]

        assert files[0] == Path("a.log")
        assert kept.read_bytes() == b"Killed\n"

    assert not kept.exists()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("/tmp/faulthound-ab12/standard input:7", "standard input:7"),
        ("no line of /tmp/faulthound-ab12/standard input", "no line of standard input"),
        ("logs/rank7.log:3", "logs/rank7.log:3"),
    ],
)
def test_its_folder_is_not_shown(source: str, expected: str) -> None:
    """A report names standard input, and no place of ours."""
    assert shown(source) == expected


STORAGE = (
    "Since this morning checkpoints are not saved any more. The quota of the project's directory was reached on the parallel "
    "file system, and the disk of the server that exports it over NFS has no free space left."
)

SCRIPT = """#!/bin/bash
if ! nvidia-smi > /dev/null; then
  echo "error: GPU has fallen off the bus" >&2
  exit 1
fi
srun python train.py || echo "training failed"
"""
GUIDE = (
    'To replace a failed GPU: drain the node with scontrol update nodename=gpu-12 state=drain reason="bad gpu", shut it down, '
    "swap the board, run dcgmi diag -r 3 and resume it. If Xid 79 or Xid 48 shows again, open a case with the vendor."
)
PROGRAM = """import torch.distributed as dist

def main():
    dist.init_process_group("nccl")
    try:
        train()
    except RuntimeError as error:
        if "NCCL" in str(error):
            raise SystemExit("the network failed: NCCL error, connection closed by peer")
    raise OSError("No space left on device")
"""
CHANGE = (
    "fix(net): the connection of a flapping port is tried again\n\nA node that lost its link made the whole job fail with "
    "NCCL timeouts, and the checkpoint on the parallel file system is gone. The queue pair is created again, which costs seconds."
)
"""What they quote happened to no job here."""
NOTICE = (
    "Dear users, the maintenance of the storage is planned for 3 December from 8 to 12. During this time the Lustre file system "
    "is not available and jobs will be held. No action is needed. Your operations team"
)
VALUES = """# values of the trainer's chart
replicas: 4
image:
  repository: trainer
  tag: "1.4"
resources:
  limits:
    nvidia.com/gpu: 8
    memory: 960Gi
env:
  - name: NCCL_IB_TIMEOUT
    value: "22"
  - name: TORCH_NCCL_ASYNC_ERROR_HANDLING
    value: "1"
livenessProbe:
  failureThreshold: 12
  timeoutSeconds: 4
"""
HOW_TO = """# Fine-tuning with FSDP

```bash
pip install -r requirements.txt
export NCCL_DEBUG=INFO
torchrun --nproc_per_node=8 train.py --config configs/large.yaml
```

- `--max_restarts`: how many times a failed worker is started again
- `--timeout`: seconds until a collective is aborted
- `--offload`: move parameters to the host memory

Use gradient checkpointing when memory is short. The loader waits for all workers.
"""
WISHED = "It would be great to have a dashboard of the memory that each GPU has left, and of workers that were killed or hang."
PLAN = "The maintenance of node 7 is planned for tomorrow. Its GPUs will be down, and jobs that run on it will be requeued."
REPAIRED = "The training does not crash and no GPU is lost any more; everything works as it should since the update."
IMAGINED = (
    "Imagine we lose a GPU in the middle of a run of two weeks. How long would it hang until the watchdog ends it, and would the "
    "checkpoint of the last hour be lost?"
)


def test_a_text_that_no_rule_reads_has_a_cause_by_its_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is a lead, and nothing is done for it."""
    (tmp_path / "ticket.txt").write_text(STORAGE + "\n", encoding="utf-8")

    assert run(["diagnose", str(tmp_path / "ticket.txt"), "--json"]) == 0
    shown = capsys.readouterr()
    verdict = json.loads(shown.out)
    assert (verdict["cause"], verdict["action"]["kind"]) == ("storage", "none")
    assert "no reader" not in shown.err
    assert verdict["roots"][0]["class"] == "like_other_texts"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ticket.md", STORAGE),
        ("ticket.txt", STORAGE + "\n" + "All is well with the other jobs of this cluster.\n" * 400),
        ("ticket.txt", "Please look at the disk"),
        (
            "ticket.txt",
            "Thanks for the release, the documentation is very clear. Could there be an option to choose a theme?",
        ),
        ("ticket.txt", SCRIPT),
        ("ticket.txt", GUIDE),
        ("ticket.txt", PROGRAM),
        ("ticket.txt", CHANGE),
        ("ticket.txt", NOTICE),
        ("ticket.txt", VALUES),
        ("ticket.txt", HOW_TO),
        ("ticket.txt", WISHED),
        ("ticket.txt", PLAN),
        ("ticket.txt", IMAGINED),
        ("ticket.txt", REPAIRED),
    ],
    ids=[
        "a document",
        "a long text",
        "a few words",
        "nothing failed",
        "a script",
        "a guide",
        "a program",
        "a change",
        "a notice",
        "values of a chart",
        "a how-to",
        "a wish",
        "a plan",
        "an imagined failure",
        "what works again",
    ],
)
def test_other_texts_have_none(tmp_path: Path, name: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They end as before: nothing readable."""
    (tmp_path / name).write_text(text, encoding="utf-8")

    assert run(["diagnose", str(tmp_path / name), "--json", "--quiet"]) == 2
    assert capsys.readouterr().out == ""


def test_a_missing_module_is_not_started_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each start meets it: what to do is to install it."""
    lines = 'Traceback (most recent call last):\n  File "/w/train.py", line 3, in <module>\n    import apex\n'
    (tmp_path / "job.log").write_text(lines + "ModuleNotFoundError: No module named 'apex'\n", encoding="utf-8")

    assert run(["diagnose", str(tmp_path / "job.log"), "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["cause"], verdict["action"]["kind"]) == ("code", "none")
    assert "install" in verdict["action"]["why"]


def test_exit_codes_that_a_text_has_are_not_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a rank that lost a peer and its launcher's report, the dumps and stacks are missing."""
    lost = "[rank3]: torch.distributed.DistBackendError: NCCL error in: x.cpp:1970, remote process exited, NCCL version 2.20.5\n"
    report = (
        "train.py FAILED\nRoot Cause (first observed failure):\n[0]:\n  time      : 2026-11-05_10:11:12\n  host      : gpu-17\n"
        "  rank      : 3 (local_rank: 3)\n  exitcode  : 1 (pid: 4182)\n  error_file: <N/A>\n"
    )
    found = []
    for text in (lost, lost + report):
        (tmp_path / "job.log").write_text(text, encoding="utf-8")
        run(["diagnose", str(tmp_path / "job.log"), "--json"])
        found.append([one["what"] for one in json.loads(capsys.readouterr().out)["missing"]])

    assert "the launcher's exit codes" in found[0]
    assert "the launcher's exit codes" not in found[1]


def test_words_say_nothing_of_a_daemon_that_runs_again(tmp_path: Path) -> None:
    """What its lines complain of has passed."""
    lines = (
        "Nov 05 10:11:12 gpu-17 systemd[1]: slurmd.service: Main process exited, code=killed, status=9/KILL\n"
        "Nov 05 10:11:12 gpu-17 systemd[1]: slurmd.service: Failed with result 'signal'.\n"
        "Nov 05 10:11:17 gpu-17 systemd[1]: Started slurmd.service - Slurm node daemon.\n"
    )
    (tmp_path / "ticket.txt").write_text(lines, encoding="utf-8")

    assert run(["diagnose", str(tmp_path / "ticket.txt"), "--quiet"]) == 3


def test_a_text_beside_other_files_is_not_judged_by_its_words(tmp_path: Path) -> None:
    """The others may say what it was."""
    for name in ("ticket.txt", "notes.txt"):
        (tmp_path / name).write_text(STORAGE, encoding="utf-8")

    assert run(["diagnose", str(tmp_path), "--quiet"]) == 2


def test_a_closed_standard_input_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A job's script may close it: nothing can be read, and how to give the lines is said."""
    monkeypatch.setattr(sys, "stdin", None)

    assert run(["diagnose", "-"]) == 2
    assert "standard input is closed" in capsys.readouterr().err


def test_a_table_of_words_that_is_none_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No verdict would state that it failed, for there is none."""
    (tmp_path / "texts.toml").write_text("intercepts = [nan, inf, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]\n", encoding="utf-8")
    (tmp_path / "ticket.txt").write_text(STORAGE, encoding="utf-8")

    arguments = ["diagnose", str(tmp_path / "ticket.txt"), "--knowledge", str(tmp_path / "texts.toml"), "--quiet"]

    assert run(arguments) == 2
    assert "texts.toml: intercepts must be" in capsys.readouterr().err


def test_no_folder_of_ours_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Standard input that is given twice is called so twice."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Please look at the disk\n")))

    assert run(["diagnose", "-", "-", "--quiet"]) == 2
    assert "in standard input, standard input:" in capsys.readouterr().err


KILLED = """E1121 10:00:01.123000 4242 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: -9) \
local_rank: 3 (pid: 55) of binary: /usr/bin/python3
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
======================================================
train.py FAILED
------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_10:00:01
  host      : gpu-0413
  rank      : 11 (local_rank: 3)
  exitcode  : -9 (pid: 55)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 55
======================================================
"""


@pytest.mark.parametrize(
    "text", [KILLED, KILLED[: KILLED.index("torch.distributed.elastic.mul")]], ids=["table", "line"]
)
def test_a_rank_that_was_killed_and_nothing_else_is_looked_up(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kernel for memory, or the scheduler: their records decide, and no machine is tested or evicted for it."""
    (tmp_path / "pasted.txt").write_text(text, encoding="utf-8")

    assert run(["diagnose", str(tmp_path / "pasted.txt"), "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["roots"][0]["class"], verdict["action"]["kind"]) == ("killed_unexplained", "none")
    missing = " ".join(one["what"] for one in verdict["missing"])
    assert "killed process" in missing
    assert "sacct -j JOB" in missing
