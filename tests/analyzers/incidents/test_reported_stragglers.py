"""Reports of stragglers in rank 0's log, live: shown with the job, and what a slow job's verdict makes of them."""

from __future__ import annotations

import io
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from analyzers.incidents.job_views import JobView
from analyzers.incidents.messages import Publish, Received
from analyzers.incidents.replay import ReplayCase, rejudge_cuts, rerun_engine
from analyzers.model.slow_look import StragglerLook
from analyzers.model.verdict import Verdict, to_json
from collectors.formats import Input
from collectors.formats.job_log.job_log import scan
from collectors.records import ProcessState, Record, StragglerReports
from service.packaged_knowledge import load
from tests.support.straggler_logs import MegatronJob
from tests.support.watched_jobs import START, WatchedJob

BEGAN, EVERY = 1_200.0, 60.0
Batches = list[Received]


def parts(log: str) -> list[StragglerReports]:
    """Return a log as an agent reads it: its head, then a report at a time."""
    found, lines = [], log.splitlines(keepends=True)
    begins = [index for index, line in enumerate(lines) if " iteration " in line]
    for begin, end in zip([0, *begins], [*begins, len(lines)], strict=True):
        data = "".join(lines[begin:end]).encode()
        found += scan(Input("rank0.log", io.BytesIO(data), data)).stragglers.records("rank0.log", 64)
    return found


def told(
    log: str,
    times: float = 1.3,
    told_by: str = "n0",
    rank: int = 0,
    more: Callable[[float, int], Iterator[Record]] | None = None,
) -> Batches:
    """Return the batches of a job of eight ranks on two nodes whose steps become longer; a report comes each minute."""
    job = WatchedJob(law=lambda step, noise: noise.uniform(0.98, 1.02) * (times if step > BEGAN else 1.0))
    waiting = list(enumerate(parts(log)))
    found = []
    for batch in job.batches(0.0, BEGAN + 600.0):
        at, records = batch.received_at - START, list(batch.records)
        while waiting and waiting[0][0] * EVERY < at and batch.node == told_by:
            records.append(_of(waiting.pop(0)[1], batch, rank))
        records += list(more(at, int(batch.node[1:]))) if more is not None else ()
        found.append(
            msgspec.structs.replace(
                batch, records=tuple(msgspec.structs.replace(one, node=batch.node) for one in records)
            )
        )
    return found


def _of(reports: StragglerReports, batch: Received, rank: int) -> StragglerReports:
    at = array("d", [batch.received_at - 1.0] * reports.count).tobytes()
    columns = {**reports.columns, "at": at}
    return msgspec.structs.replace(
        reports, job="run", attempt=0, rank=rank, at=batch.received_at - 1.0, columns=columns
    )


def log_of(slow: int, **more: Any) -> str:
    """Return the log of a job of one stage, in which a rank is slow since some minutes before the steps are longer."""
    return MegatronJob(ranks=8, slow={slow: 1.3}, listed=2, **{"since": 20, **more}).log(30)


def look(batches: Batches) -> StragglerLook | None:
    """Return what the job's view makes of the reports."""
    view = JobView("run", 0)
    for batch in batches:
        view.take(batch, batch.records)
    return view.stragglers.look(view.ranks)


def last(batches: Batches) -> Verdict:
    """Return the newest verdict of the engine; a judgement of the stored cut comes to the same."""
    done = [one for _, one in rerun_engine(batches, load())]
    published = [one for one in done if isinstance(one, Publish)]
    return published[-1].verdict


def throttled(rank: int) -> Callable[[float, int], Iterator[Record]]:
    """Return readings by the named rank's own node: since the slowdown something stops its process in a third of them."""

    def read(at: float, node: int) -> Iterator[Record]:
        for one in range(4 * node, 4 * node + 4):
            state = "T" if one == rank and at >= BEGAN and int(at) // 10 % 3 == 0 else "R"
            yield ProcessState(
                job="run", attempt=0, rank=one, pid=100 + one, state=state, at=START + at - 0.5, started_at=START - 60.0
            )

    return read


