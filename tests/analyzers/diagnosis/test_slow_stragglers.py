"""What the reports of a detector inside the job accuse: a rank that is slow in report after report, to be tested; else nobody."""

from __future__ import annotations

import io

import pytest

from analyzers.knowledge import Knowledge
from analyzers.model.topology import infer
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.formats import Input, text_evidence
from tests.support.gray_fleet import GrayFleet, on
from tests.support.straggler_logs import MegatronJob, scores_log

SLOW = {5: 1.3}


def verdict(text: str) -> Verdict:
    """Judge a log by itself."""
    data = text.encode()
    window = Window(tuple(text_evidence.read(Input("rank0.log", io.BytesIO(data), data[: 1 << 16]))))
    return judge(window, infer(window), Knowledge())


def named(found: Verdict) -> list[tuple[str, tuple[int, ...]]]:
    """Return the kind and the ranks of each culprit, none of which may be evicted for a report."""
    assert found.action.kind in {"none", "probe"}
    assert all(culprit.probability <= 0.81 for culprit in found.culprits)
    return [(culprit.kind, tuple(culprit.ranks)) for culprit in found.culprits]


@pytest.mark.parametrize(
    "job", [MegatronJob(slow=SLOW), MegatronJob(slow=SLOW, listed=4), MegatronJob(slow=SLOW, since=4)]
)
def test_a_rank_that_is_slow_in_every_report_is_tested(job: MegatronJob) -> None:
    """By Megatron-LM's two ends, by its lists, and since a moment before which it was as fast as others."""
    found = verdict(job.log())
    assert (found.symptom, found.cause, named(found)) == ("slow", "machine", [("rank", (5,))])
    assert found.action.kind == "probe"
    assert (found.onset is not None) == (job.since > 0)


@pytest.mark.parametrize("scores", [{9: 0.55}, {9: 0.8}, {9: 0.55, 17: 0.6}])
def test_the_extension_s_scores_name_ranks_and_their_nodes(scores: dict[int, float]) -> None:
    """Also a rank that is above the detector's own threshold, where it stands apart from those that come next."""
    found = verdict(scores_log(scores))
    assert sorted(rank for culprit in found.culprits for rank in culprit.ranks) == sorted(scores)
    assert {culprit.id for culprit in found.culprits} == {f"node-{rank // 8}" for rank in scores}
    assert found.action.kind == "probe"


def test_warnings_without_scores_name_the_rank() -> None:
    """A detector that prints no scores names whom its threshold names."""
    assert verdict(scores_log({9: 0.55}, scores=False)).culprits[0].ranks == (9,)


@pytest.mark.parametrize("reports", [1, 2])
def test_one_report_alone_names_nobody(reports: int) -> None:
    """It is shown as the first symptom, and more reports would decide."""
    for text in (MegatronJob(slow=SLOW).log(reports), scores_log({9: 0.5}, reports=reports)):
        found = verdict(text)
        assert (named(found), found.abstained, found.symptom) == ([], True, "slow")
        assert found.first_symptom is not None
        assert any("more reports" in one.what for one in found.missing)


@pytest.mark.parametrize(
    "text",
    [
        MegatronJob().log(),
        MegatronJob(ranks=512, spread=0.02).log(),  # the slowest of many is some percent behind the fastest
        MegatronJob(slow={3: 1.02}).log(),
        MegatronJob(slow={3: 1.02}, listed=4).log(),
        scores_log({}),
        scores_log({9: 0.9}, usual=(0.91, 0.99)),
        scores_log({9: 1.0}, usual=(0.66, 0.69), below=0.6),  # one rank is fast, and all others differ from it alike
    ],
)
def test_a_healthy_spread_names_nobody(text: str) -> None:
    """A fastest and a slowest rank there always are."""
    found = verdict(text)
    assert (named(found), found.symptom) == ([], "unknown")


