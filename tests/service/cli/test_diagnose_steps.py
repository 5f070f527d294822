"""Logs of steps alone: no fault is found, unless something is missing or the ranks stopped apart."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from analyzers.diagnosis.slow.step_logs import NO_PACE
from service.cli import run
from service.cli.stepless_logs import STEP_LINE


def write(folder: Path, counts: list[int], more: str = "training finished\n") -> str:
    """Write a log a rank, with so many steps each."""
    for rank, count in enumerate(counts):
        steps = "".join(f"step: {step} loss: 2.{step} time: 0.5s\n" for step in range(1, count + 1))
        (folder / f"rank{rank}.log").write_text(steps + more, encoding="utf-8")
    return str(folder)


def test_even_steps_without_a_fault_end_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The ranks and their steps are counted; no culprit is named; the document is on stdout."""
    folder = write(tmp_path, [80] * 4)

    assert run(["diagnose", folder, "--json", "--expect", "culprit=none", "--expect", "abstained=false"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["culprits"], verdict["action"]["kind"]) == ([], "none")
    assert run(["diagnose", folder]) == 0
    assert "4 ranks, 80 steps each" in capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize("ranks", [1, 4])
def test_steps_beside_words_of_a_fault_are_no_clean_bill(
    tmp_path: Path, ranks: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one log or several."""
    assert run(["diagnose", write(tmp_path, [80] * ranks, "the storage is unreachable\n")]) == 2
    assert capsys.readouterr().out == ""


def test_ranks_that_stop_at_different_steps_leave_it_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is named, and what is open is stated with where each stands."""
    assert run(["diagnose", write(tmp_path, [80, 80, 41, 80], "")]) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert "whether a rank has stopped: rank2.log ends at step 41, rank0.log at step 80" in said


def test_logs_that_report_not_every_step_end_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the one that reports every tenth the last is one before it."""
    write(tmp_path, [80])
    (tmp_path / "rank1.log").write_text("".join(f"step: {step} loss: 2.5\n" for step in range(1, 80, 10)))

    assert run(["diagnose", str(tmp_path)]) == 0
    assert "2 ranks, 8 to 80 steps each" in capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize("logs", [1, 2, 4])
def test_a_log_without_steps_is_no_clean_bill(logs: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its pace was not judged: the answer states it, and how a step's line looks, of one log as of a folder."""
    for rank in range(logs):
        text = "".join(f"[2026-11-28 10:00:{n:02}] it={n} | L=2.5 | 1302 ms\n" for n in range(60))
        (tmp_path / f"rank{rank}.log").write_text(text, encoding="utf-8")
    assert run(["diagnose", str(tmp_path) if logs > 1 else str(tmp_path / "rank0.log")]) == 2

    found = capsys.readouterr()
    assert found.out == ""
    assert f"no steps were recognised in {60 * logs} lines of rank0.log" in found.err
    assert "a step line looks like `step 120 loss 2.31 time 0.41s` (docs/formats.md)" in found.err


def test_beside_a_log_with_steps_one_without_is_stated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No fault was found; of the other's pace nothing is known."""
    write(tmp_path, [80])
    (tmp_path / "rank1.log").write_text("it=1 | L=2.5 | 1302 ms\n" * 60, encoding="utf-8")

    assert run(["diagnose", str(tmp_path)]) == 0
    assert "the pace: no steps were recognised in 60 lines of rank1.log" in " ".join(capsys.readouterr().out.split())


def test_bars_alone_show_a_slower_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As Lightning draws them; the same job at one pace has none, and the step line of the docs is one."""
    ends, text = 0.0, ""
    for step in range(1, 601):
        ends += 1.3 if step <= 300 else 1.82
        clock = f"{int(ends) // 60:02}:{int(ends) % 60:02}"
        text += f"\rEpoch 0: {step // 6:3d}%|██  | {step}/600 [{clock}<09:00,  0.70it/s, v_num=3, train_loss=2.1]"
    (tmp_path / "train.log").write_text(text + "\n", encoding="utf-8")
    (tmp_path / "even.log").write_text(f"{STEP_LINE.split('`')[1]}\n" * 2, encoding="utf-8")

    assert run(["diagnose", str(tmp_path / "train.log")]) == 3
    assert "40 % longer than before (1.3 s)" in " ".join(capsys.readouterr().out.split())
    assert run(["diagnose", str(tmp_path / "even.log")]) == 0


def test_ranks_are_counted_within_their_roles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two roles that count from 0 each, and an engine's metrics beside their logs."""
    steps = "".join(f"step: {step} loss: 2.{step} time: 0.5s\n" for step in range(1, 9))
    for name in ("trainer_0.log", "trainer_1.log", "rollout_0.log"):
        (tmp_path / name).write_text(steps, encoding="utf-8")
    (tmp_path / "rollout_1.prom").write_text('vllm:num_requests_running{engine="0"} 3.0\n', encoding="utf-8")

    assert run(["diagnose", str(tmp_path)]) == 0
    assert "3 ranks, 8 steps each" in capsys.readouterr().out.splitlines()[0]


def test_twice_the_tokens_at_the_same_rate_are_no_slowdown(tmp_path: Path) -> None:
    """A longer context: the line has how many tokens are done in a second."""
    lines = (
        f"step {step} loss 2.31 | time {1 + (step >= 300):.3f}s | 32768 tok/s\n" if step % 2 else f"step {step} loss 2.3 "
        f"time {1 + (step >= 300):.3f}s 32,700 tokens per second\n"
        for step in range(600)
    )  # fmt: skip
    (tmp_path / "train.log").write_text("".join(lines), encoding="utf-8")
    assert run(["diagnose", str(tmp_path / "train.log")]) == 0


def test_a_log_without_times_says_that_its_pace_was_not_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A number and no time, or a time and no number."""
    (tmp_path / "train.log").write_text("".join(f"step {step} loss 2.31\n" for step in range(60)), encoding="utf-8")
    assert run(["diagnose", str(tmp_path / "train.log")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"whether steps became longer: {NO_PACE}" in shown
    assert shown.startswith("No fault found: 1 log, 60 steps; whether steps became longer is not judged")


def test_too_few_rows_are_not_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line every hundred steps: the later ones took longer, and the rows do not suffice to show it."""
    rows = (f"step {step} loss 2.31 time {1 if step < 2_400 else 1.5}s\n" for step in range(0, 3_900, 100))
    (tmp_path / "train.log").write_text("".join(rows), encoding="utf-8")
    assert run(["diagnose", str(tmp_path / "train.log")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "39 steps; whether steps became longer is not judged" in shown
    assert "34 rows of steps have a duration after the first 5, and 40 are needed" in shown


@pytest.mark.parametrize("lower", [True, False])
def test_where_no_time_is_known_a_rate_of_work_is_judged(
    lower: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has no size in seconds."""
    noise = random.Random(5)
    rates = [noise.gauss(450_000, 6_000) / (1.4 if lower and step > 300 else 1) for step in range(1, 601)]
    rows = (f"step {step} loss 2.31 {rate:.0f} tok/s\n" for step, rate in enumerate(rates, 1))
    (tmp_path / "train.log").write_text("".join(rows), encoding="utf-8")
    assert run(["diagnose", str(tmp_path / "train.log")]) == (3 if lower else 0)
    shown = " ".join(capsys.readouterr().out.split())
    assert "not judged" not in shown
    wanted = "rate of work is 28 % lower since step 301: in the median as much work takes 40 % longer than before"
    assert (wanted in shown) == lower


def test_the_log_of_an_earlier_run_of_a_rank_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It ends at another step than today's logs, and shows no rank that has stopped."""

    def log(name: str, count: int, began_at: int) -> None:
        rows = ({"step": step, "at": began_at + step, "rank": int(name[0]), "loss": 2.5} for step in range(count))
        (tmp_path / f"{name}.log").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")

    for rank in range(4):
        log(f"{rank}", 80, 1_795_240_800)
    log("2_old", 120, 1_795_140_800)
    assert run(["diagnose", str(tmp_path)]) == 0
    assert "4 ranks, 80 steps each; 1 log of an earlier run is left out" in capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize(
    ("slow", "said"),
    [
        ([(401, 650, 1.4)], "a step took 1.4 s from step 401 to step 650, 40 % longer than before (1 s)"),
        ([(201, 350, 1.4), (601, 750, 1.4), (1001, 1100, 1.4)], ""),
        ([(401, 460, 1.4)], ""),
        ([(1, 300, 1.4)], ""),
    ],
    ids=["once", "again and again", "for a minute", "from the begin"],
)
def test_a_slowdown_that_is_over_is_stated(
    slow: list[tuple[int, int, float]], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is no fault of now, and who looks into last night's run asks for it. What comes again is the job's own."""
    noise = random.Random(4)
    lengths = [
        noise.gauss(1.0, 0.02) * math.prod(times for first, last, times in slow if first <= step <= last)
        for step in range(1, 1_201)
    ]
    text = "".join(f"step {step} loss 2.5 step_time {length:.3f}s\n" for step, length in enumerate(lengths, 1))
    (tmp_path / "train.log").write_text(text, encoding="utf-8")

    assert run(["diagnose", str(tmp_path)]) == 0
    first = " ".join(capsys.readouterr().out.split()).partition("Missing")[0]
    assert first.startswith("No fault found: 1 log, 1,200 steps")
    assert said in first
    assert ("longer than before" in first) == bool(said)


@pytest.mark.parametrize(
    "names", [("train-2026-11-22.log", "train-2026-11-23.log"), ("train_000.log", "train_001.log")]
)
def test_logs_of_which_one_goes_on_with_the_other_are_one(
    names: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The older one is longer and ends slower; the newer one is sound."""
    for name, steps in zip(names, (range(1, 1_001), range(1_001, 1_601)), strict=True):
        rows = (
            f"step {step} loss 2.5 step_time {1.5 if 700 < step <= 1_000 else 1.0 + step % 7 / 500:.3f}s\n"
            for step in steps
        )
        (tmp_path / name).write_text("".join(rows), encoding="utf-8")
    assert run(["diagnose", str(tmp_path)]) == 0
    assert "1 log, 1,600 steps; a step took 1.5 s" in " ".join(capsys.readouterr().out.split())


def test_an_older_part_of_a_log_is_not_called_one_without_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its steps were read with those of the newest part."""
    for name, steps in (("train.log.1", range(1, 101)), ("train.log", range(101, 201))):
        (tmp_path / name).write_text(
            "".join(f"step {step} loss 2.5 step_time 1.0s\n" for step in steps), encoding="utf-8"
        )
    assert run(["diagnose", str(tmp_path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "1 log, 200 steps" in shown
    assert "no steps were recognised" not in shown
