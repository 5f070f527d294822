"""Reports of stragglers in a running job's log: each is sent once and whole, however the log grows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collectors.live.sources.unfinished import unfinished
from collectors.live.steps import JobLogs
from collectors.records import STRAGGLER_COLUMNS, Steps, StragglerReports
from tests.support.straggler_logs import MegatronJob, scores_log
from tests.support.tailed_jobs import Node, column, of


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Return a node whose rank 0 writes a log."""
    node = Node(tmp_path)
    log = tmp_path / "files" / "rank0.log"
    log.touch()
    node.rank(0, output=log)
    return node


def grow(node: Node, text: str, quiet: bool = False) -> list[StragglerReports]:
    """Add text to the log, and return the reports that the collector sends. ``quiet``: nothing was written for a while."""
    log = node.folder / "files" / "rank0.log"
    with log.open("a") as file:
        file.write(text)
    if quiet:
        node.clock.at += 60.0
    os.utime(log, (node.clock.at - (10.0 if quiet else 0.0),) * 2)
    return of(node.run(node.collector, "steps"), StragglerReports)  # type: ignore[attr-defined]


@pytest.mark.parametrize("cut", [-60, 0, 110])
@pytest.mark.parametrize(
    "log", [MegatronJob(listed=3, tp=2, slow={5: 1.3}), scores_log({9: 0.55})], ids=["megatron", "extension"]
)
def test_reports_are_sent_as_they_come(node: Node, log: MegatronJob | str, cut: int) -> None:
    """Wherever a run cuts a report that is being printed, all parts together hold each report once, whole, as the file has it."""
    text, reports = (log, 6) if isinstance(log, str) else (log.log(6), 6)
    size = len(text) // reports + cut
    node.collector = JobLogs(node.host)  # type: ignore[attr-defined]
    found: list[StragglerReports] = []
    for begin in range(0, len(text), size):
        found += grow(node, text[begin : begin + size])
    found += grow(node, "", quiet=True)
    whole = grow(node, text, quiet=True)

    assert len(found) > 2
    found = [one for one in found if one.reports]
    assert sum(one.reports for one in found) == whole[0].reports
    assert sum(one.count for one in found) == whole[0].count
    assert {(one.job, one.attempt, one.rank, one.node, one.told_by) for one in found} == {
        ("llama-8b", 2, 0, None, whole[0].told_by)
    }
    for name in ("rank", "value"):
        assert [value for one in found for value in column(one, name, STRAGGLER_COLUMNS)] == pytest.approx(
            column(whole[0], name, STRAGGLER_COLUMNS), nan_ok=True
        )


def test_the_sizes_of_the_job_are_sent(node: Node) -> None:
    """They stand at the log's start, long before the first report."""
    node.collector = JobLogs(node.host)  # type: ignore[attr-defined]
    (found,) = grow(node, MegatronJob(tp=2, pp=4).log(0), quiet=True)

    assert (found.reports, found.count, found.world_size, found.sizes) == (0, 0, 16, {"tp": 2, "pp": 4, "cp": 1})


def test_no_step_waits_for_a_report(node: Node) -> None:
    """Lines behind a report end it: their steps are sent at once, and so is the report."""
    node.collector = JobLogs(node.host)  # type: ignore[attr-defined]
    report = MegatronJob(listed=2, head=False).log(1)
    log = node.folder / "files" / "rank0.log"
    log.write_text(report + "iteration 11/ 500 | elapsed time per iteration (ms): 500.0 |\n")
    os.utime(log, (node.clock.at,) * 2)

    sent = node.run(node.collector, "steps")  # type: ignore[attr-defined]

    assert [one.reports for one in of(sent, StragglerReports)] == [1]
    assert of(sent, Steps)[-1].step == 11


def test_a_report_waits_once() -> None:
    """What begins with the first line has waited: the lines are not held again, and no report comes in parts."""
    report = MegatronJob(listed=2, head=False).log(1).partition("\n")[2].encode()

    assert unfinished(b"step\n" + report, held_before=False) == 5
    assert unfinished(report, held_before=True) is None