def test_a_rank_that_is_no_longer_slow_is_not_named() -> None:
    """Seven reports named it, and the last four did not."""
    assert named(verdict(MegatronJob(slow=SLOW, until=7).log(11))) == []
    assert named(verdict(MegatronJob(slow=SLOW, since=2, until=4).log(11))) == []


def test_a_rank_that_most_reports_named_until_lately_is_not_each_time_another() -> None:
    """Eight of eleven named the same one."""
    (shown, *_) = verdict(MegatronJob(slow=SLOW, until=8, listed=4).log(11)).evidence
    assert shown.text.endswith("8 of 11 reports name a slow rank, rank 5 most often, but not in the newest")


@pytest.mark.parametrize(("before", "after"), [(SLOW, {}), ({}, SLOW)])
def test_reports_of_a_job_that_began_anew_are_its_own(before: dict[int, float], after: dict[int, float]) -> None:
    """A rank may be on another machine than before: it is neither slow for that one, nor was it as fast as others."""
    found = verdict(MegatronJob(slow=before).log(8) + MegatronJob(ranks=8, slow=after, seed=9).log(3))
    assert named(found) == [("rank", (5,))] * len(after)
    assert "before, it was" not in " ".join(one.why for one in found.culprits)


def test_a_rank_that_is_slow_now_and_then_is_not_named() -> None:
    """Each report names another: the data, or a neighbour."""
    lines = [MegatronJob(slow={number % 7: 1.3}, seed=number, head=False).log(1) for number in range(9)]
    found = verdict("".join(lines))
    assert (named(found), found.symptom) == ([], "slow")


def test_a_stage_with_more_work_is_no_slow_machine() -> None:
    """Ranks of a later stage are at the slow end of every report, whichever of them it is."""
    for listed in (0, 2, 4, 6):
        job = MegatronJob(ranks=16, pp=4, stage_times=(1.0, 1.0, 1.0, 1.35), listed=listed)
        assert named(verdict(job.log())) == [], listed
        alone = MegatronJob(ranks=4, pp=4, stage_times=(1.0, 1.0, 1.0, 1.35), listed=min(listed, 3))
        assert named(verdict(alone.log())) == [], listed


def test_a_rank_slower_than_its_own_stage_is_tested() -> None:
    """Lists that hold peers of its stage show it, and so does its own past."""
    job = MegatronJob(ranks=16, pp=2, slow={12: 1.4}, stage_times=(1.0, 1.1), listed=5)
    assert named(verdict(job.log())) == [("rank", (12,))]
    since = MegatronJob(ranks=16, pp=4, slow={12: 1.4}, since=4)
    assert named(verdict(since.log())) == [("rank", (12,))]


LAST = (1.0, 1.0, 1.0, 1.3)


@pytest.mark.parametrize(("printed", "tp"), [(True, 1), (False, 1), (True, 2)])
def test_stages_inside_replicas_are_compared_as_they_are_numbered(printed: bool, tp: int) -> None:
    """By `--use-tp-pp-dp-mapping`; where the log does not print it, the last stage of each replica is no slow rank either."""
    ranks, last = 16 * tp, 16 * tp - 1
    log = MegatronJob(
        ranks=ranks, tp=tp, pp=4, stage_times=LAST, stages_inside=True, slow={last: 1.006}, listed=ranks
    ).log()
    assert named(verdict(log if printed else log.replace("use_tp_pp_dp_mapping", "another"))) == []


@pytest.mark.parametrize("stages_inside", [True, False, None])
def test_a_slow_rank_is_tested_however_stages_are_numbered(stages_inside: bool | None) -> None:
    """It takes longer than those of its stage."""
    job = MegatronJob(ranks=16, pp=4, stage_times=LAST, stages_inside=stages_inside, slow={7: 1.5}, listed=16)
    assert named(verdict(job.log())) == [("rank", (7,))]


