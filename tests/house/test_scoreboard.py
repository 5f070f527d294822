"""docs/scoreboard.md is what its measurement says, and the measurement is one that a worse program would fail."""

from __future__ import annotations

import json
from copy import deepcopy

import pytest

from analyzers.model.topology import Topology
from tests.acceptance.scoreboard import CORPUS, OURS, RESTS_ON, answered, holds, real_labels
from tests.support.baselines import CONTROLS as HANG_RULES
from tests.support.scoreboard import peers, table
from tests.support.slow_cases import CONTROLS as SLOW_RULES


def test_the_page_is_its_document() -> None:
    """docs/scoreboard.md is what the table's command makes of docs/measured/scoreboard.json, and its claims hold."""
    document, *others = table.documents()

    assert table.PAGE.read_text(encoding="utf-8") == table.page(document, *others)
    assert holds(document)
    assert set(document["rests_on"]) == set(RESTS_ON) == set(document["answers"])


def test_a_worse_program_fails() -> None:
    """One innocent machine evicted, or a rule that is exact oftener than we are, fails the measurement."""
    document = json.loads(table.DOCUMENT.read_text(encoding="utf-8"))
    evicting, beaten = deepcopy(document), deepcopy(document)
    evicting["answers"]["simulator"]["hang"][0]["innocent_machines"] = 1
    beaten["answers"]["simulator"]["slow"][1]["exact"]["count"] = 10**6

    assert not holds(evicting)
    assert not holds(beaten)


def test_every_rule_has_its_words() -> None:
    """Each naive rule and each peer's method has a row in the table."""
    assert set(peers.WORDS) == {*HANG_RULES, *(control.name for control in SLOW_RULES)}
    assert "[[case]]" in CORPUS.read_text(encoding="utf-8")


def test_a_rule_that_names_no_rank_calls_the_job_healthy() -> None:
    """Its answer counts as one: a rule cannot abstain."""
    silent = peers.as_verdict(frozenset(), Topology())
    named = peers.as_verdict(frozenset({3, 8}), Topology(nodes={3: "gpu-0"}))

    assert (silent.symptom, silent.abstained, silent.action.kind) == ("healthy", False, "none")
    assert (named.action.kind, named.action.nodes, named.action.ranks) == ("evict", ("gpu-0",), (8,))


def test_the_recorded_incident_is_answered_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the corpus one real case is left: ours is exact, and half of the rules evict an innocent machine."""
    monkeypatch.delenv("FAULTHOUND_CORPUS", raising=False)
    (label,) = real_labels()

    (who, ours), *others = answered(label)

    assert (who, ours.result, ours.innocent) == (OURS, "exact", ())
    assert {name for name, _ in others} == set(HANG_RULES)
    assert sum(bool(one.innocent) for _, one in others) >= 3
