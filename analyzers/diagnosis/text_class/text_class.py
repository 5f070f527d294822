"""A text by which no rule decides has the cause that labelled texts with its words have, for little and without a name.

The table ``texts.toml`` is learned from excerpts of public threads (``tests.acceptance.text_class``): linear models of words
and pairs of words. A broken machine is one of its causes and is not said: lines of programs and kernels show that, and rules
read them; what words alone give to a machine is mostly harmless.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from analyzers.diagnosis.text_class.classifier import Classifier
from analyzers.knowledge import Knowledge
from analyzers.model.finding import KIND_OF_CAUSE, Cause, Evidence, Finding, Kind, Suspect
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import WHOLE_TEXT, LogEvent

STRONGEST = 0.45
"""Words that are like those of other failures are a lead: they prove nothing of this one."""
SHOWN, SHORTEST_SHOWN = 6, 4  # words, and the letters of one: the shortest join others
SHOWN_LETTERS = 160
SAID: Mapping[str, tuple[Cause, Kind]] = {
    cause: (cause, kind) for cause, kind in KIND_OF_CAUSE.items() if cause != "machine"
}


def analyze(window: Window, _topology: Topology, knowledge: Knowledge) -> Iterator[Finding]:
    """Yield the cause of the one text that a person gave; none where its words decide nothing, or an agent sent it."""
    texts = [event for event in window.records_of(LogEvent) if event.event == WHOLE_TEXT and event.node is None]
    table = knowledge.table("texts")
    if len(texts) != 1 or not table:
        return
    text = texts[0].message or ""
    classifier = Classifier.of(table)
    name, probability = classifier.answer(text)
    few = len(classifier.known(text)) < int(table["fewest_terms"])
    if name not in SAID or probability < float(table["threshold"]) or few:
        return
    cause, kind = SAID[name]
    telling = [word for word in classifier.telling(text, name) if len(word) >= SHORTEST_SHOWN]
    words = ", ".join(f"“{word}”" for word in telling[:SHOWN])
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")[:SHOWN_LETTERS]
    shown = Evidence(text=first, source=texts[0].source)
    why = f"no rule decides; of {table['excerpts']:,} labelled texts those with its words have this cause ({words})"
    suspect = Suspect(kind=kind, strength=round(min(probability, STRONGEST), 2), why=why, evidence=(shown,))
    yield Finding(
        analyzer="text_class", family="log", symptom="unknown", cause=cause, fault_class="like_other_texts",
        suspects=(suspect,), first_symptom=shown, missing=(str(table["missing"]),),
    )  # fmt: skip
