"""Stacks of processes of unknown ranks: who is compared with whom, and how they are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.model.verdict import Verdict
from service.cli.diagnose import judged
from service.cli.hosts import Hosts
from service.cli.speech import Speech
from service.packaged_knowledge import load
from service.reports import text

WAITS = """\
    all_reduce (torch/distributed/distributed_c10d.py:2806)
    allreduce_grads (train/ddp.py:31)
    train (train.py:904)
    <module> (train.py:249)
"""
COMPUTES = """\
    tokenize (train/text.py:88)
    train (train.py:870)
    <module> (train.py:249)
"""
LOADS = """\
    wait (threading.py:306)
    get (queue.py:179)
    _try_get_data (torch/utils/data/dataloader.py:1011)
    _next_data (torch/utils/data/dataloader.py:1207)
"""
LAUNCHES = """\
    _invoke_run (torch/distributed/elastic/agent/server/api.py:900)
    main (torch/distributed/run.py:879)
    <module> (torchrun:8)
"""
FETCHES = """\
    get (multiprocessing/queues.py:113)
    _worker_loop (torch/utils/data/_utils/worker.py:275)
    __init__ (torch/utils/data/dataloader.py:1039)
    train (train.py:800)
    <module> (train.py:249)
"""
SPAWNED = """\
    _main (multiprocessing/spawn.py:135)
    <module> (<string>:1)
"""
WORKS = (
    f"    all_reduce (torch/distributed/distributed_c10d.py:2806)\n    worker_main (engine/workers.py:460)\n{SPAWNED}"
)
SERVES = f"    poll (zmq/sugar/poll.py:106)\n    run_engine_core (engine/core.py:690)\n{SPAWNED}"


def process(pid: int, stack: str) -> str:
    """What py-spy prints of it."""
    return f'Process {pid}: python train.py\nPython v3.10.12\n\nThread {pid} (active): "MainThread"\n{stack}\n'


def verdict_on(folder: Path, *parts: str) -> Verdict:
    """Diagnose one file with these processes."""
    path = folder / "stacks.txt"
    path.write_text("".join(parts))
    verdict, _, _ = judged([path], load(), Hosts.given(None, None), Speech(quiet=True), workers=1)
    return verdict


@pytest.mark.parametrize(("stack", "cause"), [(COMPUTES, "unknown"), (LOADS, "data")])
def test_the_one_that_does_not_wait_is_named_by_its_process(tmp_path: Path, stack: str, cause: str) -> None:
    """The others wait in communication; no rank is stated, none is made up, and no machine is evicted."""
    verdict = verdict_on(tmp_path, process(71, WAITS), process(72, WAITS), process(73, stack), process(74, WAITS))

    assert [(one.id, one.ranks) for one in verdict.culprits] == [("process 73", ())]
    assert (verdict.cause, verdict.action.kind, verdict.action.ranks) == (cause, "probe", ())
    said = text.render(verdict)
    assert said.startswith("Process 73 hangs the job")
    assert "rank 2" not in said


def test_heads_that_share_a_stack_are_each_a_process(tmp_path: Path) -> None:
    """A person wrote the heads of equal stacks above one of them."""
    heads = "".join(f'Thread {pid} (active): "MainThread"\n' for pid in (71, 72, 73))
    verdict = verdict_on(tmp_path, f'{heads}{WAITS}\nThread 74 (idle): "MainThread"\n{LOADS}')

    assert [one.id for one in verdict.culprits] == ["process 74"]
    assert "while 3 others wait" in verdict.culprits[0].why


@pytest.mark.parametrize("other", [LAUNCHES, FETCHES, SERVES])
def test_another_program_beside_them_is_not_compared(tmp_path: Path, other: str) -> None:
    """A launcher, a worker of a loader and an engine's core do not wait as the trainers do, and hold nobody up by that."""
    waits = WORKS if other == SERVES else WAITS
    assert verdict_on(tmp_path, process(71, waits), process(72, waits), process(73, other)).abstained


def test_one_process_seen_again_is_one(tmp_path: Path) -> None:
    """It waited, computed and waited again: it moves, and no other was seen."""
    assert verdict_on(tmp_path, process(71, WAITS), process(71, COMPUTES), process(71, WAITS)).abstained


def test_all_in_communication_name_nobody(tmp_path: Path) -> None:
    """Who does not come is not among them."""
    assert verdict_on(tmp_path, process(71, WAITS), process(72, WAITS)).abstained