def test_a_report_that_lists_none_of_its_stage_speaks_against_no_rank() -> None:
    """The lists hold other ranks each time; most of those that compare it name it."""
    assert named(verdict(MegatronJob(ranks=16, pp=4, slow={0: 1.4}, listed=4).log())) == [("rank", (0,))]
    for listed in (2, 4, 6):
        log = MegatronJob(ranks=16, pp=4, stage_times=LAST, stages_inside=True, listed=listed).log()
        assert named(verdict(log.replace("use_tp_pp_dp_mapping", "another"))) == [], listed


@pytest.mark.parametrize("rank", [0, 3])
def test_without_the_job_s_sizes_the_first_and_the_last_rank_may_be_longer_stages(rank: int) -> None:
    """A stage a rank: the embedding, or the loss."""
    assert named(verdict(MegatronJob(ranks=4, slow={rank: 1.3}, listed=4, head=False).log())) == []


def test_without_the_job_s_sizes_a_rank_is_less_sure() -> None:
    """It may be of a stage with more work: it is tested, and the verdict says what would show it."""
    found = verdict(MegatronJob(slow=SLOW, head=False).log())
    assert named(found) == [("rank", (5,))]
    assert found.culprits[0].probability <= 0.61
    assert any("stages" in one.what for one in found.missing)


def test_ranks_that_wait_for_one_another_are_named_together() -> None:
    """A tensor-parallel group has one time; the lowest clock, or the hottest GPU, shows which of it is slow."""
    whole = verdict(MegatronJob(tp=4, slow=SLOW).log())
    assert named(whole) == [("group", (4, 5, 6, 7))]
    for job in (MegatronJob(tp=4, slow=SLOW, clocks={5: 1_290.0}), MegatronJob(tp=4, slow=SLOW, celsius={5: 88.0})):
        found = verdict(job.log())
        assert named(found) == [("rank", (5,))]
        assert any("rank 5" in one.text and ("clock" in one.text or "hottest" in one.text) for one in found.evidence)


def test_a_low_clock_of_another_rank_supports_nothing() -> None:
    """The rank with the lowest clock is not the one that is slow."""
    found = verdict(MegatronJob(slow=SLOW, clocks={11: 1_290.0}).log())
    assert named(found) == [("rank", (5,))]
    assert not any("clock" in one.text for one in found.evidence)


@pytest.mark.parametrize(
    "text",
    [
        scores_log(dict.fromkeys(range(8), 0.6)),  # more than the report lists
        scores_log(dict.fromkeys(range(2), 0.6), ranks=4),
        scores_log(dict.fromkeys(range(12), 0.6), scores=False),
        MegatronJob(ranks=2, slow={1: 1.4}).log(),  # two ranks, and no past
    ],
)
def test_many_at_once_or_one_of_two_names_nobody(text: str) -> None:
    """What they share, or which of the two is unusual, is not shown."""
    found = verdict(text)
    assert (named(found), found.abstained) == ([], True)


def test_steps_that_became_longer_agree_with_whom_the_reports_name() -> None:
    """The steps show since when; who is decided by the reports."""
    found = verdict(MegatronJob(slow=SLOW, since=25).log(59))
    assert named(found) == [("rank", (5,))]
    assert not any("who is not decided" in one.what for one in found.missing)


@pytest.mark.parametrize(("node", "agrees"), [(1, True), (2, False)])
def test_hardware_that_is_not_well_agrees_on_the_same_node_alone(node: int, agrees: bool) -> None:
    """A GPU with half of its PCIe lanes, where the reported rank runs or elsewhere: there it confirms nothing."""
    data = scores_log({9: 0.55}).encode()
    fleet = GrayFleet(nodes=4, gpus=8, names=tuple(f"node-{one}" for one in range(4)), change=on(node, 1, width=8))
    window = Window.build([*text_evidence.read(Input("rank0.log", io.BytesIO(data), data)), *fleet.records()])
    found = judge(window, infer(window), Knowledge())

    assert [one.id for one in found.culprits] == ["node-1"]
    assert (found.roots[0].families == ("timings", "hardware")) == agrees
    assert agrees or found.action.kind == "probe"
