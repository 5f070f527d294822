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
[W1110 10:00:01.2 socket.cpp:697] [c10d] The client socket has failed to connect to [n1]:29500 (errno: 97 - Address family).
Some weights of Encoder were not initialized from the model checkpoint at m and are newly initialized: ['classifier.bias']
"""
NODE = """\
Name:               n1
Conditions:
  Type                 Status  Reason                       Message
  ----                 ------  ------                       -------
  KernelDeadlock       False   KernelHasNoDeadlock          kernel has no deadlock
  MemoryPressure       False   KubeletHasSufficientMemory   kubelet has sufficient memory available
  Ready                True    KubeletReady                 kubelet is posting ready status
"""
POD = """\
Name:             trainer-2
Status:           Running
Containers:
  main:
    State:          Running
    Ready:          True
    Restart Count:  0
Events:
  Type     Reason            Message
  Warning  FailedScheduling  0/9 nodes are available: 9 Insufficient nvidia.com/gpu.
  Normal   Scheduled         Successfully assigned ml/trainer-2 to n1
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


@pytest.mark.parametrize(
    "text",
    [NODE, POD, "queue depth 31, latency 4.1 ms, memory 71 GB\n", "epoch done: no errors, 0 warnings\n"],
    ids=["a node that is well", "a pod that runs", "measurements", "denied"],
)
def test_lines_of_which_none_states_a_failure_have_no_cause(text: str) -> None:
    """Words that failures have in common with measurements and with what is well are none."""
    assert not may_report(text)


@pytest.mark.parametrize(
    "text",
    [
        NODE.replace("MemoryPressure       False", "MemoryPressure       True "),
        NODE.replace("Ready                True ", "Ready                False"),
        POD.replace("Count:  0", "Count:  4").replace("Insufficient", "insufficient"),
        POD.replace("Ready:          True", "Ready:          False"),
        "ERROR the queue is full, latency 900 ms\n",
    ],
    ids=["pressure", "not ready", "restarted", "container not ready", "an error"],
)
def test_what_is_not_well_may_be_judged_by_its_words(text: str) -> None:
    """The controls: one condition, one count or one word more."""
    assert may_report(text)


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
