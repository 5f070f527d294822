"""Whom numbers that went wrong point at: the first rank where it is visible, the code where all break at once, else nobody."""

from __future__ import annotations

from math import inf, nan

import pytest
from msgspec.structs import replace

from collectors.records import STEP_COLUMNS, Frame, KernelEvent, LogEvent, Placement, Record, StackDump, Steps, Thread
from collectors.records import Members as Ranks
from simulation.scenarios import KINDS, draw, play
from tests.analyzers.diagnosis.test_numeric import AT, found, steps
from tests.support.live_hangs import REDUCE, TRAIN, Hang, named, verdict
from tests.support.live_records import columns
from tests.support.sentences import numbers_in

SOUND = [2.0 + 0.01 * (step % 7) for step in range(40)]


def job(broken: dict[int, int], ranks: int = 4, length: int = 46) -> list[Record]:
    """Ranks with losses of their own until a step, from which on each prints NaN; ``broken``: earlier by rank."""
    return [
        steps([2.0 + rank / 10 if step < broken.get(rank, 43) else nan for step in range(length)], rank)
        for rank in range(ranks)
    ]


def norms(loss: list[float], norm: list[float], rank: int | None = None, skipped: range = range(0)) -> Steps:
    """Steps with a loss and a gradient norm."""
    count = len(loss)
    values = {
        "step": list(range(1, count + 1)), "at": [AT + step for step in range(count)], "loss": loss, "gradient_norm": norm,
        "nan": [int(one != one) + 2 * int(other != other) for one, other in zip(loss, norm, strict=True)],  # noqa: PLR0124
        "skipped": [int(step in skipped) for step in range(count)],
    }  # fmt: skip
    return Steps(source="t.log", at=AT, rank=rank, count=count, columns=columns(STEP_COLUMNS, **values))


@pytest.mark.parametrize("rank", range(4))
def test_the_rank_that_breaks_first_is_named_and_tested(rank: int) -> None:
    """A step before the others; no eviction, with or without its node's name."""
    placement = Placement(ranks=Ranks.of(range(4)), nodes=tuple(f"gpu-{one}" for one in range(4)), world_size=4)
    for records in (job({rank: 42}), [placement, *job({rank: 42})]):
        for rounds in (None, 1, 4):
            judged = verdict(records, rounds)
            assert (judged.symptom, named(judged), judged.action.kind) == ("numeric", [rank], "probe")
            assert judged.cause == "unknown"


def test_two_of_eight_that_break_first_are_a_set() -> None:
    """One of them or both: neither is more likely."""
    judged = verdict(job({2: 42, 6: 42}, 8), None)
    assert (named(judged), judged.culprits[0].kind, judged.action.kind) == ([2, 6], "group", "probe")


def test_a_stage_without_a_loss_is_no_rank_that_is_sound() -> None:
    """TorchTitan prints -1 on stages that have no loss: the last stage's alone becomes NaN, wherever that began."""
    of_stages = [norms([-1.0] * 60, [1.1] * 40 + [nan] * 20, rank) for rank in range(3)]
    (lost,) = found(*of_stages, norms([2.0] * 40 + [nan] * 20, [1.1] * 40 + [nan] * 20, 3))
    assert (lost.fault_class, lost.suspects, numbers_in(lost.evidence[0].text)) == ("not_a_number", (), [41])
    others = [norms([-1.0] * 60, [1.1] * 60, rank) for rank in range(3)]
    (spiked,) = found(*others, norms([2.0] * 55 + [15.0] * 5, [1.1] * 60, 3))
    assert (spiked.fault_class, spiked.suspects, "alone" in spiked.evidence[0].text) == ("spike", (), False)


def test_all_that_break_at_once_are_the_code_or_the_data() -> None:
    """No machine is tested for it, and nothing is rolled back without a sign of a change."""
    judged = verdict(job({}), None)
    assert (judged.symptom, judged.cause, judged.culprits[0].kind) == ("numeric", "code", "code")
    assert (judged.action.kind, named(judged)) == ("none", [])


@pytest.mark.parametrize(
    "records",
    [
        [steps([*SOUND, nan, nan], 0)],
        job({0: 42, 1: 42, 3: 42}),
        [steps([2.0] * 42 + [nan] * 4, 3), *(steps([0.0] * 46, rank) for rank in range(3))],
        [steps([2.0] * 42 + [nan] * 4, 3), *(steps([2.0] * 41, rank) for rank in range(3))],
    ],
    ids=["one reporter", "more than half", "stages without a loss", "the others' logs end before"],
)
def test_where_the_first_is_not_visible_nobody_is_named(records: list[Record]) -> None:
    """A reduction, a stage that has no loss, and a log that is cut show no origin."""
    judged = verdict(records, None)
    assert (judged.symptom, judged.culprits, judged.action.kind) == ("numeric", (), "none")


