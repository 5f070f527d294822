"""Whose steps are whose in a job's log: ranks of prefixes, labels, folders and local ranks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from collectors.files.reading import read_paths
from collectors.records import LogEvent
from tests.collectors.formats.test_log_steps import column, read, steps
from tests.support.live_hangs import verdict


def losses(rank: int) -> list[str]:
    """Return a rank's lines: its loss is NaN from step 31 on, rank 2's from step 30."""
    return [f"step {step} loss {'nan' if step > 30 or (step == 30 and rank == 2) else 0.5}" for step in range(1, 35)]


def printed(prefix: str, ranks: Iterable[int] = range(4)) -> str:
    """Return the ranks' lines interleaved, each with the prefix of its number."""
    lines = zip(*([f"{prefix.format(rank)}{line}\n" for line in losses(rank)] for rank in ranks), strict=True)
    return "".join(line for lines_of_step in lines for line in lines_of_step)


BROKEN = "the loss becomes NaN at step 30 on rank 2 alone, while ranks 0, 1 and 3 still report a number"


@pytest.mark.parametrize("prefix", ["[rank{}]: ", "[default{}]:", "[default{0}]:[rank{0}]: ", "0: [default{}]:"])
def test_the_ranks_of_torchruns_own_prefix_do_not_overwrite_each_other(prefix: str) -> None:
    """torchrun --tee writes the local rank, which is the rank where nothing names a second node."""
    records = read(printed(prefix))

    assert [record.rank for record in steps(records)] == [0, 1, 2, 3]
    symptom = verdict(records).first_symptom
    assert symptom is not None
    assert (symptom.text, symptom.rank) == (BROKEN, 2)


@pytest.mark.parametrize(
    "text",
    [
        "".join(printed(f"{node}: [default{{}}]:") for node in ("gpu-1", "gpu-2")),
        "".join(printed(f"{task}: [default{{}}]:") for task in (0, 1)),
        "".join(printed(f"[default{{}}]:{mark}") for mark in ("", "[rank9]: ")),
    ],
    ids=["pdsh", "srun", "ranks of a second node"],
)
def test_a_local_rank_of_several_nodes_is_no_rank(text: str) -> None:
    """The series stay apart, and none gets another process's rank; nor does an error."""
    text += text.splitlines()[-1].partition("step")[0].replace("[rank9]: ", "") + "CUDA error: unknown error\n"

    records = read(text)

    found = steps(records)
    assert [record.rank for record in found if record.rank != 9] == [None] * (8 if len(found) == 8 else 4)
    assert {column(record, "step")[-1] for record in found} == {34}
    assert {record.rank for record in records if isinstance(record, LogEvent) and record.event != "nan"} <= {None}


def test_the_files_of_torchruns_log_folder_are_of_a_rank_each(tmp_path: Path) -> None:
    """--log-dir writes one folder a local rank."""
    for rank in range(4):
        folder = tmp_path / "none_x7" / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        (folder / "stdout.log").write_text("\n".join(losses(rank)))

    records = list(read_paths([tmp_path]))

    assert [(record.rank, record.attempt) for record in steps(records)] == [(rank, 0) for rank in range(4)]
    symptom = verdict(records).first_symptom
    assert symptom is not None
    assert (symptom.text, symptom.rank) == (BROKEN, 2)


@pytest.mark.parametrize("runs", [("none_a", "none_b"), ("node1/none_a", "node2/none_b")])
def test_the_log_folders_of_several_nodes_give_no_rank(tmp_path: Path, runs: tuple[str, str]) -> None:
    """Every node's torchrun has local ranks from 0 on."""
    for run in runs:
        folder = tmp_path / run / "attempt_0" / "2"
        folder.mkdir(parents=True)
        (folder / "stdout.log").write_text("\n".join(losses(2)))

    assert [record.rank for record in steps(read_paths([tmp_path]))] == [None, None]


def test_a_bracketed_epoch_is_no_process() -> None:
    """A trainer's own mark before a step makes no series of its own."""
    (found,) = steps(read("[epoch1]: step 1 loss 0.5\n[epoch2]: step 2 loss 0.5\n"))

    assert (found.rank, column(found, "step")) == (None, [1, 2])


@pytest.mark.parametrize("form", ["rank {} step {} loss {}", "rank {} | step {} loss {}", "Rank {}: step={} loss {}"])
@pytest.mark.parametrize("stamp", ["", "2026-11-29T10:30:11 ", "2026-11-29 10:30:11 "])
def test_a_bare_rank_before_a_step_names_whose_it_is(form: str, stamp: str) -> None:
    """The ranks of one log, of which one has a loss that is no number."""
    text = "".join(
        stamp + form.format(rank, step, "nan" if (rank, step) == (1, 4) else 2.5) + "\n"
        for step in range(1, 5)
        for rank in range(3)
    )
    found = {record.rank: column(record, "nan") for record in steps(read(text))}
    assert found == {0: [0, 0, 0, 0], 1: [0, 0, 0, 1], 2: [0, 0, 0, 0]}


@pytest.mark.parametrize("stamp", ["{}T10:30:{:02d} ", "{} 10:30:{:02d} ", "[{}T10:30:{:02d}Z] ", "10:30:{1:02d} "])
def test_steps_before_the_first_nan_stay_before_it(stamp: str, tmp_path: Path) -> None:
    """Steps wait to be read, and each line begins with a stamp of its own."""
    rows = [
        stamp.format("2026-11-29", step) + f"step {step} loss {2.5 if step < 14 else 'nan'}\n" for step in range(10, 18)
    ]
    (tmp_path / "train.log").write_text("".join(rows))
    records = list(read_paths([tmp_path / "train.log"]))
    (record,) = steps(records)
    assert column(record, "step") == list(range(10, 18))
    assert [one.step for one in records if isinstance(one, LogEvent)][:1] == [14]
