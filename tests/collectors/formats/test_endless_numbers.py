"""A number that nothing counts to is no number: the line's other lines stay read, live and in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.files.parsers import steps
from collectors.files.reading import read_paths
from collectors.records import LogEvent, Unread, block

BEFORE = [
    "process 3 terminated with exit code ",
    "mpirun noticed that process rank 0 with PID 4 on node a exited on signal ",
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 1 got signal: ",
    "[Rank 1] some NCCL operations have failed or timed out: last enqueued work: ",
    "last completed NCCL work sequence id: ",
]
AFTER = 'Traceback (most recent call last):\n  File "train.py", line 7, in main\n    f()\nValueError: no such shard\n'


@pytest.mark.parametrize("digits", [19, 21, 60, 4_400, 12_000])
@pytest.mark.parametrize("before", BEFORE)
def test_the_lines_beside_it_are_read(tmp_path: Path, before: str, digits: int) -> None:
    """Live as one batch of new lines, and as a file."""
    text = f"{before}{'9' * digits}\n{AFTER}"
    path = tmp_path / "job.log"
    path.write_text(text)

    live = block.decode(steps.parse(text.encode(), "job.log", 0, "gpu-1", 1_795_240_800.0)["events"])
    read = list(read_paths([str(path)]))

    for found in (live, read):
        assert any(isinstance(one, LogEvent) and one.exception == "ValueError" for one in found)
        assert not [one for one in found if isinstance(one, Unread)]
