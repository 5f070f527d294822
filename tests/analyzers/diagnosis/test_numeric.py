"""Numbers that are none, or many times what they were: reported with the step, blamed on nobody."""

from __future__ import annotations

from math import isnan, nan

import pytest

from analyzers.diagnosis.numeric.numeric import analyze
from analyzers.knowledge import Knowledge
from analyzers.model.finding import Finding
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import STEP_COLUMNS, LogEvent, Record, Steps
from tests.support.live_hangs import verdict
from tests.support.live_records import columns
from tests.support.sentences import numbers_in

AT = 1_763_000_000.0


def steps(losses: list[float], rank: int | None = None, skipped: int | range = -1) -> Steps:
    """Steps from 1 on, one a second; a NaN is reported as such."""
    count = len(losses)
    skips = range(skipped, skipped + 1) if isinstance(skipped, int) else skipped
    values = {
        "step": list(range(1, count + 1)), "at": [AT + step for step in range(count)], "loss": losses,
        "gradient_norm": [nan] * count, "nan": [int(isnan(loss)) for loss in losses],
        "skipped": [int(step in skips) for step in range(count)],
    }  # fmt: skip
    return Steps(
        source="train.log", at=AT, rank=rank, told_by="plain", count=count, columns=columns(STEP_COLUMNS, **values)
    )


def found(*records: Record) -> list[Finding]:
    """Analyze these records."""
    return list(analyze(Window.build(records), Topology(), Knowledge()))


def test_a_loss_that_is_no_number_is_told_from_its_first_step() -> None:
    """Step 3 is the first, whatever follows; no rank is suspected, the code weakly, and what would decide is said."""
    (finding,) = found(steps([2.0, 1.9, nan, nan]))
    assert (finding.symptom, finding.fault_class, finding.onset) == ("numeric", "not_a_number", AT + 2)
    assert [(suspect.kind, suspect.ranks) for suspect in finding.suspects] == [("code", ())]
    assert numbers_in(finding.evidence[0].text) == [3]
    judged = verdict([steps([2.0, 1.9, nan, nan])])
    assert (judged.symptom, judged.cause, judged.abstained, judged.action.kind) == ("numeric", "code", False, "none")
    assert any("before the reduction" in missing for missing in finding.missing)


def test_ranks_that_disagree_at_the_first_step_are_told() -> None:
    """Rank 1 lost its number a step before the others."""
    (finding,) = found(steps([2.0, 1.9, 1.8], 0), steps([2.0, nan, nan], 1), steps([2.0, 1.9, nan], 2))
    assert numbers_in(finding.evidence[0].text) == [2, 1, 0, 2]
    assert [(suspect.kind, suspect.ranks) for suspect in finding.suspects] == [("rank", (1,))]
    assert "each rank's" not in " ".join(finding.missing)
    assert any("replay of step 2" in text for text in finding.missing)


def test_the_evidence_is_of_the_rank_that_broke_first() -> None:
    """The lines of ranks that the reduction gave their NaN are no evidence of where it began."""
    lines = [
        LogEvent(source="train.log:9", rank=0, event="nan", at=AT + 1, text="step 3 loss nan"),
        LogEvent(source="train.log:5", rank=1, event="nan", at=AT + 2, text="step 2 loss nan"),
    ]
    (finding,) = found(steps([2.0, 1.9, nan], 0), steps([2.0, nan, nan], 1), *lines)
    assert [(each.source, each.text.endswith(lines[1].text)) for each in finding.evidence[1:]] == [
        ("train.log:5", True)
    ]


def test_one_rank_that_still_reports_is_named_in_the_singular() -> None:
    """Two ranks of three broke together."""
    (finding,) = found(steps([2.0, nan], 0), steps([2.0, nan], 1), steps([2.0, 1.9], 2))
    assert numbers_in(finding.evidence[0].text) == [2, 0, 1, 2]


@pytest.mark.parametrize(
    "losses",
    [[2.0, nan, 1.9], [2.0] * 40 + [11.0, 2.0], [2.0] * 40 + [9.9], [2.0] * 10 + [11.0], [0.0] * 40 + [11.0], []],
    ids=["came back", "a spike that passed", "less than five times", "too young", "no median", "nothing"],
)
def test_what_passed_or_is_ordinary_is_nothing(losses: list[float]) -> None:
    """A job that found back, or whose usual value is not known, is left alone."""
    assert found(steps(losses)) == []


def test_a_spike_at_the_newest_step_is_told_with_its_size() -> None:
    """Eleven where it was two for forty steps."""
    (finding,) = found(steps([2.0] * 40 + [11.0]))
    assert finding.fault_class == "spike"
    assert numbers_in(finding.evidence[0].text) == [11, 41, 5.5]


def test_what_a_tenth_of_the_steps_had_is_no_spike() -> None:
    """A policy's norms, half of them nearly 0: 0.5 is many times their median, and usual; 3 is not."""
    usual = [0.01, 0.4, 0.0, 0.5, 0.05, 0.01, 0.35, 0.02] * 8
    assert found(steps([*usual, 0.5])) == []
    assert [one.fault_class for one in found(steps([*usual, 3.0]))] == ["spike"]


def test_a_step_that_the_optimizer_left_out_is_ordinary() -> None:
    """fp16 overflows: the scaler skips the step, and nothing is wrong."""
    assert found(steps([2.0, 1.9, nan], skipped=2)) == []


@pytest.mark.parametrize("last", [3, 4], ids=["may recover", "does not recover"])
def test_newest_steps_that_are_all_skipped_with_a_nan_are_reported(last: int) -> None:
    """The optimizer skips each step whose loss is NaN, until the end: the weights are of no use."""
    findings = found(steps([2.0] * 30 + [nan] * last, skipped=range(30, 40)))
    assert [numbers_in(finding.evidence[0].text) for finding in findings] == [[31]] * (last == 4)


def test_a_loss_that_is_now_and_then_no_number_is_nothing() -> None:
    """Every third step is NaN, the newest too: the job recovered each time. Two in a row are more than ever before."""
    sporadic = [2.0, 2.0, nan] * 20
    assert found(steps(sporadic)) == []
    (finding,) = found(steps([*sporadic, nan]))
    assert numbers_in(finding.evidence[0].text) == [60]
    assert found(steps([2.0, nan, *([2.0] * 200), nan])) == []  # long ago


def test_a_loss_that_is_no_number_is_mentioned_only() -> None:
    """A NaN line gives a numeric finding without a suspect, where the log has no steps."""
    line = LogEvent(source="train.log:7", at=AT, rank=0, event="nan", text="loss: nan")
    (finding,) = found(line)
    assert (finding.symptom, finding.suspects, finding.evidence[0].source) == ("numeric", (), "train.log:7")
    judged = verdict([line])
    assert (judged.symptom, judged.cause, judged.abstained, judged.action.kind) == ("numeric", "unknown", True, "none")


def test_damaged_columns_say_nothing() -> None:
    """A column that was cut does not fit its count."""
    whole = steps([2.0, nan])
    cut = Steps(source="x", count=2, columns=whole.columns | {"loss": b"\x00\x01"})
    assert found(cut) == []
