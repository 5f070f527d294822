"""A document that quotes a log is named as one, and gives no evidence."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.files.reading import read_paths
from collectors.records import LogEvent, Unread

QUOTED = "[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"


@pytest.mark.parametrize("name", ["README.md", "guide.rst", "README", "notes.markdown"])
def test_a_document_is_not_read_as_a_log(tmp_path: Path, name: str) -> None:
    """Its name says so; the reason is reported."""
    (tmp_path / name).write_text(f"# When a GPU fails\n\n{QUOTED}")

    (record,) = read_paths([tmp_path])

    assert isinstance(record, Unread)
    assert "document" in record.reason


@pytest.mark.parametrize("name", ["train.log", "posted.txt", "slurm-7.out", "cmd.log"])
def test_a_log_with_prose_is_read(tmp_path: Path, name: str) -> None:
    """A posted log has sentences around it."""
    (tmp_path / name).write_text(f"Our job ended like this:\n\n{QUOTED}")

    assert any(isinstance(record, LogEvent) for record in read_paths([tmp_path]))


ADVICE = {
    "fenced": "# Our trainer\nRun it with torchrun on every node.\n```\n"
    + QUOTED
    + "```\nIf you see this, replace the card.\n",
    "indented": "What to do when a job fails\n\nOften a rank prints a line such as\n\n    "
    + QUOTED
    + "\nThen ask for a new node.\n",
    "inline": "These notes are for the team.\nIf a GPU is broken you read\n"
    + QUOTED
    + "in the log. Then drain the node.\nCall the vendor, too.\n",
}
REPORTS = {
    "told": "The job died again tonight, and we do not know why.\nThis is the end of the log:\n" + QUOTED * 4,
    "stamped": "The run is on two nodes.\nIf it fails again, call me.\n2026-03-01 10:00:00 ended here\n" + QUOTED,
    "talkative": "".join(f"Loaded the shard {number} of the data, and it is fine.\n" for number in range(9)) + QUOTED,
}


@pytest.mark.parametrize("case", [*ADVICE, *REPORTS])
def test_advice_beside_a_job_s_files_is_no_evidence(case: str, tmp_path: Path) -> None:
    """Sentences about what may happen are no report of what did; a report is read, and so is anything that is given alone."""
    (tmp_path / "notes.txt").write_text((ADVICE | REPORTS)[case])
    assert any(isinstance(record, LogEvent) for record in read_paths([tmp_path]))
    (tmp_path / "rank0.log").write_text("step: 1 loss: 2.5\n")
    assert any(isinstance(record, LogEvent) for record in read_paths([tmp_path])) == (case in REPORTS)


def test_the_empty_half_of_a_redirected_worker_is_not_reported(tmp_path: Path) -> None:
    """Torchrun opens both files of a worker; a worker that printed on one leaves the other empty."""
    for rank in ("0", "1"):
        worker = tmp_path / "none_k2" / "attempt_0" / rank
        worker.mkdir(parents=True)
        (worker / "stdout.log").write_text("")
        (worker / "stderr.log").write_text(QUOTED)
    (tmp_path / "rank9.log").write_text("")

    missing = [record.source for record in read_paths([tmp_path]) if isinstance(record, Unread)]

    assert [Path(source).name for source in missing] == ["rank9.log"]
