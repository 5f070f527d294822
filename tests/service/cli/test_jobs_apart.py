"""Files of several jobs in one folder: never one verdict over all of them, and one job's own files never taken apart."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from collectors.files.reading import read_paths
from collectors.records import LogEvent, Members, Placement, Record
from service.cli import run
from service.cli.jobs_apart import of_one_job
from service.client import UserError
from tests.support.dump_files import write_files
from tests.support.hand_made import call, dump, group

CRASH = 'Traceback (most recent call last):\n  File "/x/{0}.py", line 3, in generate\nValueError: {0}\n'


def steps(count: int, *, hour: int = 10) -> str:
    """So many steps, a minute each."""
    return "".join(f"2026-03-01 {hour:02d}:{step:02d}:00 step: {step} loss: 2.5\n" for step in range(count))


def write(folder: Path, files: dict[str, str]) -> str:
    """Write files below a folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)


def dumps(folder: Path, *, begun_s: int, count: int) -> None:
    """Write the dumps of two ranks of which one has not entered the last collective."""
    world = group("0", 0, 1)
    for rank in (0, 1):
        calls = [call(number, at_s=begun_s + number) for number in range(1, count + 1 - rank)]
        write_files([dump(rank, calls, [world], {0: (count, count)})], folder)


SEVERAL: dict[str, tuple[dict[str, str], set[str]]] = {
    "slurm": ({"slurm-811.out": CRASH.format("a"), "slurm-812.out": CRASH.format("b")}, {"811", "812"}),
    "array": ({"slurm-9_1.out": CRASH.format("a"), "slurm-9_2.out": CRASH.format("b")}, {"9_1", "9_2"}),
    "torchrun": (
        {
            "logs/llama_ab12_x9z/attempt_0/0/stderr.log": CRASH.format("a"),
            "logs/qwen_0f_2k_m1/attempt_0/0/stderr.log": CRASH.format("b"),
        },
        {"llama", "qwen"},
    ),
}
ONE: dict[str, dict[str, str]] = {
    "slurm beside a rank's log": {"slurm-811.out": CRASH.format("a"), "rank_0.log": steps(4)},
    "two streams": {"stdout/rank_0.log": steps(9), "stderr/rank_0.log": CRASH.format("a")},
    "nodes": {"node0/train.log": steps(9), "node1/train.log": steps(9)},
    "days": {"monday/rank_0.log": steps(9), "tuesday/rank_0.log": steps(30).partition("10:09:00")[2]},
    "an evaluation": {"train/log.txt": steps(9), "eval/log.txt": steps(9, hour=11)},
    "nodes in two time zones": {"node0/train.log": steps(9), "node1/train.log": steps(9, hour=13)},
    "a resumed run": {"2026-03-01/rank_0.log": steps(9), "2026-03-02/rank_0.log": steps(9, hour=13)},
    "attempts": {"attempt_0/rank_0.log": steps(9), "attempt_1/rank_0.log": steps(9, hour=13)},
    "a torchrun a role": {
        "trainer/t_ab12_x9z/attempt_0/0/stderr.log": CRASH.format("a"),
        "rollout/r_0f_2k_m1/attempt_0/0/stderr.log": CRASH.format("b"),
    },
    "a torchrun a node": {
        "llama_ab12_x9z/attempt_0/0/stderr.log": CRASH.format("a"),
        "llama_0f_2k_m1/attempt_0/0/stderr.log": CRASH.format("b"),
    },
}


@pytest.mark.parametrize("case", SEVERAL)
def test_several_jobs_are_refused_with_their_names(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the jobs and the option; with the option one is judged on its own files."""
    files, jobs = SEVERAL[case]
    folder = write(tmp_path, files)
    assert run(["diagnose", folder]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert all(job in err for job in (*jobs, "--job"))
    assert run(["diagnose", folder, "--job", "never"]) == 2
    err = capsys.readouterr().err
    assert all(job in err for job in jobs)


def test_the_chosen_job_is_judged_on_its_own_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What lies beside a job's files is its own; what lies above them is of each."""
    files = {"one/slurm-811.out": CRASH.format("a"), "two/slurm-812.out": CRASH.format("b"), "two/rank_0.log": steps(3)}
    assert run(["diagnose", write(tmp_path, files), "--job", "812", "--json"]) in {0, 3}
    shown = capsys.readouterr().out
    assert "ValueError: b" in shown
    assert "ValueError: a" not in shown
    assert json.loads(shown)["coverage"]["sources"]["steps"] == 1


@pytest.mark.parametrize("case", ONE)
def test_one_job_is_not_taken_apart(case: str, tmp_path: Path) -> None:
    """Streams, nodes, days, attempts and roles of one job are judged together."""
    records = list(read_paths([write(tmp_path, ONE[case])]))
    assert of_one_job(records, None) == records


@pytest.mark.parametrize(("begun", "kept"), [(7200, "refused"), (0, "all")], ids=["two runs", "two rounds"])
def test_dumps_of_two_runs_differ_in_an_entry(begun: int, kept: str, tmp_path: Path) -> None:
    """A later dump of one process has the same entries as the earlier, and some more."""
    dumps(tmp_path / "first", begun_s=0, count=4)
    dumps(tmp_path / "second", begun_s=begun, count=6)
    records = list(read_paths([tmp_path]))
    with pytest.raises(UserError, match="--job second") if kept == "refused" else nullcontext():
        assert of_one_job(records, None) == records


def test_records_that_state_their_jobs_are_told_apart() -> None:
    """A record without a job, and without a file, is of each."""
    records: list[Record] = [
        LogEvent(event="oom", job="llama", source="a/x:1"),
        LogEvent(event="oom", job="qwen", source="b/x:1"),
        LogEvent(event="oom", source="b/y:1"),
        Placement(ranks=Members.of([0]), nodes=("n",)),
    ]
    assert of_one_job(records, "qwen") == records[1:]
    assert of_one_job(records[:1], None) == records[:1]
    with pytest.raises(UserError, match="llama, qwen"):
        of_one_job(records, None)
