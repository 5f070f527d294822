"""Which texts may be judged by their words: not what libraries print in every run, nor what describes a change or a task."""

from __future__ import annotations

import pytest

from collectors.formats.prose.troubles import may_report
from collectors.formats.prose.watch_rules import is_task

EVERYDAY = """\
W0814 10:00:01.217000 1197897 torch/distributed/run.py:774] Setting OMP_NUM_THREADS environment variable for each process to be 1
node1:8812:8812 [0] NCCL INFO NET/Plugin: Failed to find ncclNetPlugin_v8 symbol.
node1:8812:8812 [0] NCCL INFO NCCL_IB_TIMEOUT set by environment to 22.
Loading checkpoint shards: 100%|##########| 4/4 [00:05<00:00,  1.31s/it]
[W socket.cpp:601] [c10d] The client socket cannot be initialized to connect to [n1]:29500 (errno: 97).
[2026-08-14 10:00:20,412] [WARNING] [runner.py:202:fetch_hostfile] Unable to find hostfile, local resources only.
Some weights of Encoder were not initialized from the model checkpoint at m and are newly initialized: ['classifier.bias']
"""
FORM = """\
# [Bug] Generation stops after two hours
### Checklist
- [x] I have searched related issues.
### Describe the bug
Our server stopped to answer after two hours, and the process was killed without any message.
### Reproduction
python -m server --tp 8
"""
CHANGE = """\
### Checklist
- [x] tests pass
### Description
The server stopped to answer after two hours and the process was killed. The loop now ends by itself.
"""
TASK = """\
## Background
In large jobs this line is common in the logs of pods:
> n3:617:2799 [3] transport/net_ib.cc:2360 NCCL WARN NET/IB: Got completion from peer 10.16.234.184<53393> with status=12
## Objective
Add a new network anomaly rule to the pod log component.
"""


@pytest.mark.parametrize("line", EVERYDAY.splitlines())
def test_what_is_printed_in_every_run_is_no_trouble(line: str) -> None:
    """It has words of trouble, and the runs in which it stands are well."""
    assert not may_report(f"{line}\n")


def test_a_failure_between_such_lines_is() -> None:
    """The control: one line more, and the text may be judged."""
    assert may_report(
        EVERYDAY + "node1:8812:9001 [0] NCCL INFO comm 0x55d rank 0 aborted\nCUDA error in a kernel of the step\n"
    )


def test_a_tracker_s_form_is_no_change_to_a_program() -> None:
    """Its checklist is that of changes too; what the form asks of a bug shows which it is."""
    assert [may_report(FORM), may_report(CHANGE)] == [True, False]


def test_a_task_quotes_what_is_to_be_found() -> None:
    """Without its headings the same words are a report."""
    assert [is_task(TASK), is_task(TASK.replace("## Objective", "")), may_report(TASK)] == [True, False, False]
