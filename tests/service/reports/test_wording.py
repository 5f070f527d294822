"""What people read has no doubled word, no empty name, no plural for one rank, and no path where there is no file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from analyzers.knowledge import Knowledge
from analyzers.model.fault_classes import FAULT_CLASSES
from analyzers.model.finding import Suspect
from analyzers.model.topology import Topology, infer
from analyzers.model.verdict import Coverage, Culprit, Rejected, Verdict
from analyzers.model.window import Window
from analyzers.verdict.build import compose
from analyzers.verdict.correlate import combine
from analyzers.verdict.judge import judge
from collectors.files.reading import read_paths
from service.packaged_knowledge import load
from service.reports import advice, history, next_steps, remediations, story, text
from simulation.scenarios import draw, play
from tests.analyzers.diagnosis.test_network_waits import STOPPED, Waits, wait
from tests.service.reports.test_names import findings
from tests.support.live_hangs import Hang, verdict
from tests.support.sample_verdicts import hang, healthy, undecided

GOLDEN = Path(__file__).parents[2]
SEEDS, STRIDE = 8, 17  # of the claims of each class every 17th, each time from another on
DOUBLED = re.compile(r"\b([a-z]{2,})[ ]+\1\b(?![-'’.\d])", re.IGNORECASE)
MEANT = {"that that", "had had", "in in"}
ONE_IN_THE_PLURAL = re.compile(
    r"\branks \d+(?![\d,\-–]|,? (?:and|to|or) \d|, \d)\b|\bone of ranks? \d+(?![\d,\-–]|,? and)\b|\b1 ranks\b"
)
UNNAMED = re.compile(r"\(not named\)|\bNone\b|(?<!\w)\(\)|\branks? (?=[,.;:])")
READ = re.compile(r"faulthound read (\S+)")


def faults(said: str) -> Iterator[str]:
    """Yield what is wrong with what people read."""
    for line in said.splitlines():
        yield from (found[0] for found in DOUBLED.finditer(line) if found[0].lower() not in MEANT)
        yield from (found[0] for pattern in (ONE_IN_THE_PLURAL, UNNAMED) for found in pattern.finditer(line))


def rendered(found: Verdict) -> str:
    """Everything of a verdict that a person reads, but lines that others wrote: evidence is quoted from logs."""
    line = history.of_verdict(found, 1, 0.0)
    ours = msgspec.structs.replace(found, evidence=(), coverage=msgspec.structs.replace(found.coverage, unread=()))
    shown = [
        *map(str, story.headlines(ours)), advice.what_to_do(ours), story.waiting(ours), story.coverage(ours), line.named,
        *(f"{who}: {why}" for who, why in story.rejections(ours)), *(story.name_culprits([one]) for one in found.suspects),
        *(f"{one.kind}: {one.id}" for one in found.culprits if one.kind in ("group", "stage")),
        *(one.what for one in found.missing), found.action.why,
    ]  # fmt: skip
    return "\n".join(shown)


@cache
def judged() -> tuple[Verdict, ...]:
    """Verdicts of every kind of evidence: every class of fault, simulated hangs, live hangs and an example."""
    classes = [
        compose(combine([finding], Topology()), Window(), Topology(), Knowledge())
        for number, row in enumerate(FAULT_CLASSES)
        for finding in islice(findings(row), number % STRIDE, None, STRIDE)
    ]
    simulated = []
    for seed in range(SEEDS):
        window = Window.build(play(draw(seed, most_ranks=32)).records())
        simulated.append(judge(window, infer(window), load()))
    stopped = Waits(sockets=(wait(STOPPED),))
    live = [
        verdict(one.records(), looks)
        for one in (
            Hang(),
            Hang(state="T"),
            Hang(state="D"),
            Hang(culprits=(0, 1)),
            Waits(),
            Waits(sockets=()),
            stopped,
        )
        for looks in (1, 2)
    ]
    window = Window.build(read_paths([GOLDEN.parent / "examples" / "hung_job"]))
    return (*classes, *simulated, *live, judge(window, infer(window), load()), hang(), healthy(), undecided())


@pytest.mark.system
def test_no_verdict_has_a_fault_of_wording() -> None:
    """Whatever is named, and how little is known of it."""
    found = {fault: one for one in judged() for fault in faults(rendered(one))}

    assert not found, [(fault, rendered(one)) for fault, one in found.items()][:3]


def test_no_remediation_has_a_fault_of_wording() -> None:
    """Of a role or a code version that is not known the sentence is whole."""
    bare = {
        "id": "rem-1",
        "job": "llama",
        "attempt": 2,
        "nodes": ["gpu-1"],
        "ranks": [],
        "role": None,
        "code_version": None,
    }
    kinds = (
        "evict",
        "reset_gpu",
        "reboot_node",
        "restart_role",
        "restart_job",
        "reattempt",
        "rollback",
        "probe",
    )
    for kind in kinds:
        said = f"{remediations.deed(bare | {'kind': kind})}\n{remediations.short(bare | {'kind': kind})}"
        assert not list(faults(said)), said


def test_what_agents_sent_is_no_file() -> None:
    """No command reads a path that is none, and a source says that an agent sent it, before its first coverage report too."""
    for sources in ({"coverage": 2, "stacks": 4}, {"command_result": 4, "stacks": 4}):
        unread = tuple(f"recorder/{n}: no answer" for n in range(30))
        said = text.render(msgspec.structs.replace(hang(), coverage=Coverage(sources=sources, unread=unread)))

        assert not READ.search(said)
        assert re.findall(r"\[([^\]]*)\]", " ".join(said.split()))
        assert all(one.startswith("agent: ") for one in re.findall(r"\[([^\]]*)\]", " ".join(said.split())))


@pytest.mark.parametrize(
    "said",
    [
        "the code code was rolled back", "one of ranks 2", "one of rank 2", "ranks 7 wait", "code version (not named)",
        "The platform platform ended it",
    ],
)  # fmt: skip
def test_a_fault_of_wording_is_seen(said: str) -> None:
    """The patterns find what they are for."""
    assert list(faults(said))


@pytest.mark.parametrize(
    "said", ["one of ranks 2 and 3", "ranks 2-5", "ranks 2, 3 and 7", "e1 e1", "rank 2", "all of 4 ranks", "ranks 2,4"]
)
def test_right_wording_is_left_alone(said: str) -> None:
    """The patterns find no more than that."""
    assert not list(faults(said))


def test_a_kind_without_a_name_is_said_once() -> None:
    """What has no name but its kind, in lines of versions and among those rejected."""
    code = Culprit(root="r1", kind="code", id="code", probability=0.9)
    one = msgspec.structs.replace(
        hang(), culprits=(code,), rejected=(Rejected(kind="platform", id="platform", why="no"),)
    )

    assert history.of_verdict(one, 1, 0.0).named == "code"
    assert story.rejections(one) == (("platform", "no"),)


def test_a_set_of_one_is_one_rank() -> None:
    """In the document's own name of it too."""
    suspect = Suspect(kind="rank", strength=0.3, why="it may be", ranks=(2,))
    finding = replace(next(findings(FAULT_CLASSES[0])), suspects=(suspect,))
    one = compose(combine([finding], Topology()), Window(), Topology(), Knowledge())

    assert [each.id for each in one.culprits] == ["rank 2"]
    assert history.of_verdict(one, 1, 0.0).named == "rank 2"
    assert story.name_culprits(one.culprits) == "Rank 2"


