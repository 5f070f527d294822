"""Conviction and acquittal: what follows an eviction moves the odds as Bayes says, fades, and is remembered."""

from __future__ import annotations

import math
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from analyzers.knowledge import parse
from analyzers.knowledge.convictions import weights
from analyzers.knowledge.typed import KnowledgeRowError
from analyzers.remediation.node_history import (
    DAY_SECONDS,
    HOUR_SECONDS,
    NodeEvent,
    NodeEventKind,
    NodeRecord,
    Trial,
    fault_probability,
    is_offender,
    likelihoods,
    log_odds_shift,
    record_trial,
    update_record,
)
from service.packaged_knowledge import KnowledgeError, _packaged, load

WEIGHTS = weights(load())
NOW = 1_000_000_000.0
KINDS: tuple[NodeEventKind, ...] = (
    "named", "recurred", "quiet", "cured", "not_cured", "probe_passed", "probe_failed", "burn_in_passed",
    "burn_in_failed", "evicted", "returned",
)  # fmt: skip
HAPPENINGS = st.builds(
    NodeEvent,
    kind=st.sampled_from(KINDS),
    probability=st.floats(0.0, 1.0),
    cures=st.none() | st.floats(0.0, 1.0),
    others=st.floats(0.0, 1.0),
)
REPORTED = st.lists(st.tuples(HAPPENINGS, st.floats(NOW - 60 * DAY_SECONDS, NOW)), max_size=12)
# Less said is more certain: of each pair the first speaks against the machine, the second for it.
OPPOSITES: tuple[tuple[NodeEventKind, NodeEventKind], ...] = (
    ("cured", "not_cured"),
    ("recurred", "quiet"),
    ("probe_failed", "probe_passed"),
    ("burn_in_failed", "burn_in_passed"),
)


def record_of(*happened: tuple[NodeEvent, float]) -> NodeRecord:
    """Tell one node's story."""
    record = NodeRecord(node="gpu-7")
    for one, at in happened:
        record = update_record(record, one, at, WEIGHTS)
    return record


def reported(*kinds: NodeEventKind, at: float = NOW, each_seconds: float = 0.0) -> NodeRecord:
    """Tell of kinds alone, one after the other, the last of them at ``at``."""
    count = len(kinds)
    return record_of(
        *((NodeEvent(kind=kind), at - each_seconds * (count - 1 - number)) for number, kind in enumerate(kinds))
    )


def by_hand(story: list[tuple[NodeEvent, float]]) -> float:
    """The oracle: multiply the likelihoods of either hypothesis out; verdicts are one family and count once."""
    faulty, healthy = WEIGHTS.prior.faulty, 1.0 - WEIGHTS.prior.faulty
    strongest = 0.0
    for happened, at in story:
        if_faulty, if_healthy = likelihoods(happened, WEIGHTS)
        share = 0.5 ** ((NOW - at) / DAY_SECONDS / WEIGHTS.memory.half_life_days)
        if happened.kind == "named":
            strongest = max(strongest, share * math.log(if_faulty / if_healthy))
        else:
            faulty, healthy = faulty * if_faulty**share, healthy * if_healthy**share
    faulty *= math.exp(strongest)
    return faulty / (faulty + healthy)


@given(REPORTED)
def test_odds_are_those_of_naive_bayes(story: list[tuple[NodeEvent, float]]) -> None:
    """The probability is the product of the likelihoods of what was reported, each faded by its age, over the prior."""
    assert fault_probability(record_of(*story), NOW, WEIGHTS) == pytest.approx(by_hand(story), rel=1e-6, abs=1e-12)


@given(REPORTED, st.integers(0, 99))
def test_the_order_of_evidence_does_not_matter(story: list[tuple[NodeEvent, float]], seed: int) -> None:
    """Whatever is reported late counts as if it had been reported in time."""
    shuffled = random.Random(seed).sample(story, len(story))

    assert fault_probability(record_of(*shuffled), NOW, WEIGHTS) == pytest.approx(
        fault_probability(record_of(*story), NOW, WEIGHTS), rel=1e-9, abs=1e-12
    )


