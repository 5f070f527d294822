"""No sentence has an empty name: every class of fault is rendered with what it names, and with that unknown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

import pytest

from analyzers.knowledge import Knowledge
from analyzers.model.fault_class import FaultClass
from analyzers.model.fault_classes import FAULT_CLASSES
from analyzers.model.finding import Evidence, Finding, Kind, Suspect
from analyzers.model.topology import Topology
from analyzers.model.verdict import Culprit, Verdict
from analyzers.model.window import Window
from analyzers.verdict.build import compose
from analyzers.verdict.correlate import combine
from service.reports import advice, html, story, text

KINDS: tuple[Kind, ...] = get_args(Kind)
EMPTY = re.compile(
    r"\S  +[a-z]|\(\s*\)|\bNone\b|\{\w*\}"
    r"|(?<!unknown )\b[Rr]anks?(?: [;:,.)]|[;:,.)]| (?:brought|hangs?|slows?|corrupts?|shows?|before|and|on)\b)"
    r"|\b(?:Node|The group|The stage|Device|Link|Switch) (?:ranks|brought|hangs?|slows?|corrupts?|shows?)\b|\?"
    r"|\b(?:one or more|node|nodes|group|stage|device) (?:of )?(?:before|$)"
)
"""What an empty name leaves behind: two blanks, an empty pair of brackets, a noun that goes straight on to its verb."""


def findings(row: FaultClass) -> Iterator[Finding]:
    """Yield claims of one class about each kind of suspect, each time with less that is known of it."""
    known = {"ranks": (3, 5), "node": "gpu-7", "device": "0000:1b:00"}
    for kind in KINDS:
        for left in (("ranks", "node", "device"), ("node",), ("device",), ("ranks",), ()):
            fields = {name: known[name] for name in left}
            for count in (1, 2):
                suspects = tuple(
                    Suspect(kind=kind, strength=0.9 / count, why="it shows this", **fields)  # type: ignore[arg-type]
                    for _ in range(count)
                )
                for cause in row.causes or ("unknown",):
                    yield Finding(
                        analyzer=(row.claimed_by or ("hang",))[0], family="log", cause=cause, suspects=suspects,
                        symptom="crash", fault_class=row.name.replace("*", "79"), evidence=(Evidence(text="a line"),),
                    )  # fmt: skip


def sentences(verdict: Verdict) -> Iterator[str]:
    """Yield what a person reads of a verdict."""
    yield from map(str, story.headlines(verdict))
    yield advice.what_to_do(verdict)
    yield from (why for pair in story.rejections(verdict) for why in pair)
    yield from (story.name_culprits([one]) for one in verdict.suspects)
    yield story.waiting(verdict)
    yield story.coverage(verdict)


@pytest.mark.parametrize("row", FAULT_CLASSES, ids=[row.name for row in FAULT_CLASSES])
def test_no_name_is_empty(row: FaultClass) -> None:
    """Ranks, node and device known, one of them, none of them; one suspect and a set of two."""
    for finding in findings(row):
        judged = compose(combine([finding], Topology()), Window(), Topology(), Knowledge())
        for said in sentences(judged):
            found = EMPTY.search(said)
            assert found is None, (finding.suspects, found, said)
    assert EMPTY.search(text.render(judged).splitlines()[0]) is None


@pytest.mark.parametrize(
    "said", ["Rank brought the job down", "The group ranks  hangs the job", "test the node of ranks ."]
)
def test_an_empty_name_is_seen(said: str) -> None:
    """The pattern finds what it is for."""
    assert EMPTY.search(said)


def test_a_page_of_nameless_culprits_is_whole() -> None:
    """The page of a verdict that knows neither rank nor node renders."""
    row = next(row for row in FAULT_CLASSES if row.name == "process_killed")
    nameless = (Suspect(kind="rank", strength=0.9, why="it shows this"),)
    finding = replace(next(findings(row)), suspects=nameless)
    judged = compose(combine([finding], Topology()), Window(), Topology(), Knowledge())
    assert "rocess of unknown rank" in html.page(judged, Window(), Topology(), Knowledge())


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("code", "10.0.0.4", "The code on 10.0.0.4 (not a machine)"),
        ("group", "gpu-7", "Group gpu-7"),
        ("group", "gpu-7, gpu-8", "One or more of gpu-7, gpu-8"),
    ],
)
def test_a_place_is_named_as_one(kind: str, name: str, said: str) -> None:
    """A single place is no choice among several, and an address is where a code ran, not what it is called."""
    assert story.name_culprits([Culprit(root="r1", kind=kind, id=name, probability=0.5)]) == said