def test_how_a_recorder_is_had_is_said_where_it_would_decide() -> None:
    """NCCL's two variables and, as gloo writes no dump whatever is set, the probe; nothing where recorders were asked."""
    bare = msgspec.structs.replace(undecided(), symptom="hang", coverage=Coverage(sources={"coverage": 4, "stacks": 4}))
    asked = msgspec.structs.replace(bare, coverage=Coverage(sources={"coverage": 4, "flight_recorder": 4}))

    assert "faulthound_probe" in text.render(bare)
    assert "TORCH_NCCL_DEBUG_INFO_PIPE_FILE" in text.render(bare)
    assert not next_steps.unrecorded(asked)
    assert not next_steps.unrecorded(healthy())


def test_the_history_of_a_verdict_has_roles() -> None:
    """Two versions that name the same node for another role's rank 0 differ, in words and as the service gives them."""
    names = [
        Culprit(root="r1", kind="node", id="n1", ranks=(0,), role=role, probability=0.9)
        for role in ("trainer", "rollout")
    ]
    versions = [
        history.of_verdict(Verdict(symptom="hang", cause="machine", abstained=False, culprits=(one,)), number, 0.0)
        for number, one in enumerate(names, 1)
    ]

    assert [one.named for one in versions] == ["node n1 (trainer rank 0)", "node n1 (rollout rank 0)"]
    assert history.changed(*versions) == "culprit node n1 (trainer rank 0) → node n1 (rollout rank 0)"
    assert [history.of_summary(history.as_json(one)) for one in versions] == versions