@given(REPORTED, st.sampled_from(OPPOSITES), st.none() | st.floats(0.0, 1.0), st.floats(0.0, 0.99))
def test_evidence_points_one_way(
    story: list[tuple[NodeEvent, float]], pair: tuple[NodeEventKind, NodeEventKind], cures: float | None, others: float
) -> None:
    """What speaks against a machine never lowers the odds against it, and what speaks for it never raises them."""
    before = fault_probability(record_of(*story), NOW, WEIGHTS)
    against, for_it = (
        fault_probability(record_of(*story, (NodeEvent(kind=kind, cures=cures, others=others), NOW)), NOW, WEIGHTS)
        for kind in pair
    )

    assert for_it <= before + 1e-12
    assert against >= before - 1e-12


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_surer_verdict_never_says_less(one: float, other: float) -> None:
    """Of two verdicts the surer one leaves the machine at least as suspect, and no verdict more than is believed of one."""
    low, high = (
        fault_probability(record_of((NodeEvent(kind="named", probability=named), NOW)), NOW, WEIGHTS)
        for named in sorted((one, other))
    )

    assert WEIGHTS.prior.faulty <= low + 1e-12
    assert low <= high + 1e-12
    assert high <= WEIGHTS.prior.most_named + 1e-12


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_an_easier_cure_convicts_less(one: float, other: float) -> None:
    """The more such faults a plain restart cures, the less a cure after an eviction says against the evicted machine."""
    seldom, often = (
        fault_probability(record_of((NodeEvent(kind="cured", cures=cures), NOW)), NOW, WEIGHTS)
        for cures in sorted((one, other))
    )

    assert often <= seldom + 1e-12
    assert often >= WEIGHTS.prior.faulty - 1e-12


def test_a_cure_weighs_as_the_rate_of_plain_restarts_says() -> None:
    """After an even verdict a cure leaves 81 in 100: 0.98 against the 0.227 that any restart cures."""
    record = record_of((NodeEvent(kind="named", probability=0.5), NOW), (NodeEvent(kind="cured"), NOW))

    assert fault_probability(record, NOW, WEIGHTS) == pytest.approx(0.98 / (0.98 + 0.227))


def test_a_cure_after_a_group_left_convicts_nobody() -> None:
    """Of eight nodes evicted together, one faulty, a cure leaves each as suspect as it was: one in eight."""
    named = NodeEvent(kind="named", probability=1 / 8)
    cured = NodeEvent(kind="cured", others=7 / 8)
    alone = NodeEvent(kind="cured")

    together = fault_probability(record_of((named, NOW), (cured, NOW)), NOW, WEIGHTS)

    assert together == pytest.approx(1 / 8, abs=0.02)
    assert together < fault_probability(record_of((named, NOW), (alone, NOW)), NOW, WEIGHTS)


def test_a_machine_that_is_always_named_wrongly_is_acquitted() -> None:
    """A verdict that names the same machine a hundred times, each time without a cure, does not convict it."""
    record = NodeRecord(node="gpu-7")
    for number in range(100):
        at = NOW + number * DAY_SECONDS
        trial = Trial(probability=0.97, began_at=at, ended_at=at + HOUR_SECONDS, outcome="not_cured")
        record = record_trial(record, trial, WEIGHTS)
        record = update_record(record, NodeEvent(kind="returned"), at + 2 * HOUR_SECONDS, WEIGHTS)

        assert fault_probability(record, at + 2 * HOUR_SECONDS, WEIGHTS) < 0.5

    assert (record.evictions, record.acquittals) == ((), 100)
    assert not is_offender(record, NOW + 100 * DAY_SECONDS, WEIGHTS)


