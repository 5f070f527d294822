"""Reports of stragglers in a job's log: every form that detectors print, and texts that only quote one."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest

from collectors.formats import Input, text_evidence
from collectors.formats.job_log import job_log, stragglers
from collectors.records import LogEvent, StragglerReports
from service.cli.record_columns import decoded
from tests.support.straggler_logs import MegatronJob, affected, scores_log

EXTREMES = (
    "[2026-11-21 07:06:05] | MnRtt/Rnk: 2101.50ms/12 | MxRtt/Rnk: 2804.25ms/3 | MnPwr/Rnk: 512.00W/12 | MxPwr/Rnk: 655.10W/1 | "
    "MnTmp/Rnk: 49.00C/7 | MxTmp/Rnk: 71.00C/3 | MnUtl/Rnk: 96.00%/8 | MxUtl/Rnk: 100.00%/0 | MnClk/Rnk: 1410.00MHz/3 | "
    "MxClk/Rnk: 1980.00MHz/12 | MnDRtt/Rnk: 2.10ms/1 | MxDRtt/Rnk: 9.90ms/2 | MnEtpt/Rnk: 201.10TF/3 | MxEtpt/Rnk: 268.35TF/12"
)


def record(text: str) -> StragglerReports | None:
    """Return what is read of a log: the same, whether as a text or as an agent reads it, which follows no explanations."""
    data = text.encode()
    kinds = [list(read(Input("rank0.log", io.BytesIO(data), data))) for read in (text_evidence.read, job_log.read)]
    of_text, of_log = ([each for each in records if isinstance(each, StragglerReports)] for records in kinds)
    assert not of_text or of_text == of_log
    return of_text[0] if of_text else None


def rows(text: str) -> list[tuple[Any, ...]]:
    """Return report, rank, quantity, value of each row."""
    found = decoded(record(text))
    assert found is not None
    return [(row["report"], row["rank"], row["quantity"], row.get("value")) for row in found["entries"]]


@pytest.mark.parametrize(
    "prefix", ["", "INFO:megatron.core.utils:", " 0: ", "[rank0]: ", "[default0]:INFO:megatron.core.utils:"]
)
def test_megatron_s_ends_are_read(prefix: str) -> None:
    """Time, temperature and clock at both ends, with their ranks; power and utilisation say little and are left."""
    assert rows(f"{prefix}{EXTREMES}\n") == [
        (1, 12, "seconds", pytest.approx(2.1015)),
        (1, 3, "seconds", pytest.approx(2.80425)),
        (1, 7, "temperature_celsius", 49.0),
        (1, 3, "temperature_celsius", 71.0),
        (1, 3, "clock_mhz", 1410.0),
        (1, 12, "clock_mhz", 1980.0),
    ]


def test_whole_numbers_and_a_throughput_without_a_rank_are_read() -> None:
    """Older versions print both."""
    line = "| MnRtt/Rnk: 98ms/1 | MxRtt/Rnk: 131ms/0 | MnTmp/Rnk: 52C/0 | MxTmp/Rnk: 60C/1 | MxEtpt/Rnk: 608.83TF"
    assert [row[1:3] for row in rows(f"{line}\n")][:2] == [(1, "seconds"), (0, "seconds")]


def test_the_listed_ranks_belong_to_the_report_above_them() -> None:
    """Each report has its ends and both lists; the sizes of the job are those that Megatron-LM prints first."""
    found = record(MegatronJob(listed=3, tp=2, pp=4).log(reports=4))
    assert found is not None
    entries = (decoded(found) or {})["entries"]

    assert (found.told_by, found.reports, found.listed, found.world_size) == ("megatron", 4, 3, 16)
    assert found.sizes == {"tp": 2, "pp": 4, "cp": 1}
    assert [sum(row["report"] == number for row in entries) for number in range(1, 5)] == [12] * 4
    assert sum(row["quantity"] == "tflops" for row in entries) == 24


@pytest.mark.parametrize("ids", [True, False])
def test_the_extension_s_warnings_and_scores_are_one_report(ids: bool) -> None:
    """A warning stands before the scores; reports in which no rank is slow count, too."""
    found = record(scores_log({9: 0.55}, since=2, reports=5, ids=ids))
    assert found is not None
    entries = (decoded(found) or {})["entries"]
    warned = [row for row in entries if row["quantity"] == "below_relative"]

    assert (found.told_by, found.reports, found.world_size, found.listed) == ("nvrx", 5, 32, 3)
    assert [(row["report"], row["rank"]) for row in warned] == [(3, 9), (4, 9), (5, 9)]
    assert ("node" in warned[0]) == ids
    assert {row["node"] for row in entries if row["quantity"] == "relative_score" and row["rank"] == 9} == {"node-1"}


def test_reports_that_print_a_warning_alone_are_counted_by_their_last_line() -> None:
    """Without scores a report in which no rank is slow has but the line that ends it."""
    found = record(scores_log({4: 0.5}, since=3, reports=7, scores=False))
    assert found is not None
    assert (found.reports, [row["report"] for row in (decoded(found) or {})["entries"]]) == (7, [4, 5, 6, 7])


def test_the_form_of_the_extension_s_examples_is_read() -> None:
    """Dictionaries of scores, and a line for each straggler; sections are times of hosts, and are left."""
    report = (
        "GPU relative perf scores: {0: 0.97, 1: 0.52, 2: 1.0}\nGPU individual perf scores: {0: 1.0, 1: 0.99, 2: 1.0}\n"
        "Sections relative perf scores: {'load': {0: 0.5, 1: 1.0, 2: 0.9}}\n"
        "DETECTED RELATIVE STRAGGLER GPU RANK=1 NODE=gpu-a\nDETECTED RELATIVE STRAGGLER SECTION=load RANK=0 NODE=gpu-a\n"
    )
    found = rows(2 * report)

    assert [row[:3] for row in found if row[1] == 1] == [
        (number, 1, name) for number in (1, 2) for name in ("relative_score", "individual_score", "below_relative")
    ]
    assert len(found) == 14


def test_a_score_that_is_no_number_is_left_out() -> None:
    """A rank without kernels of its own has none."""
    text = "GPU relative performance:\n  Rank=0 Node=a Score=nan\n  Rank=1 Node=<notset> Score=0.98\n"
    assert rows(text) == [(1, 1, "relative_score", 0.98)]


@pytest.mark.parametrize(
    "text",
    [
        "Rank=3 Node=gpu-a Score=0.41\n",  # no heading stands above it
        "eval done: Score=0.41 of model performance: good\n",
        "the detector prints MnRtt/Rnk and MxRtt/Rnk with each report\n",
        f"# Slow GPUs\n\nWhen you see a line such as this, test a rank:\n\n```\n{EXTREMES}\n```\n\nUsually it is the GPU.\n",
        f"STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. Affected ranks: {affected([], True)}\n",
    ],
)
def test_what_is_no_report_is_none(text: str) -> None:
    """Rows without a heading, talk of a detector, an explanation that quotes a line, and a warning that names no rank."""
    assert record(text) is None


def test_an_attempt_has_its_own_reports() -> None:
    """A job that was started again after a failure is judged by what it reports since."""
    first, second = MegatronJob(slow={3: 1.5}).log(reports=4), MegatronJob(seed=8).log(reports=3)
    ended = (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/w/t.py", line 3, in f\n[rank0]: KeyError: 1\n'
    )
    data = f"{first}{ended}*****************************************\n{second}".encode()
    found = list(text_evidence.read(Input("all.log", io.BytesIO(data), data)))
    reports = [each for each in found if isinstance(each, StragglerReports)]

    assert any(isinstance(each, LogEvent) for each in found)
    assert [(each.attempt, each.reports) for each in reports] == [(0, 4), (1, 3)]


def test_reports_rows_and_ranks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest reports are kept; of one report the first rows; a rank that no job has is none."""
    monkeypatch.setattr(stragglers, "MAX_ROWS", 5)
    scores = ", ".join(f"{rank}: 0.9" for rank in (9_999_999_999, *range(12)))
    found = rows(f"GPU relative perf scores: {{{scores}}}\n")
    assert [row[1] for row in found][-1] <= 5
    assert len(found) == 5

    monkeypatch.setattr(stragglers, "MAX_REPORTS", 40)
    many = record(f"{EXTREMES}\n" * 47)
    assert many is not None
    assert many.reports == 40


def test_the_instant_of_a_report_is_its_line_s() -> None:
    """In UTC, for the line names no zone; without a stamp it is not known."""
    stamped, bare = record(f"{EXTREMES}\n"), record(EXTREMES.partition("] ")[2] + "\n")
    instants = [(decoded(each) or {})["entries"][0].get("at", math.nan) for each in (stamped, bare)]
    assert instants[0] == 1795244765.0
    assert math.isnan(instants[1])
