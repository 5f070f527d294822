"""Texts of which no rule uses a line: their words give a cause, for little, and lead to no deed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from analyzers.diagnosis.text_class.classifier import Classifier, terms_of
from analyzers.diagnosis.text_class.text_class import SAID, STRONGEST
from analyzers.knowledge import Knowledge
from analyzers.model import topology
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict import judge
from collectors.records import WHOLE_TEXT, LogEvent
from service import packaged_knowledge

TABLE: dict[str, Any] = {
    "excerpts": 12,
    "threshold": 0.4,
    "fewest_terms": 3,
    "missing": "the job's log",
    "causes": ["code", "storage", "machine"],
    "intercepts": [0.0, 0.0, 0.0, 2.0, -2.0],
    "terms": """
disk\t300 -500 2000 -700 300 -300
full\t500 -500 3000 -700 500 -500
disk is\t200 -500 900 0 0 0
thanks\t300 0 0 0 0 4900
maybe\t300 0 0 0 -4900 0
fan\t300 -500 -700 3000 300 -300
stopped\t100 0 -100 2000 0 0
fan stopped\t300 0 -100 2000 0 0
""",
}


def verdict_on(*texts: str, table: dict[str, Any] | None = None) -> Verdict:
    """Judge texts as the command line does where no rule uses a line of them."""
    events = [LogEvent(source=f"text{number}", event=WHOLE_TEXT, message=text) for number, text in enumerate(texts)]
    window = Window.build(events)
    return judge.judge(window, topology.infer(window), Knowledge(tables={"texts": TABLE if table is None else table}))


def test_words_of_known_failures_give_their_cause() -> None:
    """The words that decide are shown, and nothing is done."""
    verdict = verdict_on("Since Monday the disk is full of what the third job wrote")

    assert (verdict.cause, verdict.action.kind) == ("storage", "none")
    assert [(one.kind, one.probability <= STRONGEST) for one in verdict.culprits] == [("storage", True)]
    assert "“full”" in verdict.culprits[0].why
    assert "the job's log" in " ".join(one.what for one in verdict.missing)


def test_no_machine_is_accused_by_words() -> None:
    """Their cause is a machine; were it the storage, the same number of words would do."""
    table = TABLE | {"causes": ["code", "machine", "storage"]}
    text = "one fan stopped in the third box"

    assert verdict_on(text).culprits == ()
    assert [one.kind for one in verdict_on(text, table=table).culprits] == ["storage"]


@pytest.mark.parametrize(
    "text",
    ["thanks, the disk is full", "maybe the disk is full", "nothing of this is known", "full", ""],
    ids=["harmless", "open", "unknown words", "too few words", "empty"],
)
def test_words_that_decide_nothing_name_nothing(text: str) -> None:
    """Words can say that nothing failed, or that the text leaves the cause open; a word or two are no text."""
    assert verdict_on(text).culprits == ()


@pytest.mark.parametrize("name", sorted(SAID))
def test_nothing_is_done_for_words(name: str) -> None:
    """Of whatever cause: no restart, no probe, no eviction."""
    table = TABLE | {"causes": ["machine", name, "of no name"]}

    verdict = verdict_on("the disk is full of what the third job wrote", table=table)

    assert (verdict.cause, verdict.action.kind) == (SAID[name][0], "none")


def test_a_text_that_a_node_s_agent_sent_is_none() -> None:
    """A person pastes it to `diagnose`; what an agent sends bears its node."""
    sent = LogEvent(
        source="agent", event=WHOLE_TEXT, message="the disk is full of what the third job wrote", node="gpu-0666"
    )
    window = Window.build([sent])

    assert judge.judge(window, topology.infer(window), Knowledge(tables={"texts": TABLE})).culprits == ()


def test_several_texts_are_not_judged() -> None:
    """One of them could explain the other."""
    text = "the disk is full of what the third job wrote"

    assert verdict_on(text, text).culprits == ()


def test_without_a_table_nothing_is_said() -> None:
    """A site may take the table away."""
    assert verdict_on("the disk is full of files", table={}).culprits == ()


def test_a_table_that_cannot_be_read_costs_no_verdict() -> None:
    """An override with a row of words where numbers belong."""
    verdict = verdict_on("the disk is full of files", table=TABLE | {"terms": "full\tmany\n"})

    assert verdict.culprits == ()
    assert any("text_class" in one.what for one in verdict.missing)


def test_the_packaged_table_is_added_up_as_scikit_learn_would() -> None:
    """The oracle: inverse document frequencies scaled to length 1, times a matrix; a softmax and two logistic functions."""
    table = packaged_knowledge.load(None).table("texts")
    classifier = Classifier.of(table)
    text = "The data loader hangs at the first batch on two of eight nodes, and the disk of the file server is full."
    terms = [term for term in terms_of(text) if term in classifier.weights]
    rarity = np.array([classifier.weights[term][0] for term in terms])
    weights = np.array([classifier.weights[term][1:] for term in terms]) / rarity[:, None]
    *causes, decides, harmless = np.array(classifier.intercepts) + (rarity / np.linalg.norm(rarity)) @ weights
    chances = np.exp(causes) / np.exp(causes).sum()

    name, probability = classifier.answer(text)

    assert len(terms) > 10
    assert name == classifier.causes[int(chances.argmax())]
    expected = float(chances.max()) / (1 + math.exp(-decides)) / (1 + math.exp(harmless))
    assert math.isclose(probability, expected, rel_tol=1e-9)


def test_terms_are_words_and_pairs_without_numbers() -> None:
    """Names in one word are taken apart; a term counts once."""
    assert terms_of("rank3 OutOfMemory at 0x7f, OutOfMemory") == [
        "rank", "out", "of", "memory", "at", "rank out", "out of", "of memory", "memory at", "at out",
    ]  # fmt: skip