def test_a_recurrence_convicts() -> None:
    """A machine that was named, cured the job by leaving, came back and is named again is the cause beyond doubt."""
    first = Trial(probability=0.9, began_at=NOW, ended_at=NOW + HOUR_SECONDS, outcome="cured")
    second = Trial(probability=0.9, began_at=NOW + DAY_SECONDS, ended_at=NOW + DAY_SECONDS + 600, outcome="cured")

    once = record_trial(NodeRecord(node="gpu-7"), first, WEIGHTS)
    twice = record_trial(once, second, WEIGHTS)

    assert fault_probability(once, NOW + HOUR_SECONDS, WEIGHTS) == pytest.approx(0.975, abs=0.005)
    assert fault_probability(twice, NOW + DAY_SECONDS + 600, WEIGHTS) > 0.998


def test_an_unknown_outcome_says_nothing() -> None:
    """Where nobody saw what the job did, the verdict's word is all there is, and the eviction still counts."""
    trial = Trial(probability=0.9, began_at=NOW, ended_at=NOW + 60, outcome="unknown")

    record = record_trial(NodeRecord(node="gpu-7"), trial, WEIGHTS)

    assert fault_probability(record, NOW, WEIGHTS) == pytest.approx(0.9)
    assert record.evictions == (NOW,)


@given(REPORTED)
def test_memory_fades_to_the_prior(story: list[tuple[NodeEvent, float]]) -> None:
    """After five years without news nothing is left of what was reported, in either direction."""
    record = record_of(*story)

    assert fault_probability(record, NOW + 5 * 365 * DAY_SECONDS, WEIGHTS) == pytest.approx(
        WEIGHTS.prior.faulty, rel=1e-3
    )


def test_a_half_life_halves() -> None:
    """After one half-life the log odds above the prior are half of what they were."""
    record = reported("probe_failed")

    def above(now: float) -> float:
        odds = fault_probability(record, now, WEIGHTS)
        return math.log(odds / (1 - odds)) - math.log(WEIGHTS.prior.faulty / (1 - WEIGHTS.prior.faulty))

    assert above(NOW) == pytest.approx(math.log(0.7 / 0.01))
    assert above(NOW + WEIGHTS.memory.half_life_days * DAY_SECONDS) == pytest.approx(above(NOW) / 2)


def test_a_clock_that_went_back_hurts_nothing() -> None:
    """An instant before the record's newest is answered as of the newest."""
    record = reported("probe_failed")

    assert fault_probability(record, NOW - 9 * DAY_SECONDS, WEIGHTS) == fault_probability(record, NOW, WEIGHTS)


@pytest.mark.parametrize("field", ["probability", "cures", "others"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -3.0, 7.0])
@pytest.mark.parametrize("kind", ["named", "cured", "not_cured"])
def test_numbers_that_cannot_be_hurt_nothing(field: str, value: float, kind: NodeEventKind) -> None:
    """A probability that is none leaves the odds finite, and the record usable for what follows."""
    happened = replace(NodeEvent(kind=kind, probability=0.5), **{field: value})

    assert 0.0 < fault_probability(record_of((happened, NOW)), NOW, WEIGHTS) < 1.0


def test_repeat_offenders_are_few() -> None:
    """Of 63 nodes the three that were evicted most often are the offenders; a month later none is."""
    evicted: list[NodeEventKind] = ["evicted"]
    nodes = [reported(*evicted * (1 + number % 2), at=NOW - number) for number in range(60)]
    repeated = [reported("probe_failed", *evicted * count, each_seconds=3 * DAY_SECONDS) for count in (3, 4, 5)]
    records = [replace(one, node=f"n{number:02}") for number, one in enumerate([*nodes, *repeated])]

    assert [record.node for record in records if is_offender(record, NOW, WEIGHTS)] == ["n60", "n61", "n62"]
    assert not any(is_offender(record, NOW + 29 * DAY_SECONDS, WEIGHTS) for record in records)


