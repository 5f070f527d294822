"""The kernel's word of a machine beside a rank that left with a code of its own: it counts in time only."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.model.verdict import Verdict
from tests.service.cli.test_sound_jobs import HOSTS, at, kernel, train, verdict_on

LEFT = "failed (exitcode: 1) local_rank: 0 (pid: 4127) of binary: /usr/bin/python3"
TABLE = (
    "[1]:",
    "  time      : {time}",
    "  host      : {host}",
    "  rank      : {rank} (local_rank: 0)",
    "  exitcode  : 1 (pid: 4127)",
    "  error_file: <N/A>",
)
MEMORY = "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x1f2a3 offset:0x0 grain:32)"
DISK = "nvme nvme1: controller is down; will reset: CSTS=0xffffffff"
STUCK = "watchdog: BUG: soft lockup - CPU#12 stuck for 23s! [python3:4127]"


def left(folder: Path, host: str, rank: int, *events: tuple[float, str]) -> Verdict:
    """Judge a job of which a rank left with exit code 1 six minutes after its start; events of node-b's kernel beside it."""
    stamp = at(6).strftime("%Y-%m-%d_%H:%M:%S")
    table = [line.format(time=stamp, host=host, rank=rank) for line in TABLE]
    log = train(6, f"{at(6).isoformat()} {LEFT}", *table)
    return verdict_on(folder, train_log=log, kern_log=kernel(*events), hosts_txt=HOSTS)


@pytest.mark.parametrize("event", [DISK, STUCK])
def test_a_program_s_own_code_beside_its_machine_s_fault_is_no_reason_to_start_it_again(
    event: str, tmp_path: Path
) -> None:
    """The kernel of its node reports a fault a moment before: the node is tested first."""
    verdict = left(tmp_path, "node-b", 2, (5.95, event), (5.99, event))

    assert verdict.action.kind not in {"reattempt", "none"}


def test_without_such_a_fault_its_log_is_read(tmp_path: Path) -> None:
    """No test of a node follows from a code that the program chose."""
    assert left(tmp_path, "node-b", 2).action.kind == "reattempt"


def test_lost_memory_of_a_host_that_steps_outlived_ended_no_job(tmp_path: Path) -> None:
    """Who reads it dies at once; minutes of steps followed, and another node's rank left."""
    verdict = left(tmp_path, "node-a", 0, (1, MEMORY))

    assert not any(one.id == "node-b" for one in verdict.culprits)
    assert verdict.action.kind != "evict"
