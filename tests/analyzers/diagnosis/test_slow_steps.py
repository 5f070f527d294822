"""A step log alone: since when steps take longer, and what is no slowdown."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analyzers.diagnosis.slow.step_logs import slower_steps
from analyzers.model.topology import infer
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.files.reading import read_paths
from collectors.records import STEP_COLUMNS, Steps
from service.packaged_knowledge import load

Seconds = Callable[[int, random.Random], float]


BEGAN_AT = 1_795_240_800.0


def judged(folder: Path, seconds: Seconds, count: int = 400, **more: Callable[[int, float], float]) -> Verdict:
    """Return the verdict on a log of these steps."""
    logged(folder / "rank0.log", seconds, count, **more)
    window = Window.build(read_paths([folder]))
    return judge(window, infer(window), load())


def logged(
    path: Path, seconds: Seconds, count: int = 400, at: float = BEGAN_AT, **more: Callable[[int, float], float]
) -> None:
    """Write a log of these steps."""
    draws, lines = random.Random(7), list[str]()
    for step in range(count):
        took = seconds(step, draws) * draws.gauss(1.0, 0.02)
        at += took
        row = {"step": step, "at": at, "rank": 0, "seconds": took, "loss": 2.5} | {
            name: of(step, took) for name, of in more.items()
        }
        lines.append(json.dumps(row) + "\n")
    path.write_text("".join(lines))


@pytest.mark.parametrize("times", [1.15, 1.4, 2.0])
def test_steps_that_take_longer_are_slow_and_name_no_one(tmp_path: Path, times: float) -> None:
    """The onset and the size are given; who it is, steps do not show."""
    verdict = judged(tmp_path, lambda step, _: 1.0 if step < 200 else times)
    assert (verdict.symptom, verdict.abstained, verdict.culprits) == ("slow", True, ())
    (shown,) = (one.text for one in verdict.evidence if "since step" in one.text)
    since = int(shown.split("since step ")[1].split(",")[0])
    assert abs(since - 200) <= 5
    assert float(shown.split(" % longer")[0].rsplit(" ", 1)[1]) == pytest.approx(100 * (times - 1), abs=2)
    assert verdict.action.kind not in ("evict", "drain_after_job")


STEADY: dict[str, Seconds] = {
    "even": lambda _step, _: 1.0,
    "noisy": lambda _step, draws: draws.gauss(1.0, 0.08),
    "a checkpoint every 50 steps": lambda step, _: 20.0 if step % 50 == 49 else 1.0,
    "one long pause": lambda step, _: 600.0 if step == 300 else 1.0,
    "little by little": lambda step, _: 1.0 + step / 800,
    "slow at first": lambda step, _: 3.0 if step < 30 else 1.0,
    "for a while": lambda step, _: 1.5 if 150 <= step < 250 else 1.0,
    "less than a tenth": lambda step, _: 1.0 if step < 200 else 1.06,
    "in the last seconds only": lambda step, _: 1.0 if step < 385 else 1.5,
}


@pytest.mark.parametrize("name", STEADY)
def test_what_is_no_slowdown_is_none(tmp_path: Path, name: str) -> None:
    """Noise, pauses, growth and what ended open nothing."""
    assert judged(tmp_path, STEADY[name]).symptom != "slow"


def test_a_larger_batch_is_no_slowdown(tmp_path: Path) -> None:
    """Longer steps that do as much a second do more."""
    longer: Seconds = lambda step, _: 1.0 if step < 200 else 1.5  # noqa: E731
    for of in ("tokens_per_second", "samples_per_second"):
        more = {of: lambda step, took: (1000.0 if step < 200 else 1500.0) / took}
        assert judged(tmp_path, longer, **more).symptom != "slow"
        assert judged(tmp_path, longer, **{of: lambda _, took: 1000.0 / took}).symptom == "slow"
    sizes: Callable[[int, float], float] = lambda step, _: 256 if step < 200 else 384  # noqa: E731
    assert judged(tmp_path, longer, batch_size=sizes).symptom != "slow"
    assert judged(tmp_path, longer, batch_size=lambda _, __: 256).symptom == "slow"
    accumulated: Callable[[int, float], float] = lambda step, _: 6 if step < 200 else 4  # noqa: E731
    assert judged(tmp_path, longer, batch_size=sizes, grad_accum=accumulated).symptom == "slow"


@pytest.mark.parametrize("kind", ["of a loader", "a mean of all steps"])
def test_a_rate_that_is_not_of_the_steps_explains_nothing(tmp_path: Path, kind: str) -> None:
    """It does not go down where a step is longer."""
    longer: Seconds = lambda step, _: 1.0 if step < 300 else 1.5  # noqa: E731
    passed = [0.0]

    def rate(step: int, took: float) -> float:
        passed[0] += took
        return 95_000.0 if kind == "of a loader" else 256 * (step + 1) / passed[0]

    assert judged(tmp_path, longer, samples_per_second=rate).symptom == "slow"


def test_the_newest_run_is_judged_and_not_the_longest(tmp_path: Path) -> None:
    """The log of an earlier run beside it was slow."""
    slow: Seconds = lambda step, _: 1.0 if step < 300 else 1.5  # noqa: E731
    logged(tmp_path / "rank0_old.log", slow, 600, at=BEGAN_AT - 86_400)
    assert judged(tmp_path, lambda _step, _: 1.0).symptom != "slow"
    assert judged(tmp_path, slow).symptom == "slow"


def test_a_log_of_something_else_that_began_later_hides_no_slowdown(tmp_path: Path) -> None:
    """It has another name, and no rank."""
    slow: Seconds = lambda step, _: 1.0 if step < 200 else 1.5  # noqa: E731
    for name, seconds, count, at in (("train", slow, 400, 0.0), ("evaluation", lambda *_: 1.0, 60, 9e3)):
        logged(tmp_path / "rows", seconds, count, at=BEGAN_AT + at)
        (tmp_path / f"{name}.log").write_text((tmp_path / "rows").read_text().replace('"rank": 0, ', ""))
    (tmp_path / "rows").unlink()
    window = Window.build(read_paths([tmp_path]))
    assert judge(window, infer(window), load()).symptom == "slow"


def test_a_log_that_an_agent_read_every_few_seconds_is_one_log() -> None:
    """In a bundle each batch is a source; a log without stamps has the instant of the newest line of each reading."""
    records, at, draws = list[Steps](), 0.0, random.Random(3)
    for batch in range(80):
        steps = range(7 * batch, 7 * batch + 7)
        at += sum(draws.gauss(1.4 if step >= 280 else 1.0, 0.02) for step in steps)
        columns = {name: np.full(7, np.nan if kind == "<f8" else 0, kind) for name, kind in STEP_COLUMNS.items()}
        columns |= {"step": np.array(steps, "<i8"), "at": np.array([np.nan] * 6 + [1.79e9 + at])}
        source = f"night.fhz#{batch + 30}:/logs/train.log"
        bytes_of = {name: column.astype(STEP_COLUMNS[name]).tobytes() for name, column in columns.items()}
        records.append(Steps(source=source, count=7, columns=bytes_of, told_by="plain"))

    (found,) = slower_steps(records)

    assert "since step 28" in found.evidence[0].text
    assert found.costs == pytest.approx(1.4, abs=0.02)


def reported(
    steps: Sequence[int], seconds: Sequence[float], *, stamped: bool = True, source: str = "train.log", **more: Any
) -> Steps:
    """Return the record of a log; its lines are a row each, in this order."""
    count = len(steps)
    columns: dict[str, Any] = {
        name: np.full(count, np.nan if kind == "<f8" else 0) for name, kind in STEP_COLUMNS.items()
    }
    columns |= {
        "step": steps,
        "seconds": seconds,
        "at": 1.79e9 + np.cumsum(seconds) if stamped else columns["at"],
    } | more
    bytes_of = {name: np.array(values, STEP_COLUMNS[name]).tobytes() for name, values in columns.items()}
    return Steps(source=source, count=count, columns=bytes_of, told_by="plain")


def said(*records: Steps) -> str:
    """Return what is said of these logs, empty where they show no slowdown."""
    return "".join(found.evidence[0].text for found in slower_steps(records))


def drawn(count: int, level: Callable[[int], float], sigma: float = 0.01, seed: int = 3) -> list[float]:
    """Return the seconds of so many steps, with noise."""
    draws = random.Random(seed)
    return [level(step) * draws.lognormvariate(0.0, sigma) for step in range(count)]


def test_steps_that_are_numbered_anew_each_epoch_are_all_compared() -> None:
    """Only the first epoch was fast; the sentence gives the count."""
    seconds = drawn(400, lambda row: 2.8 if row >= 240 else 2.0)

    text = said(reported([row % 100 for row in range(400)], seconds))

    assert text.startswith("a step takes 2.8 s since step 40 after its numbers began anew twice, 40 % longer")
    assert not said(reported([row % 100 for row in range(400)], drawn(400, lambda _: 2.0)))


def test_a_job_that_was_as_fast_again_after_a_restart_is_not_slow() -> None:
    """Its numbers go back to the checkpoint's; slower since then, it is slow."""
    steps = [*range(400), *range(200, 600)]
    assert not said(reported(steps, drawn(800, lambda row: 2.8 if 200 <= row < 400 else 2.0)))
    assert "since step 205 after its numbers began anew once" in said(
        reported(steps, drawn(800, lambda row: 2.8 if row >= 400 else 2.0))
    )


