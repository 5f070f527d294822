"""The matrix of excerpts: what people paste, in the formats of the programs that wrote it."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from analyzers.knowledge import Knowledge
from analyzers.model.verdict import Verdict
from service import packaged_knowledge
from tests.analyzers.diagnosis.reported.excerpts import Excerpt, Outcome, excerpts, outcome, verdict_on
from tests.service.reports.test_wording import faults, rendered

ALL = excerpts()
FEWEST, FEWEST_NEGATIVES, SHARE = 150, 40, 0.9
_VERDICTS: dict[str, Verdict | None] = {}


def _verdict(text: str, knowledge: Knowledge) -> Verdict | None:
    if text not in _VERDICTS:
        _VERDICTS[text] = verdict_on(text, knowledge)
    return _VERDICTS[text]


def _outcome(excerpt: Excerpt, knowledge: Knowledge) -> Outcome:
    return outcome(excerpt, _verdict(excerpt.text, knowledge))


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    """The packaged tables."""
    return packaged_knowledge.load(None)


@pytest.mark.parametrize("family", list(dict.fromkeys(excerpt.family for excerpt in ALL)))
def test_no_excerpt_is_judged_wrongly(family: str, knowledge: Knowledge) -> None:
    """A verdict names what the lines show or nothing: never an innocent, never from chatter, never to evict without need."""
    judged = [(excerpt.title, _outcome(excerpt, knowledge)) for excerpt in ALL if excerpt.family == family]

    assert [one for one in judged if one[1] not in {"right", "abstained"}] == []


def test_nearly_all_are_decided_as_their_lines_allow(knowledge: Knowledge, capsys: pytest.CaptureFixture[str]) -> None:
    """The counts of each family, printed; an abstention where the lines decide is allowed to one in ten."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for excerpt in ALL:
        counts[excerpt.family][_outcome(excerpt, knowledge)] += 1
    with capsys.disabled():
        for family, outcomes in counts.items():
            print(f"\n{family:16} {sum(outcomes.values()):3} excerpts: {dict(outcomes)}", end="")
        print()

    decidable = [excerpt for excerpt in ALL if not excerpt.negative]
    abstained = sum(outcomes["abstained"] for outcomes in counts.values())

    assert len(ALL) >= FEWEST
    assert len(ALL) - len(decidable) >= FEWEST_NEGATIVES
    assert abstained <= (1 - SHARE) * len(decidable)


@pytest.mark.system
def test_no_verdict_has_a_fault_of_wording(knowledge: Knowledge) -> None:
    """What people read of each, as ``test_wording.py`` asks of other verdicts."""
    judged = ((excerpt.title, _verdict(excerpt.text, knowledge)) for excerpt in ALL)
    said = [(title, rendered(verdict)) for title, verdict in judged if verdict is not None]

    assert [(title, fault) for title, text in said for fault in faults(text)] == []
