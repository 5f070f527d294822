"""What kernel logs hold beside a job that goes on or ended well stops nothing; where the job failed, a true fault is named."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from analyzers.model.verdict import Verdict
from service.cli.diagnose import judged
from service.cli.hosts import Hosts
from service.cli.speech import Speech
from service.packaged_knowledge import load

BEGUN = datetime(2026, 5, 4, 9, 0, tzinfo=UTC)
LOST = "NVRM: Xid (PCI:0000:c1:00): 79, pid=771, name=python3, GPU has fallen off the bus."
CONTAINED = "NVRM: Xid (PCI:0000:c1:00): 94, pid=771, name=python3, Contained: SM (0x1). RST: No, D-RST: No"
FAULTED = (
    "NVRM: Xid (PCI:0000:c1:00): 31, pid=771, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS"
)
BOOT = "Linux version 6.8.0-31-generic (buildd@host) (gcc 13.2.0)"
HOSTS = "node-a\nnode-a\nnode-b\nnode-b\n"
FINISHED = "[rank0] Training finished in 0:14:00"
WATCHDOG = (
    "[rank2]:[E{at:%m%d %H:%M:%S}.500000 71 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=210, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600010 "
    "milliseconds before timing out."
)


def at(minutes: float) -> datetime:
    """So many minutes after the job began."""
    return BEGUN + timedelta(minutes=minutes)


def train(minutes: int, *more: str) -> str:
    """The log of a job of four ranks that reports steps for so long."""
    rows = (
        f"{at(second / 60).isoformat()} [rank{rank}] step {second} loss {3 - second / 9_000:.4f}"
        for second in range(0, minutes * 60, 10)
        for rank in range(4)
    )
    return "\n".join([*rows, *more, ""])


def kernel(*events: tuple[float, str]) -> str:
    """The kernel log of node-b: minutes and what the kernel says then."""
    return "".join(f"{at(minutes).isoformat()} node-b kernel: {text}\n" for minutes, text in events)


def verdict_on(folder: Path, **texts: str) -> Verdict:
    """Judge files as the command line does; a name's "_" is its dot."""
    for name, text in texts.items():
        (folder / name.replace("_", ".")).write_text(text, encoding="utf-8")
    paths = sorted(folder.iterdir())
    return judged(paths, load(), Hosts.given(None, None), Speech(quiet=True), workers=1)[0]


def stopped(minutes: int) -> Iterable[str]:
    """Watchdogs of the ranks that wait for rank 2, ten minutes after the last step."""
    return (WATCHDOG.format(at=at(minutes + 10), rank=rank) for rank in (0, 1, 3))


@pytest.mark.parametrize("text", [LOST, CONTAINED, FAULTED])
@pytest.mark.parametrize("hosts", [{"hosts_txt": HOSTS}, {}])
def test_what_befell_a_gpu_while_all_ranks_went_on_stops_nothing(
    text: str, hosts: dict[str, str], tmp_path: Path
) -> None:
    """The job's steps went on for a quarter of an hour: that GPU can wait."""
    verdict = verdict_on(tmp_path, train_log=train(18), kern_log=kernel((3, text)), **hosts)

    assert (verdict.culprits, verdict.cause, verdict.action.kind) == ((), "none", "none")


def test_a_reboot_before_a_sound_job_is_not_asked_for_again(tmp_path: Path) -> None:
    """The fault is from before: it is stated, and its GPU is to be checked when nothing runs there."""
    before = kernel((-40, LOST), (-29, BOOT))
    verdict = verdict_on(tmp_path, train_log=train(15), kern_log=before, hosts_txt=HOSTS)

    assert (verdict.culprits, verdict.action.kind, verdict.abstained) == ((), "none", False)
    assert "check device 0000:c1:00 of node-b when no job runs there" in verdict.action.why


@pytest.mark.parametrize("minutes", [5.5, 20.0, 300.0])
def test_what_came_about_or_after_a_good_end_is_looked_at_later(minutes: float, tmp_path: Path) -> None:
    """The job has what it was for: no restart."""
    verdict = verdict_on(tmp_path, train_log=train(6, FINISHED), kern_log=kernel((minutes, LOST)), hosts_txt=HOSTS)

    assert (verdict.culprits, verdict.action.kind) == ((), "none")
    assert "finished" in verdict.action.why
    assert "check node node-b when no job runs there" in verdict.action.why
    assert any("Xid 79" in one.why for one in verdict.rejected)


@pytest.mark.parametrize(
    "text",
    [
        "CPU3: Core temperature above threshold, cpu clock throttled (total events = 4)",
        BOOT,
        "ACPI Error: AE_NOT_FOUND",
    ],
)
def test_a_kernel_log_without_a_fault_changes_nothing(text: str, tmp_path: Path) -> None:
    """Nor does a list of hosts: the log alone is sound."""
    verdict = verdict_on(tmp_path, train_log=train(6), kern_log=kernel((2, text)), hosts_txt=HOSTS)

    assert (verdict.culprits, verdict.cause, verdict.abstained) == ((), "none", False)
    assert verdict.action.why == "no fault found: 4 ranks, 36 steps each; whether steps became longer is not judged"


def test_a_gpu_that_is_lost_as_the_steps_end_is_named(tmp_path: Path) -> None:
    """The control: nothing says that the job went on or ended."""
    verdict = verdict_on(tmp_path, train_log=train(6), kern_log=kernel((6, LOST)), hosts_txt=HOSTS)

    assert ([one.id for one in verdict.culprits], verdict.action.kind) == (["node-b"], "reboot_node")


def test_the_gpu_that_stopped_a_job_is_named_and_one_of_hours_before_is_not(tmp_path: Path) -> None:
    """Whichever zone an hour of the other may be of: the log of the one agrees with the job's stamps."""
    old = f"{at(-534).isoformat()} node-a kernel: {LOST}\n"
    hosts = {"hosts_txt": HOSTS}
    verdict = verdict_on(tmp_path, train_log=train(6, *stopped(6)), kern_log=kernel((6, LOST)), other_log=old, **hosts)

    assert ([one.id for one in verdict.culprits], verdict.action.kind) == (["node-b"], "reboot_node")


def test_a_gpu_lost_long_before_a_hang_is_not_its_cause(tmp_path: Path) -> None:
    """Every rank reported steps for hours after it."""
    verdict = verdict_on(tmp_path, train_log=train(6, *stopped(6)), kern_log=kernel((-183, LOST)), hosts_txt=HOSTS)

    assert verdict.symptom == "hang"
    assert verdict.action.kind != "reboot_node"
    assert not any(one.id == "node-b" and one.kind == "node" for one in verdict.culprits)


def test_a_gpu_lost_whole_hours_before_a_hang_is_tested_at_most(tmp_path: Path) -> None:
    """The one log may be of another zone than the other: then it is the cause."""
    verdict = verdict_on(tmp_path, train_log=train(6, *stopped(6)), kern_log=kernel((-174, LOST)), hosts_txt=HOSTS)

    assert verdict.action.kind == "probe"
    assert any("in another zone" in one.why for one in (*verdict.suspects, *verdict.rejected))


def test_a_job_that_failed_has_no_good_end(tmp_path: Path) -> None:
    """The control: ranks that stop at different steps are not sound."""
    uneven = train(6) + f"{at(6).isoformat()} [rank0] step 360 loss 2.9\n"
    verdict = verdict_on(tmp_path, train_log=uneven, kern_log=kernel((2, BOOT)), hosts_txt=HOSTS)

    assert verdict.abstained