@pytest.mark.parametrize("stamped", [True, False])
def test_rows_that_are_sent_twice_count_once(stamped: bool) -> None:
    """Each batch of a bundle begins with what the one before it ended with."""
    seconds = drawn(400, lambda row: 2.8 if row >= 240 else 2.0)
    at = 1.79e9 + np.cumsum(seconds)
    batches = [range(max(first - 30, 0), first + 50) for first in range(0, 400, 50)]

    text = said(*(
        reported(rows, [seconds[row] for row in rows], stamped=stamped, source=f"night.fhz#{number}:/train.log", **(
            {"at": at[list(rows)]} if stamped else {}
        ))
        for number, rows in enumerate(batches)
    ))  # fmt: skip

    assert text.startswith("a step takes 2.8 s since step 240, 40 % longer")


def test_processes_of_one_log_without_ranks_are_apart() -> None:
    """Their rows do not stand for counts of one process."""
    seconds = drawn(400, lambda row: 2.8 if row >= 240 else 2.0)
    assert said(*[reported(range(400), seconds)] * 3).startswith("a step takes 2.8 s since step 240, 40 % longer")


def test_blocks_of_an_evaluation_hide_no_slowdown() -> None:
    """Nearly all steps of such a block are long, and its median is too."""
    evaluations = {row for first in (130, 290, 450, 610, 770) for row in range(first, first + 9)}
    seconds = drawn(1000, lambda row: (5.0 if row in evaluations else 1.0) * (1.15 if row >= 500 else 1.0))
    assert said(reported(range(1000), seconds)).startswith("a step takes 1.15 s since step 500, 15 % longer")


