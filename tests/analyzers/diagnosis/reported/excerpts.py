"""Read the excerpts and score verdicts on them.

An excerpt begins with ``=== title | expectations`` and ends at the next. The expectations are ``cause=A|B``, ``culprit=KIND:ID``
(all of them together, as ``diagnose --expect``), ``abstain`` (nothing is named), ``not=KIND:ID`` (innocent: never named),
``alone`` (one culprit, under one name), ``evict`` (eviction is allowed).
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from analyzers.knowledge import Knowledge
from analyzers.model import topology
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict import judge
from collectors.files.reading import read_input
from collectors.formats import Input
from collectors.records import Unread
from service import packaged_knowledge
from service.cli import expectation

FOLDER = Path(__file__).parent
Outcome = Literal["right", "abstained", "wrong", "evicts the innocent"]


@dataclass(frozen=True, slots=True)
class Excerpt:
    """One pasted text. ``family``: the file that holds it."""

    family: str
    title: str
    expected: tuple[str, ...]
    text: str

    @property
    def negative(self) -> bool:
        """Whether nothing may be named: an echo, a victim, chatter."""
        return "abstain" in self.expected

    @property
    def may_be_unknown(self) -> bool:
        """Whether to name nothing is right too, once what it shows was read."""
        return any(each.startswith("cause=") and "unknown" in each for each in self.expected) and not any(
            each.startswith("culprit=") for each in self.expected
        )


def excerpts() -> list[Excerpt]:
    """Return every excerpt, by family."""
    found = []
    for path in sorted(FOLDER.glob("*.txt")):
        for block in _blocks(path):
            head, _, text = block.partition("\n")
            title, _, expected = head.rpartition(" | ")
            found.append(Excerpt(path.stem, title, tuple(expected.split()), text))
    return found


def _blocks(path: Path) -> list[str]:
    text = "\n" + path.read_text(encoding="utf-8")
    return text.split("\n=== ")[1:]


def verdict_on(text: str, knowledge: Knowledge | None = None) -> Verdict | None:
    """Judge a text as standard input is judged; None: no record could be read from it."""
    data = text.encode()
    records = list(read_input(Input("standard input", io.BytesIO(data), data[: 1 << 16])))
    if all(isinstance(record, Unread) for record in records):
        return None
    window = Window.build(records, None)
    return judge.judge(window, topology.infer(window), knowledge or packaged_knowledge.load(None))


def outcome(excerpt: Excerpt, verdict: Verdict | None) -> Outcome:
    """Return how a verdict stands to what was expected; to evict where the excerpt does not ask for it is the worst."""
    named = verdict is not None and bool(verdict.culprits)
    if verdict is not None and verdict.action.kind == "evict" and "evict" not in excerpt.expected:
        return "evicts the innocent"
    if verdict is None or (not named and verdict.symptom != "healthy"):
        unknown = verdict is not None and verdict.symptom != "unknown" and excerpt.may_be_unknown
        return "right" if excerpt.negative or unknown else "abstained"
    if excerpt.negative or verdict.symptom == "healthy":
        return "wrong"
    return "right" if all(_meets(verdict, each) for each in excerpt.expected) else "wrong"


def _meets(verdict: Verdict, expected: str) -> bool:
    field, _, value = expected.partition("=")
    if field == "cause":
        return verdict.cause in value.split("|")
    if field == "culprit":
        return not list(expectation.failures(expectation.parse([expected]), verdict))
    if field == "not":
        kind, _, name = value.partition(":")
        accused = {("rank", str(rank)) for each in verdict.culprits for rank in each.ranks if each.kind != "code"}
        return (kind, name) not in accused | {(each.kind, each.id) for each in verdict.culprits}
    return field == "evict" or (field == "alone" and len(verdict.culprits) == 1)