def test_a_value_of_the_whole_job_is_the_code_s_or_the_data_s_first() -> None:
    """It shows no rank; no machine is named or tested for it, and the action is none."""
    judged = verdict([steps([*SOUND, nan, nan])], None)
    assert (judged.symptom, judged.cause, judged.action.kind) == ("numeric", "code", "none")
    assert [(culprit.kind, culprit.ranks) for culprit in judged.culprits] == [("code", ())]


def test_a_local_gradient_norm_names_its_rank() -> None:
    """The losses are sound for a step longer, and the norm of rank 1 alone is not."""
    records: list[Record] = [
        norms([2.0] * 41 + [nan], [1.0] * 40 + [inf if rank == 1 else 1.0, nan], rank) for rank in range(3)
    ]
    judged = verdict(records, None)
    assert (named(judged), judged.action.kind) == ([1], "probe")
    assert "gradient norm" in judged.culprits[0].why


def test_a_loss_of_its_own_counts_before_a_norm_that_all_share() -> None:
    """Rank 2's loss is NaN a step before the others', and the norm of the reduced gradients is NaN on all at that step."""
    records: list[Record] = [
        norms([2.0 + rank] * 40 + [nan if rank == 2 else 2.0, nan], [1.0] * 40 + [nan, nan], rank) for rank in range(4)
    ]
    judged = verdict(records, None)
    assert (named(judged), judged.cause, judged.action.kind) == ([2], "unknown", "probe")


def nan_line(rank: int, step: int) -> LogEvent:
    """A rank's first line with a loss that is none, as its log's reader gives it."""
    return LogEvent(
        source=f"rank{rank}.log:{step}", at=AT + step, rank=rank, event="nan", step=step, text=f"step {step} loss nan"
    )


def test_the_first_lines_name_the_rank_where_its_steps_are_forgotten() -> None:
    """A live window holds the newest steps of each rank, all NaN, and the line with which each began."""
    tails: list[Record] = [late(rank) for rank in range(4)]
    lines: list[Record] = [nan_line(rank, 285 if rank == 1 else 286) for rank in range(4)]
    judged = verdict([*tails, *lines], 2)
    assert (named(judged), judged.action.kind) == ([1], "probe")
    assert judged.first_symptom is not None
    assert numbers_in(judged.first_symptom.text)[:2] == [285, 1]
    at_once = verdict([*tails, *(nan_line(rank, 286) for rank in range(4))], 2)
    assert (named(at_once), at_once.cause) == ([], "code")


def test_a_norm_on_all_ranks_alone_shows_no_origin() -> None:
    """The step in which one rank's loss was none is forgotten; the norm of that step is of all ranks' gradients."""
    records: list[Record] = [norms([2.0] * 45, [1.0] * 43 + [nan, nan], rank) for rank in range(4)]
    judged = verdict(records, None)
    assert (judged.symptom, judged.culprits, judged.cause) == ("numeric", (), "unknown")


def test_a_line_of_a_loss_that_came_back_is_history() -> None:
    """Rank 3 had none at step 5 and has printed numbers since; rank 9 has no steps at all."""
    judged = verdict([*job({1: 42}), nan_line(3, 5), nan_line(9, 2)], 2)
    assert named(judged) == [1]


def late(rank: int) -> Steps:
    """The newest steps of a rank, all NaN."""
    return Steps(
        source=f"rank{rank}.log", at=AT, rank=rank, count=30,
        columns=columns(
            STEP_COLUMNS, step=list(range(300, 330)), at=[AT + 300 + step for step in range(30)], loss=[nan] * 30,
            gradient_norm=[nan] * 30, nan=[3] * 30,
        ),
    )  # fmt: skip


@pytest.mark.parametrize("lasting", [30, 90, 200])
def test_a_spike_that_lasts_is_no_new_usual_value(lasting: int) -> None:
    """What is many times the usual value does not become it."""
    (finding,) = found(steps([*SOUND, *([24.0] * lasting)]))
    assert finding.fault_class == "spike"


