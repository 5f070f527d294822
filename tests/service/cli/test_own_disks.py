"""A file that fails on a node whose own disk the kernel reports is that machine's fault; what nodes share is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.model.verdict import Verdict
from tests.service.cli.test_sound_jobs import HOSTS, at, kernel, stopped, train, verdict_on

MEDIUM = "blk_update_request: critical medium error, dev sdb, sector 88 op 0x0:(READ) flags 0x0"
UNANSWERED = "nvme nvme1: controller is down; will reset: CSTS=0xffffffff"
REMOUNTED = "EXT4-fs (nvme1n1p1): Remounting filesystem read-only"
OF_CEPH = "I/O error, dev rbd0, sector 88 op 0x1:(WRITE) flags 0x800"
NO_ANSWER = "nfs: server filer-1 not responding, still trying"
FAILED = "[rank2]: OSError: [Errno 5] Input/output error: '/data/out/part_7.bin'"
READ_ONLY = "[rank2]: OSError: [Errno 30] Read-only file system: '/data/out/part_7.bin'"
STALE = "[rank2]: OSError: [Errno 116] Stale file handle: '/data/out/part_7.bin'"
FULL = "[rank2]: OSError: [Errno 28] No space left on device: '/data/out/part_7.bin'"


def after(said: str, event: str, folder: Path, **more: str) -> Verdict:
    """Judge a job of which rank 2, on node-b, says this a second after the kernel's event there."""
    log = train(6, f"{at(6).isoformat()} {said}")
    return verdict_on(folder, train_log=log, kern_log=kernel((5.98, event)), hosts_txt=HOSTS, **more)


@pytest.mark.parametrize(("said", "event"), [(FAILED, MEDIUM), (FAILED, UNANSWERED), (READ_ONLY, REMOUNTED)])
def test_a_file_that_fails_where_the_nodes_own_disk_failed_is_that_machines_fault(
    said: str, event: str, tmp_path: Path
) -> None:
    """Its disk is looked at; nothing is started again there as it is."""
    verdict = after(said, event, tmp_path)

    assert (verdict.cause, [one.id for one in verdict.culprits]) == ("machine", ["node-b"])
    assert verdict.action.kind == "probe"
    assert verdict.action.nodes == ("node-b",)


@pytest.mark.parametrize("event", [NO_ANSWER, OF_CEPH])
@pytest.mark.parametrize("said", [FAILED, STALE])
def test_storage_that_nodes_share_is_no_machines_fault(said: str, event: str, tmp_path: Path) -> None:
    """A file server, and a disk that other machines serve."""
    verdict = after(said, event, tmp_path)

    assert verdict.cause == "storage"
    assert verdict.action.kind in {"none", "reattempt"}


def test_a_disk_that_failed_long_before_a_hang_is_not_its_cause(tmp_path: Path) -> None:
    """All ranks went on for hours after it."""
    old = kernel((-474, UNANSWERED))
    verdict = verdict_on(tmp_path, train_log=train(6, *stopped(6)), kern_log=old, hosts_txt=HOSTS)

    assert not any(one.id == "node-b" for one in verdict.culprits)
    assert any(one.id == "node-b" for one in verdict.rejected)


def test_a_disk_that_failed_while_the_job_went_on_is_looked_at_later(tmp_path: Path) -> None:
    """Nothing of the job needed it."""
    verdict = verdict_on(tmp_path, train_log=train(18), kern_log=kernel((3, MEDIUM)), hosts_txt=HOSTS)

    assert (verdict.culprits, verdict.action.kind) == ((), "none")
    assert "check node node-b when no job runs there" in verdict.action.why


@pytest.mark.parametrize("said", [STALE, FULL])
def test_what_no_failing_disk_explains_stays_with_the_storage(said: str, tmp_path: Path) -> None:
    """A stale handle is a server's, and a full disk is sound."""
    assert after(said, MEDIUM, tmp_path).cause == "storage"


def test_files_that_fail_on_other_nodes_too_are_no_one_disks(tmp_path: Path) -> None:
    """What all of them use failed."""
    said = "\n".join(FAILED.replace("rank2", f"rank{rank}") for rank in range(4))

    assert after(said, MEDIUM, tmp_path).cause == "storage"


def test_a_disk_of_another_node_explains_nothing(tmp_path: Path) -> None:
    """The rank whose file failed is elsewhere."""
    other = kernel((5.98, MEDIUM)).replace("node-b", "node-a")
    log = train(6, f"{at(6).isoformat()} {FAILED}")
    verdict = verdict_on(tmp_path, train_log=log, kern_log=other, hosts_txt=HOSTS)

    assert verdict.culprits[0].root == verdict.roots[0].root
    assert verdict.cause == "storage"
    assert verdict.action.kind != "evict"


@pytest.mark.parametrize("said", [FAILED, READ_ONLY])
def test_without_steps_or_a_list_of_hosts_the_log_may_name_the_node(said: str, tmp_path: Path) -> None:
    """As pdsh and srun put it before each line."""
    log = f"node-b: [rank2]: Traceback (most recent call last):\nnode-b: {said}\n"
    verdict = verdict_on(tmp_path, train_log=log, kern_log=kernel((5.98, MEDIUM)))

    assert [one.id for one in verdict.culprits] == ["node-b"]
    assert (verdict.cause, verdict.action.kind) == ("machine", "probe")
