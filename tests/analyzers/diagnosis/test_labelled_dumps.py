"""Labelled dumps of real hung jobs: the injected ranks are named, whatever befell the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.labelled_dumps import Outcome, cases, folders, outcomes

MOST = 12

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def answered(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    """Diagnose every variant of every labelled folder once."""
    scratch = tmp_path_factory.mktemp("cut")
    return [outcome for folder in folders(corpus) for outcome in outcomes(cases(folder, most=MOST), scratch)]


def _of(answered: list[Outcome], *names: str) -> list[Outcome]:
    found = [outcome for outcome in answered if outcome.case.name in names]
    assert found
    return found


def test_whole_sets_are_named_exactly(answered: list[Outcome]) -> None:
    """As they are, with 4 or 8 ranks a node, permuted or in any order: the injected ranks and nobody else."""
    wrong = [
        (o.case, sorted(o.named))
        for o in _of(answered, "as it is", "4 ranks a node", "8 ranks a node", "permuted", "any order")
        if not o.exact or o.verdict.symptom != "hang" or o.verdict.cause != "machine"
    ]

    assert not wrong


def test_lost_guilty_dumps_are_the_culprits(answered: list[Outcome]) -> None:
    """Where the guilty left no dump, their absence names them and nobody else."""
    assert [(o.case, sorted(o.named)) for o in _of(answered, "guilty lost", "one guilty lost") if not o.exact] == []


def test_a_lost_innocent_dump_is_never_more_than_not_excluded(answered: list[Outcome]) -> None:
    """The culprits stay named as such; beside them stand only lost ranks that others wait for, each with less than even odds."""
    for outcome in _of(answered, "1 innocent lost", "2 innocent lost", "3 innocent lost"):
        convicted = {r for c in outcome.verdict.culprits if c.probability > 0.9 for r in c.ranks}

        assert outcome.excusable, (outcome.case, sorted(outcome.named))
        assert outcome.guilty == convicted, outcome.case


def test_nobody_is_blamed_for_a_dump_that_nothing_waits_on(answered: list[Outcome]) -> None:
    """Ranks of the stage before wait behind the culprits' stage: losing their dumps leaves the answer exact."""
    first_stage = [o for o in _of(answered, "1 innocent lost") if max(o.case.lost) < 8]

    assert first_stage
    assert all(outcome.exact for outcome in first_stage)


def test_cut_files_hide_nothing_that_the_others_show(answered: list[Outcome]) -> None:
    """Truncated anywhere, a file loses entries: its rank may not be excluded any more, and nobody else is added."""
    assert [(o.case, sorted(o.named)) for o in _of(answered, "cut") if not o.excusable] == []


def test_no_innocent_machine_is_evicted(answered: list[Outcome]) -> None:
    """In no variant does the proposed action replace a machine without an injected rank."""
    assert [(o.case, o.innocent_evicted) for o in answered if o.innocent_evicted] == []