def test_a_norm_that_is_nan_beside_a_loss_of_exactly_0_lasts() -> None:
    """From the third of six reports on; a norm that overflows in a warm-up has a loss."""
    filtered = found(norms([1.5, 1.4, 0.0, 0.0, 0.0], [1.0, 1.0, nan, nan, nan]))
    assert [numbers_in(one.evidence[0].text) for one in filtered] == [[3, 0]]
    assert found(norms([9.1, 9.0, 8.9, 8.8], [nan, nan, inf, 4.0])) == []
    assert found(norms([9.1, 9.0, 8.9], [nan, nan, inf])) == []


def test_a_hang_leads_and_the_numbers_stand_beside_it() -> None:
    """The job had NaN on all ranks and then rank 2 stuck: the rank is evicted for the hang as ever."""
    hang = Hang().records()
    judged = verdict([*hang, *job({})])
    assert (judged.symptom, named(judged), judged.action.nodes) == ("hang", [2], ("gpu-2",))
    assert any("NaN" in one.text for one in judged.evidence)


def test_an_event_of_its_device_agrees_with_the_first_rank() -> None:
    """An uncorrectable memory error on its node is proof of its own; the NaN of another rank is none."""
    placement = Placement(ranks=Ranks.of(range(4)), nodes=tuple(f"gpu-{one}" for one in range(4)), world_size=4)
    event = KernelEvent(
        source="kern.log:4", at=AT + 41, node="gpu-1", event="xid", code=48, pci="0000:1b:00", text="Xid 48 DBE"
    )
    with_event = verdict([placement, event, *job({1: 42})], None)
    without = verdict([placement, *job({1: 42})], None)
    assert {one.id for one in with_event.culprits} == {"gpu-1"}
    assert with_event.culprits[0].probability > without.culprits[0].probability


@pytest.mark.parametrize(
    "newest", [[23.0, 24.0, 2.0, 2.1], [nan, 2.0, 2.0], [23.0]], ids=["spike", "NaN", "the newest step"]
)
def test_what_opened_a_live_incident_and_passed_is_not_healthy(newest: list[float]) -> None:
    """The incident is judged some time after it opened; two minutes later, and in files, it is history."""
    live = verdict([steps([*SOUND, *newest])], 2)
    assert (live.symptom, live.culprits, live.action.kind) == ("numeric", (), "none")
    assert verdict([steps([*SOUND, *newest, *([2.0] * 130)])], 2).symptom == "unknown"


@pytest.mark.parametrize("skipped", [range(6), range(38, 41), range(43, 45)], ids=["warm-up", "later", "at the end"])
def test_steps_that_the_optimizer_skips_are_sound(skipped: range) -> None:
    """An fp16 overflow: the norm is infinite and the step is skipped, and the loss goes on; unskipped it is no warm-up."""
    losses = [9.0 - step / 10 for step in range(45)]
    infinite = [inf if step in skipped else 1.0 for step in range(45)]
    assert found(norms(losses, infinite, 0, skipped)) == []
    assert verdict([norms(losses, infinite, 0, skipped)], 2).symptom != "numeric"
    assert bool(found(norms(losses, infinite, 0))) == (skipped.stop == len(losses))


def test_a_job_that_runs_on_nan_is_no_hang_where_all_load_data() -> None:
    """Dumps show that it moves, one round of stacks met all ranks in their data loaders: the numbers are what is wrong."""
    dumps = play(draw(KINDS.index("healthy_twice"), 64, 8)).records()
    ranks = sorted({record.rank for record in dumps if record.rank is not None})
    frames = (Frame("read_shard", "/srv/data.py"), Frame("__next__", "/srv/data_loader.py"), *TRAIN)
    stacks = [
        StackDump(
            source=f"s{rank}.txt", rank=rank, pid=rank + 1, tool="py-spy", threads=(Thread(frames=frames, main=True),)
        )
        for rank in ranks
    ]
    losses = steps([*SOUND, nan, nan])
    assert verdict([*dumps, *stacks]).symptom != "numeric"
    judged = verdict([*dumps, *stacks, losses])
    assert (judged.symptom, named(judged), judged.cause, judged.action.kind) == ("numeric", [], "code", "none")
    one_round = verdict([*stacks, losses])
    assert (one_round.symptom, named(one_round)) == ("numeric", [])
    others = [replace(one, threads=(Thread(frames=REDUCE, main=True),)) for one in stacks[1:]]
    assert verdict([stacks[0], *others, losses]).symptom == "numeric"
    assert verdict([stacks[0], *others]).symptom == "hang"