def test_a_rank_that_rank_0_s_log_names_is_shown_with_the_job() -> None:
    """Whom the reports name is shown by the rule for files, with its node by placement, also where the steps are as before."""
    found = look(told(log_of(6, since=0), times=1.0))

    assert found is not None
    assert (found.fault_class, [(one.ranks, one.node, one.own) for one in found.named]) == (
        "slow_reported",
        [((6,), "n1", False)],
    )
    assert "Megatron-LM's detector names rank 6 as slow in 29 of its last 29 reports, 1.3" in found.named[0].why


@pytest.mark.parametrize(
    ("log", "told_by", "rank"),
    [(MegatronJob(ranks=8, slow={6: 1.3}, listed=2, since=28).log(30), "n0", 0), (log_of(6, until=25), "n0", 0),
     (MegatronJob(ranks=8, listed=2).log(30), "n0", 0), (log_of(6), "n1", 4)],
    ids=["two reports", "it has recovered", "healthy", "another node's word"],
)  # fmt: skip
def test_too_few_reports_and_words_of_other_nodes_name_nobody(log: str, told_by: str, rank: int) -> None:
    """Fewer than three reports are hearsay, and what rank 0 prints only the agent of its node reads."""
    found = look(told(log, told_by=told_by, rank=rank))

    assert found is None or found.named == ()


def test_rank_0_s_log_alone_has_no_other_node_tested() -> None:
    """The verdict shows whom it names and what would decide: one node's word, and its own agent reads nothing of it."""
    verdict = last(told(log_of(6)))

    assert (verdict.symptom, verdict.cause, verdict.abstained, verdict.culprits) == ("slow", "unknown", True, ())
    assert verdict.action.kind == "none"
    assert any("names rank 6 as slow" in one.text for one in verdict.evidence)
    assert any("a test of n1" in one.what for one in verdict.missing)


def test_a_rank_beside_rank_0_is_named_and_tested() -> None:
    """The node accuses itself: its rank is named, to be tested, and nothing else is done to it."""
    verdict = last(told(log_of(2)))

    assert [(one.kind, one.id, one.ranks) for one in verdict.culprits] == [("node", "n0", (2,))]
    assert (verdict.roots[0].fault_class, verdict.cause, verdict.action.kind) == ("slow_reported", "machine", "probe")


def test_a_rank_whose_own_node_shows_it_is_named() -> None:
    """Its process was found stopped by its own node's agent, and the reports are shown beside that."""
    verdict = last(told(log_of(6, since=16), more=throttled(6)))

    assert [(one.kind, one.id) for one in verdict.culprits] == [("rank", "6")]
    assert verdict.roots[0].fault_class == "slow_rank"
    assert any("Megatron-LM's detector names rank 6" in one.text for one in verdict.evidence)


def test_reports_that_contradict_a_node_s_own_readings_name_nobody() -> None:
    """The log names one rank, and a reading of another node's agent shows another: none is named."""
    verdict = last(told(log_of(6, since=16), more=throttled(2)))

    assert (verdict.abstained, verdict.culprits, verdict.action.kind) == (True, (), "none")


def test_the_stored_cut_comes_to_the_same_verdict() -> None:
    """What the reports came to is stored with the cut, so that a later judgement of it needs no log."""
    batches = told(log_of(2))
    done = [one for _, one in rerun_engine(batches, load()) if isinstance(one, Publish)]
    case = ReplayCase(incident=done[0].incident, job="run", attempt=0, nodes=("n0", "n1"))

    again = list(rejudge_cuts(case, [one.cut for one in done], batches, load()))

    assert [to_json(one.verdict) for one in again] == [to_json(one.verdict) for one in done]
    assert again[-1].verdict.roots[0].fault_class == "slow_reported"
