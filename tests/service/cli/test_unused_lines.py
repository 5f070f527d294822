"""Before a file is said to show nothing, its lines are searched for words of a fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.cli.diagnose import _nothing
from service.cli.unused_lines import MOST_BYTES, first_unused


@pytest.mark.parametrize(
    "line",
    [
        "worker: EngineCore saw an uncorrectable hardware error and stops",
        "E0716 collective timed out on stage 2",
        "raylet: a worker died unexpectedly, exit type SYSTEM_ERROR, connection lost",
    ],
)
def test_a_line_of_a_fault_is_shown_and_nothing_is_said_to_be_sound(line: str, tmp_path: Path) -> None:
    """The message names file, line and text."""
    log = tmp_path / "job.txt"
    log.write_text(f"starting\n{line}\n")
    assert first_unused([tmp_path]) == f"{log}:2: {line}"
    for read in (True, False):
        said = _nothing([tmp_path], read=read)
        assert f"{log}:2" in said
        assert "without errors" not in said


def test_sound_lines_and_binary_files_have_none(tmp_path: Path) -> None:
    """Counts of zero, ordinary steps and bytes that are no text."""
    (tmp_path / "steps.log").write_text("step 3 loss 2.1\nretries 0 errors\nfinished without errors\n")
    (tmp_path / "core").write_bytes(b"\0\1error failed")
    assert first_unused([tmp_path, tmp_path / "absent"]) is None
    assert "without errors" in _nothing([tmp_path], read=True, of_steps=[str(tmp_path / "steps.log")])


def test_a_file_is_searched_up_to_its_limit(tmp_path: Path) -> None:
    """What lies beyond is not read."""
    (tmp_path / "long.log").write_bytes(b"a\n" * (MOST_BYTES // 2) + b"fatal\n")
    assert first_unused([tmp_path]) is None
    (tmp_path / "long.log").write_bytes(b"a\n" * (MOST_BYTES // 2 - 3) + b"fatal\n")
    assert first_unused([tmp_path]) is not None


def test_the_line_that_says_most_is_shown(tmp_path: Path) -> None:
    """A person's sentence, and a bare word, come after an error that a program names with its message."""
    log = tmp_path / "paste.txt"
    named = "2026-02-11 06:14:02 E loader.cc:88] status error: shard 41 has no footer"
    log.write_text(f"# Error message\nI get this error when I start the job\nfailed\n{named}\n", encoding="utf-8")

    assert first_unused([tmp_path]) == f"{log}:4: {named}"


@pytest.mark.parametrize(
    ("line", "after", "shown"),
    [
        ("WARNING dataloader: skipped 2 samples (error: no UTF-8)", 1, False),
        ("tracker: Network error resolved", 3, True),
        ("rank 3: fatal error, giving up", 4, True),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=811, GPU has fallen off the bus.", 4, True),
        ("thread 'main' panicked at src/lib.rs:41", 4, True),
        ("10:00:20 rank 3 CRITICAL closing: the certificate has run out", 4, True),
        ("[rank0]:[W1120 10:00:20.1 Group.cpp:41] no device is given, which may hang", 4, False),
        ("10:00:20 the critical path has 3 stages", 4, False),
        ("worker.sh: line 8: 812 Trap (core dumped)", 4, True),
        ("WARNING dataloader: error in a worker", 0, True),
    ],
)
def test_a_line_that_the_steps_went_on_after_is_no_doubt(line: str, after: int, shown: bool, tmp_path: Path) -> None:
    """After a warning one step is enough. What calls itself an error stays a doubt: the steps below may be another rank's."""
    log = tmp_path / "job.txt"
    steps = [f"step {step} loss 2.{step}\n" for step in range(9)]
    log.write_text("".join([*steps[:4], f"{line}\n", *steps[4 : 4 + after]]))

    assert (first_unused([tmp_path]) is not None) == shown
