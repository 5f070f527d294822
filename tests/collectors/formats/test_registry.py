"""Readers are imported as a content needs them, and found whatever was imported before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from collectors.formats import registry

REPOSITORY = Path(__file__).resolve().parents[3]
DUMP = REPOSITORY / "examples" / "hung_job" / "fr_rank0.json"
PROGRAM = """
import sys
from collectors.formats import Input, recognise
with open({path!r}, "rb") as file:
    head = file.read(65536)
    file.seek(0)
    format = recognise(head, {path!r})
    list(format.read(Input({path!r}, file, head)))
print(format.name, *sorted(name for name in sys.modules if name.startswith("collectors.formats.")))
"""


def imported(path: Path) -> list[str]:
    """Return the format of a file, and the reader modules that reading it in a fresh process imports."""
    program = PROGRAM.format(path=str(path))
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY
    ).stdout.split()


def test_a_dump_costs_no_other_reader() -> None:
    """A flight-recorder dump is recognised before the readers of logs, stacks and kernel logs are imported."""
    name, *modules = imported(DUMP)

    assert name == "flight_recorder_json"
    assert not [module for module in modules if module.split(".")[2] in {"job_log", "kernel_log", "nccl", "stacks"}]


def test_a_log_is_asked_of_every_reader() -> None:
    """No reader is certain of a job's log: the surest is taken, whichever was imported first."""
    assert imported(REPOSITORY / "examples" / "hung_job" / "rank0.log")[0] == "job_log"


@pytest.mark.parametrize("_time", [1, 2])
def test_the_registry_is_sorted_and_whole(_time: int) -> None:
    """Every reader, by name, each time."""
    names = [known.name for known in registry()]

    assert names == sorted(names)
    assert {"block", "flight_recorder_pickle", "job_log", "process_table"} <= set(names)
