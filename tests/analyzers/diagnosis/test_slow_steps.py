"""A step log alone: since when steps take longer, and what is no slowdown."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

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


def judged(folder: Path, seconds: Seconds, count: int = 400, **more: Callable[[int], float]) -> Verdict:
    """Return the verdict on a log of these steps."""
    draws, at, lines = random.Random(7), 1_795_240_800.0, []
    for step in range(count):
        took = seconds(step, draws) * draws.gauss(1.0, 0.02)
        at += took
        row = {"step": step, "at": at, "rank": 0, "seconds": took, "loss": 2.5} | {
            name: of(step) for name, of in more.items()
        }
        lines.append(json.dumps(row) + "\n")
    (folder / "rank0.log").write_text("".join(lines))
    window = Window.build(read_paths([folder]))
    return judge(window, infer(window), load())


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
    assert judged(tmp_path, longer, tokens_per_second=lambda _: 1000.0).symptom != "slow"
    assert judged(tmp_path, longer, tokens_per_second=lambda step: 1000.0 if step < 200 else 667.0).symptom == "slow"


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


def test_few_steps_show_no_change(tmp_path: Path) -> None:
    """Thirty steps are no past."""
    assert judged(tmp_path, lambda step, _: 5.0 if step < 15 else 10.0, count=30).symptom != "slow"
