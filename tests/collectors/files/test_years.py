"""Stamps without a year take that of the stamps beside them: of the same file, of the other files, or of the file's time."""

from __future__ import annotations

import os
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from collectors.files.reading import read_paths
from collectors.formats import years
from collectors.records import KernelEvent, LogEvent, Record

XID = "gpu-02 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=4122, name=python, GPU has fallen off the bus."
WATCHDOG = (
    "1 ProcessGroupNCCL.cpp:629] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, "
    "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001 milliseconds before timing out."
)
COPIED_AT = datetime(2026, 11, 28, tzinfo=UTC).timestamp()  # long after what the files hold


def written(folder: Path, **texts: str) -> list[Record]:
    """Return the records of files of a copied folder; a name's "_" is its dot."""
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        path = folder / name.replace("_", ".")
        path.write_text(text)
        os.utime(path, (COPIED_AT, COPIED_AT))
    return list(read_paths([folder]))


def days(records: list[Record], kind: type[Record]) -> set[str]:
    """Return the days that records of a kind are of."""
    ats = [record.at for record in records if isinstance(record, kind) and record.at is not None]
    return {datetime.fromtimestamp(at, UTC).date().isoformat() for at in ats}


def test_a_watchdogs_stamp_has_the_year_of_its_own_files_lines(tmp_path: Path) -> None:
    """A library's lines among a program's own."""
    found = written(
        tmp_path, train_log=f"2025-11-03 10:00:00 [rank2] step 1 loss 3.0\n[rank2]:[E1103 10:13:20.5 {WATCHDOG}\n"
    )

    assert days(found, LogEvent) == {"2025-11-03"}


def test_a_kernel_log_has_the_year_of_the_job_log_beside_it(tmp_path: Path) -> None:
    """As the stamps of another file have it."""
    found = written(
        tmp_path, kern_log=f"Nov  3 10:03:00 {XID}\n", train_log="2025-11-03 10:00:00 [rank2] step 1 loss 3.0\n"
    )

    assert days(found, KernelEvent) == {"2025-11-03"}


def test_a_watchdogs_stamp_has_the_year_of_the_kernel_log_beside_it(tmp_path: Path) -> None:
    """The other way round, and by dmesg's own form of a date."""
    kernel = f"[Mon Nov  3 10:03:00 2025] {XID.partition('kernel: ')[2]}\n"
    found = written(tmp_path, dmesg_txt=kernel, train_log=f"[rank2]:[E1103 10:13:20.5 {WATCHDOG}\n")

    assert days(found, LogEvent) == {"2025-11-03"}


def test_the_turn_of_the_year_lies_between(tmp_path: Path) -> None:
    """31 December beside 1 January is of the year before, and 1 January beside 31 December of the year after."""
    old = written(
        tmp_path / "a", kern_log=f"Dec 31 23:59:00 {XID}\n", train_log="2026-01-01 00:01:00 [rank2] step 1 loss 3.0\n"
    )
    new = written(
        tmp_path / "b", kern_log=f"Jan  1 00:01:00 {XID}\n", train_log="2025-12-31 23:59:00 [rank2] step 1 loss 3.0\n"
    )

    assert (days(old, KernelEvent), days(new, KernelEvent)) == ({"2025-12-31"}, {"2026-01-01"})


def test_what_a_kernel_log_keeps_of_months_before_is_no_later_than_the_job(tmp_path: Path) -> None:
    """A log of many months ends about when the job did."""
    lines = f"Mar 12 10:00:00 {XID}\nNov  3 10:03:00 {XID}\n"
    found = written(tmp_path, kern_log=lines, train_log="2025-11-03 10:00:00 [rank2] step 1 loss 3.0\n")

    assert days(found, KernelEvent) == {"2025-03-12", "2025-11-03"}


def test_members_of_an_archive_stand_beside_each_other(tmp_path: Path) -> None:
    """A bundle is read as a folder is."""
    written(
        tmp_path / "in", kern_log=f"Nov  3 10:03:00 {XID}\n", train_log="2025-11-03 10:00:00 [rank2] step 1 loss 3.0\n"
    )
    with tarfile.open(tmp_path / "job.tar", "w") as archive:
        archive.add(tmp_path / "in", "in")

    assert days(list(read_paths([tmp_path / "job.tar"])), KernelEvent) == {"2025-11-03"}


def test_without_a_year_anywhere_it_is_that_of_the_files_time(tmp_path: Path) -> None:
    """What was so stays so."""
    found = written(tmp_path, kern_log=f"Nov  3 10:03:00 {XID}\n", train_log="[rank2] step 1 loss 3.0\n")

    assert days(found, KernelEvent) == {"2026-11-03"}


@pytest.mark.parametrize(
    "line",
    [
        "PyTorch was built on 2024-05-01 12:00:00 by ci",
        "license expires at 2031-01-01 00:00:00",
        "Build date: 2024/05/01 12:00:00",
    ],
)  # fmt: skip
def test_a_date_that_a_line_speaks_of_is_no_stamp(line: str) -> None:
    """A build's date, or one to come, says nothing of when a log was written."""
    assert years.stamped_at(line.encode(), COPIED_AT) is None


def test_a_stamp_later_than_the_file_is_not_believed() -> None:
    """No line is written after its file."""
    assert years.stamped_at(b"2031-01-01 00:00:00 step 1", COPIED_AT) is None
