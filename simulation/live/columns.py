"""Steps, rings and port counters of the simulated fleet, as the columns that the real collectors write."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import nan

from collectors.records import ARRAY_CODES, RING_COLUMNS, STEP_COLUMNS, Group, Members, Ring, Samples, Steps
from simulation.live.job import Attempt, LiveJob

NS = 1e9
STEP_BYTES = 4096
WORDS_A_STEP = 50_000_000


def steps(rows: Sequence[tuple[int, float, float]], told_by: str, ahead_seconds: float) -> Steps:
    """Return steps (number, instant of the end, length) by the node's clock; losses fall, nothing is odd."""
    count = len(rows)
    blank = array("d", [nan]) * count
    values: dict[str, array[int] | array[float]] = {
        "step": array("q", [number for number, _, _ in rows]),
        "at": array("d", [at + ahead_seconds for _, at, _ in rows]),
        "seconds": array("d", [length for _, _, length in rows]) if told_by != "probe" else blank,
        "loss": array("d", [2.0 + 8.0 / (1 + number) ** 0.3 for number, _, _ in rows]) if told_by != "probe" else blank,
    }
    zeros = array("b", [0]) * count
    columns = {
        name: values.get(name, zeros if code == "<i1" else blank).tobytes() for name, code in STEP_COLUMNS.items()
    }
    return Steps(told_by=told_by, step=rows[-1][0], count=count, columns=columns)


def ring(job: LiveJob, attempt: Attempt, rank: int, at: float, most: int, ahead_seconds: float) -> Ring:
    """Return a rank's newest collectives: one all-reduce of the world a step, and what it waits in."""
    course, habits = attempt.course, job.habits
    rows = [
        (number, ended_at - length * (0.1 + 0.02 * (rank * 37 % 11)), ended_at)
        for number, ended_at, length in course.last_steps(at, most)
    ]
    span = course.span(at)
    if span.activity != "training" and span.actors and rank not in span.actors and not habits.captured:
        rows.append((span.step + 1, span.begin + 0.01 * (1 + rank % 7), -1.0))
    count = len(rows)
    blank = {"<i8": 0, "<i4": 0, "<i1": 0}
    values: dict[str, list[int]] = {
        "collective_seq": [number for number, _, _ in rows],
        "operation": [1] * count,
        "bytes": [STEP_BYTES] * count,
        "entered_ns": [int((entered + ahead_seconds) * NS) for _, entered, _ in rows],
        "left_ns": [-1 if left < 0 else int((left + ahead_seconds) * NS) for _, _, left in rows],
        "step": [number for number, _, _ in rows],
        "phase": [-1] * count,
    }
    columns = {
        name: array(ARRAY_CODES[code], values.get(name, [blank[code]] * count)).tobytes()
        for name, code in RING_COLUMNS.items()
    }
    world = Group("0", "default_pg", Members.of(range(job.world)))
    return Ring(backend="nccl", groups=(world,), strings=("0", "all_reduce"), count=count, columns=columns)


def ports(progress_steps: float, at: float) -> Samples:
    """Return the words that went through a node's port: so many a step."""
    words = int(progress_steps * WORDS_A_STEP)
    return Samples(
        source="fabric", at=at, scope="infiniband", type="<i8", devices=("mlx5_0/1",),
        metrics=("port_rcv_data_words_total", "port_xmit_data_words_total"), ticks=array("d", [at]).tobytes(),
        monotonic_ticks=array("d", [at]).tobytes(), values=array("q", [words, words + 7]).tobytes(),
    )  # fmt: skip