def test_the_past_of_a_node_moves_a_new_verdict_within_bounds() -> None:
    """An acquittal lowers the odds of the next verdict, cures raise them, ten times at most; a verdict alone moves nothing."""
    acquitted, cured = reported("named", "evicted", "not_cured"), reported("named", "evicted", "cured")
    offender = reported(*("named", "recurred", "evicted", "cured") * 3)

    assert log_odds_shift(reported("named", "evicted"), NOW, WEIGHTS) == 0.0
    assert log_odds_shift(acquitted, NOW, WEIGHTS) == pytest.approx(
        -math.log(10)
    )  # 0.02 against 0.773 would be 39 times
    assert log_odds_shift(cured, NOW, WEIGHTS) == pytest.approx(math.log(0.98 / 0.227))
    assert log_odds_shift(offender, NOW, WEIGHTS) == pytest.approx(math.log(10))
    month = NOW + WEIGHTS.memory.half_life_days * DAY_SECONDS
    assert log_odds_shift(cured, month, WEIGHTS) == pytest.approx(math.log(0.98 / 0.227) / 2)


def test_an_acquittal_takes_an_eviction_back() -> None:
    """Three evictions of which one was acquitted are two, and two make no offender."""
    record = reported("evicted", "evicted", "not_cured", "evicted", each_seconds=HOUR_SECONDS)

    assert (len(record.evictions), record.acquittals) == (2, 1)
    assert not is_offender(record, NOW, WEIGHTS)


@given(REPORTED)
def test_a_record_survives_being_stored(story: list[tuple[NodeEvent, float]]) -> None:
    """A record is the same after it was written as JSON and read again."""
    record = record_of(*story)

    assert msgspec.convert(msgspec.json.decode(msgspec.json.encode(record)), NodeRecord) == record


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("[probe]\nhealthy = 0.8", "[probe] faulty = 0.7 is not above healthy = 0.8"),
        ("[recurrence]\nfaulty = 1.0", "< 1.0"),
        ("[memory]\nhalf_life_days = 0", "> 0.0"),
        ("[offender]\nevictions = 'many'", "Expected `int`"),
        ("[restart]\nrelapses = 0.9", "relapses = 0.9 is not below 0.773"),
    ],
)
def test_rows_that_cannot_be_meant_are_refused(rows: str, says: str) -> None:
    """A site's rows by which a faulty machine would look better than a healthy one are refused by name."""
    packaged = {name: _packaged()[name] for name in ("conviction", "plan")}

    with pytest.raises(KnowledgeRowError, match=r"conviction\.toml") as refused:
        weights(parse(packaged, {"conviction": rows}))

    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("[probe]\nfaulty = 1.5", "probe.faulty = 1.5: Expected `float` < 1.0"),
        ("[probe]\nfalty = 0.5", "probe.falty: there is no such row; there are faulty, healthy"),
        ("[ladder]\nnetwork_alerts = 0", "ladder.network_alerts = 0"),
        ("[prob]\nfaulty = 0.5", "prob: there is no such table"),
        ("prior = 0.5", "prior: must be a table"),
    ],
)
def test_a_sites_document_is_checked_when_it_is_loaded(rows: str, says: str, tmp_path: Path) -> None:
    """A row that is misspelt or out of bounds stops the start, by its name, instead of being read past."""
    (tmp_path / "conviction.toml").write_text(rows)

    with pytest.raises(KnowledgeError) as refused:
        load(tmp_path)

    assert says in str(refused.value)


def test_a_site_may_change_one_row(tmp_path: Path) -> None:
    """A document of one row leaves all others as they are packaged."""
    (tmp_path / "conviction.toml").write_text("[burn_in]\nhours = 72")

    changed = weights(load(tmp_path))

    assert changed == replace(WEIGHTS, burn_in=replace(WEIGHTS.burn_in, hours=72.0))


def test_a_class_that_every_restart_cures_is_a_row_like_another(tmp_path: Path) -> None:
    """A share of 1 is one that plan.toml takes: the evidence's rows are read beside it, and not given up."""
    (tmp_path / "plan.toml").write_text("[cures]\nnever_entered = 1.0")

    assert weights(load(tmp_path)) == WEIGHTS
