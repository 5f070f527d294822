"""What no record places is not named: a verdict without a place to act on is an abstention."""

from __future__ import annotations

import io

import pytest

from analyzers.model.topology import infer
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.formats import Input
from collectors.formats.job_log import job_log
from service import packaged_knowledge

KILLED = "run.sh: line 12:  4242 Killed                  python train.py\n"
CONTAINER = "    State:          Terminated\n      Reason:       Error\n      Exit Code:    137\n"


def verdict_of(text: str, source: str = "job.log", rank: int | None = None) -> Verdict:
    """Judge one log."""
    data = text.encode()
    window = Window.build(list(job_log.read(Input(source, io.BytesIO(data), data, rank=rank))))
    return judge(window, infer(window), packaged_knowledge.load(None))


@pytest.mark.parametrize("text", [KILLED, CONTAINER])
def test_a_process_that_nothing_places_is_no_culprit(text: str) -> None:
    """The death is shown as a suspect, and no action is advised."""
    verdict = verdict_of(text)

    assert verdict.abstained
    assert verdict.symptom == "crash"
    assert verdict.culprits == ()
    assert verdict.action.kind == "none"


def test_the_same_death_of_a_known_rank_names_it() -> None:
    """With the rank that the file's name gives, the process can be found."""
    verdict = verdict_of(KILLED, "rank3.log", rank=3)

    assert [culprit.ranks for culprit in verdict.culprits] == [(3,)]