PHASES: dict[str, tuple[list[float], str]] = {
    "in turns": ([2, 3.2, 2, 3.2, 2, 3.2], ""),
    "once before": ([2, 3.2, 2, 3.2], "a step takes 3.2 s since step 300, 60 % longer than before (2 s)"),
    "as at the beginning": ([2, 1.4, 2], ""),
    "two slowdowns": ([2, 2.4, 3], "a step takes 2.4 s since step 100, 3 s since step 200; 2 s before"),
    "less than it was": ([2, 2.8, 2.4], "a step takes 2.8 s since step 100, 2.4 s since step 200; 2 s before"),
    "over but for a trace": ([2, 2.8, 2.05], ""),
    "faster, then slower than ever": ([2, 1.6, 3], "a step takes 3 s since step 200, 88 % longer than before (1.6 s)"),
}


@pytest.mark.parametrize("name", PHASES)
def test_a_slowdown_lasts_and_is_new(name: str) -> None:
    """Levels of 100 steps each."""
    levels, wanted = PHASES[name]
    assert (
        said(reported(range(100 * len(levels)), drawn(100 * len(levels), lambda row: levels[row // 100], 0.001)))
        == wanted
    )


def test_a_level_between_two_may_be_short() -> None:
    """Its first and last blocks have steps of its neighbours."""
    seconds = drawn(1000, lambda row: 2.0 if row < 500 else 2.5 if row < 550 else 3.4, 0.001)
    wanted = "a step takes 2.5 s since step 500, 3.4 s since step 550; 2 s before"
    assert said(reported(range(1000), seconds)) == wanted


@pytest.mark.parametrize("stamped", [True, False])
def test_seconds_since_the_last_line_are_of_several_steps(stamped: bool) -> None:
    """From one line on each is of twice as many steps; where steps take longer too, stamps show by how much."""
    steps = [*range(10, 2010, 10), *range(2020, 6020, 20)]
    assert not said(reported(steps, drawn(400, lambda row: 5.0 if row < 200 else 10.0), stamped=stamped))
    slower = said(reported(steps, drawn(400, lambda row: 5.0 if row < 200 else 15.0), stamped=stamped))
    assert slower.startswith(
        "a step takes 0.75 s since step 2,020, 50 % longer" if stamped else "a step takes 15 s since"
    )


def test_a_larger_batch_before_a_slowdown_explains_its_own_part() -> None:
    """As much is done a second after the first change, and less after the second."""
    seconds = drawn(600, lambda row: 2.0 if row < 200 else 4.0 if row < 400 else 5.0)
    rate = [(2000.0 if row < 200 else 4000.0) / took for row, took in enumerate(seconds)]
    wanted = "a step takes 5 s since step 400, 25 % longer than before (4 s)"
    assert said(reported(range(600), seconds, tokens_per_second=rate)) == wanted


@pytest.mark.parametrize(("every", "more"), [(10, 10.0), (3, 4.0)])
def test_some_steps_that_became_longer_are_slow_on_average(every: int, more: float) -> None:
    """Their median is as before."""
    seconds = drawn(1000, lambda row: 2.0 + (more if row >= 500 and row % every == 0 else 0.0))
    text = said(reported(range(1000), seconds))
    assert text.startswith("on average a step takes ")
    assert "while the median is as before: some steps became longer" in text
    assert abs(int(text.split("since step ")[1].split(",")[0]) - 500) <= every


SOUND: dict[str, Callable[[int, random.Random], float]] = {
    "checkpoints": lambda row, _: 30.0 * (row % 250 == 249),
    "evaluations": lambda row, _: 20.0 * (row % 100 == 99) + 90.0 * (row % 500 == 499),
    "a late pause every 500": lambda row, _: 600.0 * (row % 500 == 0 and row > 900),
    "stalls": lambda _, draws: 5.0 * (draws.random() < 0.1),
    "growth from the middle on": lambda row, _: 4.0 * max(row / 2000 - 0.5, 0),
    "epochs": lambda row, _: 15.0 * (row % 200 == 0) + 60.0 * (row % 200 == 199),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_job_with_much_noise_is_not_slow(name: str) -> None:
    """2,000 steps."""
    for seed in range(3):
        draws = random.Random(seed)
        seconds = [2.0 * draws.lognormvariate(0.0, 0.1) + SOUND[name](row, draws) for row in range(2000)]
        assert not said(reported([row % 200 if name == "epochs" else row for row in range(2000)], seconds))


def test_few_steps_show_no_change(tmp_path: Path) -> None:
    """Thirty steps are no past."""
    assert judged(tmp_path, lambda step, _: 5.0 if step < 15 else 10.0, count=30).symptom != "slow"


@pytest.mark.parametrize(
    ("began", "times", "wanted"), [(1.45, 1.069, ""), (2.45, 1.035, ""), (1.0, 1.4, "39"), (2.0, 1.2, "20")]
)
def test_stamps_of_whole_seconds_show_what_many_rows_take(began: float, times: float, wanted: str) -> None:
    """Of single rows the median is 1 s or 2 s, whatever a step takes."""
    seconds = drawn(1200, lambda row: began * (times if row >= 600 else 1.0), 0.02)
    text = said(reported(range(1200), [np.nan] * 1200, at=np.floor(1.79e9 + np.cumsum(seconds))))
    assert f"{wanted} % longer than before" in text if wanted else not text
    assert "the median is as before" not in text


@pytest.mark.parametrize("stamped", [True, False])
def test_a_printed_tenth_of_a_second_shows_no_change_of_less(stamped: bool) -> None:
    """A step of 147 ms becomes one of 154; one of 500 ms that takes 800 is slower."""
    for (before, after), wanted in {(0.147, 0.1535): "", (0.5, 0.8): "60" if stamped else "at least 36"}.items():
        seconds = drawn(1600, lambda row, own=(before, after): own[row >= 800], 0.01)  # type: ignore[misc]
        at = {"at": np.floor(1.79e9 + np.cumsum(seconds))} if stamped else {}
        text = said(reported(range(1600), np.round(seconds, 1).tolist(), stamped=stamped, **at))
        assert f", {wanted} % longer than before" in text if wanted else not text


def test_a_rate_of_work_hides_no_steps_that_became_longer() -> None:
    """It is as before in the median, as the seconds are; where the long steps did more, it is no slowdown."""
    seconds = drawn(1200, lambda row: 5.0 if row >= 600 and row % 8 == 0 else 1.0)
    rate = [8000.0 / took for took in seconds]
    text = said(reported(range(1200), seconds, tokens_per_second=rate))
    assert "while the median is as before: some steps became longer" in text
    more = [8000.0 * (5 if took > 3 else 1) / took for took in seconds]
    assert not said(reported(range(1200), seconds, tokens_per_second=more))


def test_a_rate_that_is_a_mean_since_the_start_is_shown_by_stamps() -> None:
    """No duration is printed, and the rate hardly goes down."""
    seconds = drawn(1200, lambda row: 1.4 if row >= 600 else 1.0, 0.02)
    rate = 500_000 * np.arange(1, 1201) / np.cumsum(seconds)
    at = np.round(1.79e9 + np.cumsum(seconds), 3)
    assert "40 % longer" in said(reported(range(1200), [np.nan] * 1200, at=at, tokens_per_second=rate))


@pytest.mark.parametrize("how", ["seconds", "rounded, with stamps", "rate"])
def test_a_printed_mean_since_the_start_hides_no_slowdown(how: str) -> None:
    """What it sums up to grows by each step's own time; where it is rounded, by that of many."""
    for times in (1.4, 1.0):
        seconds = np.array([1.0] * 600 + [times] * 600) * np.array(drawn(1200, lambda _: 1.0, 0.03))
        mean = np.cumsum(seconds) / np.arange(1, 1201)
        nothing = [np.nan] * 1200
        at = np.floor(1.79e9 + np.cumsum(seconds)) if "stamps" in how else np.array(nothing)
        if how == "rate":
            text = said(reported(range(1, 1201), nothing, at=at, tokens_per_second=np.round(5e5 / mean, 1)))
        else:
            printed = 1 / np.round(1 / mean, 3) if "rounded" in how else mean
            text = said(reported(range(1, 1201), printed.tolist(), at=at))
        assert bool(text) == (times > 1)
        assert not text or 36 <= float(text.split(" % longer")[0].rsplit(" ", 1)[1]) <= 42
